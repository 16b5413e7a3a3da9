#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the lab: an emulated machine in which KVM works, and in which monitors start machines (drivers/lab).

    tools/lab.py [--again]

The disk is built from packages (benchmarks/lab/system.toml) and, where this host has Rust, with libkrun. Its kernel and
an initial RAM disk are taken out, and all of it goes to the cache. A lab that is there, of the same description and
packages, is kept; --again builds it anew. At the end it is started once, for the table of its kernel's functions.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import build_libkrun

from vmtailor.base import natives
from vmtailor.base.cache.store import Store, digest, locked
from vmtailor.base.errors import HostError, VmtailorError
from vmtailor.base.files import records
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.lab import lab_symbols
from vmtailor.drivers.monitors import lab_folder
from vmtailor.drivers.monitors.lab_folder import DISK, FOLDER, INITRD, KERNEL, RECORD, SYMBOLS, Lab
from vmtailor.model.architecture import named
from vmtailor.pipeline.systems import inputs, subjects

TREE = Path(__file__).resolve().parent.parent
DESCRIPTION = TREE / "benchmarks" / "lab"
#: Monitors of the lab that are packages: name → the package whose version is theirs.
PACKAGED = {"qemu": "qemu-system-x86"}
#: The folder of the lab's libraries.
_LIBRARIES = "/usr/lib/x86_64-linux-gnu"


def main() -> None:
    """Make the lab, unless it is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--again", action="store_true", help="build it anew")
    again = parser.parse_args().again
    store = Store()
    place = store.folder(FOLDER)
    libkrun = libkrun_files(store)
    key = digest(*sorted(DESCRIPTION.iterdir()), _offered(), *libkrun.values())
    with locked(place / ".lock", "the lab"):
        known = place / "key"
        if not again and known.is_file() and known.read_text() == key and _is_whole(store):
            print(f"the lab is there: {place}")
            return
        known.unlink(missing_ok=True)
        (place / RECORD).unlink(missing_ok=True)
        _build(place / DISK, libkrun)
        built = {"libkrun": build_libkrun.version()} if libkrun else {}
        lab = _taken_out(place, store, built)
        (place / SYMBOLS).write_bytes(lab_symbols.read(lab, place))
        records.save(lab, place / RECORD)
        known.write_text(key)
    print(f"the lab: {place}")


def _is_whole(store: Store) -> bool:
    try:
        lab_folder.load(store)
    except HostError:
        return False
    return True


def libkrun_files(store: Store) -> dict[str, Path]:
    """Return what a disk has of libkrun: path there → file here. Nothing where it cannot be built, which is said."""
    try:
        library = build_libkrun.library(store)
    except HostError as error:
        print(f"the disk is without libkrun: {error.message} ({error.hint})", file=sys.stderr)
        return {}
    return {f"{_LIBRARIES}/{build_libkrun.SONAME}": library, "/usr/bin/krun-start": natives.locate().krun_start}


def file_rows(files: dict[str, Path]) -> str:
    """Return the rows of a description that add programs and libraries, path there → file here."""
    return "".join(f'\n[[file]]\npath = "{path}"\nmode = "0755"\nsource = "{own}"\n' for path, own in files.items())


def _build(disk: Path, more: dict[str, Path]) -> None:
    """Build the disk of the description, with further programs and libraries."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "lab")
        shutil.copytree(DESCRIPTION, folder)
        with (folder / "system.toml").open("a") as file:
            file.write(file_rows(more))
        subprocess.run([sys.executable, TREE / "examples/build.py", folder, disk], check=True)


def _offered() -> str:
    """Return the versions of what the package lists offer now."""
    policy = subprocess.run(
        ["apt-cache", "policy", *PACKAGED.values()],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout
    return "".join(re.findall(r"Candidate: (\S+)", policy))


def _taken_out(place: Path, store: Store, built: dict[str, str]) -> Lab:
    """Take the kernel and the initial RAM disk out of the disk, and return what the lab is. `built`: the versions of
    monitors that are no packages."""
    with subjects.opened(f"{subjects.DISK}{place / DISK}", store) as found:
        row = named(found.subject.architecture)
        taken = inputs.taken_out(found, guest_programs.of(row.name), store)
        for name, file in ((KERNEL, inputs.KERNEL), (INITRD, inputs.INITRD)):
            shutil.copyfile(taken / file, place / name)
        status = found.root.text("/var/lib/dpkg/status", 16 << 20)
        version = found.root.text("/etc/vmtailor-lab").strip()
        monitors = dict(built)
        for name, package in PACKAGED.items():
            stanza = re.search(rf"^Package: {package}\n(?:.+\n)*?Version: (\S+)", status, re.MULTILINE)
            if stanza:
                monitors[name] = stanza[1].partition(":")[2] or stanza[1]
        return Lab(
            version=version, architecture=row.name, kernel=found.subject.kernel, monitors=monitors,
            digest=inputs.identity_of(found, store),
        )  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except VmtailorError as error:
        raise SystemExit(f"error: {error.message}\nhint: {error.hint}") from error
