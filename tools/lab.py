#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the lab: an emulated machine in which KVM works, and in which monitors start machines (drivers/lab).

    tools/lab.py [--arch NAME] [--again]

The disk is built from packages (benchmarks/lab/system.toml) and, where this host has Rust, with libkrun. Its kernel and
an initial RAM disk are taken out, and all of it goes to the cache. A lab that is there, of the same description and
packages, is kept; --again builds it anew. At the end it is started once, for the table of its kernel's functions.
--arch builds that for another processor's machines.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import build_libkrun

from vmtailor.base import natives
from vmtailor.base.cache.store import Store, digest, locked
from vmtailor.base.errors import HostError, UserInputError, VmtailorError
from vmtailor.base.files import records
from vmtailor.drivers.distribution import apt_lists
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.lab import lab_symbols
from vmtailor.drivers.monitors import lab_folder
from vmtailor.drivers.monitors.lab_folder import DISK, INITRD, KERNEL, RECORD, SYMBOLS, Lab
from vmtailor.model.architecture import Architecture, named, of_host
from vmtailor.pipeline.systems import inputs, subjects

TREE = Path(__file__).resolve().parent.parent
DESCRIPTION = TREE / "benchmarks" / "lab"


def main() -> None:
    """Make the lab, unless it is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--again", action="store_true", help="build it anew")
    parser.add_argument("--arch", metavar="NAME", help="the processor that it is for; this host's by default")
    arguments = parser.parse_args()
    row = named(arguments.arch) if arguments.arch else of_host()
    if not row.emulator.lab_cpu:
        raise UserInputError(f"there is no lab for {row.title}: QEMU emulates no KVM there", hint="leave --arch out")
    store = Store()
    place = store.folder(lab_folder.folder_name(row.name))
    libkrun = _libkrun(row, store)
    key = digest(*sorted(DESCRIPTION.iterdir()), _offered(row), *libkrun.values())
    with locked(place / ".lock", "the lab"):
        if not arguments.again and _is_there(row, store, key):
            print(f"the lab is there: {place}")
            return
        (place / RECORD).unlink(missing_ok=True)
        _build(row, place / DISK, libkrun)
        built = {"libkrun": build_libkrun.version()} if libkrun else {}
        lab = _taken_out(place, store, built, key)
        (place / SYMBOLS).write_bytes(lab_symbols.read(lab, place))
        records.save(replace(lab, sizes=lab_folder.sizes(place)), place / RECORD)
    print(f"the lab: {place}")


def _is_there(row: Architecture, store: Store, key: str) -> bool:
    try:
        lab, _ = lab_folder.load(row.name, store)
    except HostError:
        return False
    return lab.made_from == key


def _packaged(row: Architecture) -> dict[str, str]:
    """Return the monitors of a lab that are packages: name → the package whose version is theirs."""
    return {"qemu": row.emulator.package}


def _libkrun(row: Architecture, store: Store) -> dict[str, Path]:
    """Return what the lab has of libkrun: path there → file here. Nothing for another processor than this host's."""
    if not row.is_host:
        print("the lab is without libkrun: it is built for this host's processor alone", file=sys.stderr)
        return {}
    return libkrun_files(store)


def libkrun_files(store: Store) -> dict[str, Path]:
    """Return what a disk has of libkrun: path there → file here. Nothing where it cannot be built, which is said."""
    try:
        library = build_libkrun.library(store)
    except HostError as error:
        print(f"the disk is without libkrun: {error.message} ({error.hint})", file=sys.stderr)
        return {}
    libraries = f"/usr/lib/{of_host().kernel.cross.rstrip('-')}"
    return {f"{libraries}/{build_libkrun.SONAME}": library, "/usr/bin/krun-start": natives.locate().krun_start}


def file_rows(files: dict[str, Path]) -> str:
    """Return the rows of a description that add programs and libraries, path there → file here."""
    return "".join(f'\n[[file]]\npath = "{path}"\nmode = "0755"\nsource = "{own}"\n' for path, own in files.items())


def _build(row: Architecture, disk: Path, more: dict[str, Path]) -> None:
    """Build the disk of the description, with further programs and libraries."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "lab")
        shutil.copytree(DESCRIPTION, folder)
        with (folder / "system.toml").open("a") as file:
            file.write(file_rows(more))
        subprocess.run([sys.executable, TREE / "examples/build.py", folder, disk, "--arch", row.name], check=True)


def _offered(row: Architecture) -> str:
    """Return the versions of what the package lists of a processor offer now."""
    policy = subprocess.run(
        ["apt-cache", *apt_lists.of(row).options, "policy", *_packaged(row).values()],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LC_ALL": "C"},
    ).stdout
    return "".join(re.findall(r"Candidate: (\S+)", policy))


def _taken_out(place: Path, store: Store, built: dict[str, str], key: str) -> Lab:
    """Take the kernel and the initial RAM disk out of the disk, and return what the lab is, but for its sizes. `built`:
    the versions of monitors that are no packages."""
    with subjects.opened(f"{subjects.DISK}{place / DISK}", store) as found:
        row = named(found.subject.architecture)
        taken = inputs.taken_out(found, guest_programs.of(row.name), store)
        for name, file in ((KERNEL, inputs.KERNEL), (INITRD, inputs.INITRD)):
            shutil.copyfile(taken / file, place / name)
        status = found.root.text("/var/lib/dpkg/status", 16 << 20)
        version = found.root.text("/etc/vmtailor-lab").strip()
        monitors = dict(built)
        for name, package in _packaged(row).items():
            stanza = re.search(rf"^Package: {package}\n(?:.+\n)*?Version: (\S+)", status, re.MULTILINE)
            if stanza:
                monitors[name] = stanza[1].partition(":")[2] or stanza[1]
        return Lab(
            version=version, architecture=row.name, kernel=found.subject.kernel, monitors=monitors,
            digest=inputs.identity_of(found, store), sizes={}, made_from=key,
        )  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except VmtailorError as error:
        raise SystemExit(f"error: {error.message}\nhint: {error.hint}") from error
