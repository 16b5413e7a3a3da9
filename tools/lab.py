#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the lab: an emulated machine in which KVM works, and in which monitors start machines (drivers/lab).

    tools/lab.py [--again]

The disk is built from packages (benchmarks/lab/system.toml) and libkrun, where Rust is here to build it; its kernel and
an initial RAM disk are taken out, and all of it goes to the cache. A lab that is there, of the same description and
packages, is kept; --again builds it anew.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import build_libkrun

from vmtailor.base import natives
from vmtailor.base.cache.store import Store, digest, locked
from vmtailor.base.errors import VmtailorError
from vmtailor.base.files import records
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.monitors.lab_folder import DISK, INITRD, KERNEL, RECORD, Lab
from vmtailor.model.architecture import named
from vmtailor.pipeline.systems import inputs, subjects

TREE = Path(__file__).resolve().parent.parent
DESCRIPTION = TREE / "benchmarks" / "lab"
#: Monitors of the lab that are packages: name → the package whose version is theirs.
PACKAGED = {"qemu": "qemu-system-x86"}


def main() -> None:
    """Make the lab, unless it is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--again", action="store_true", help="build it anew")
    again = parser.parse_args().again
    store = Store()
    place = store.folder("lab")
    krun = _libkrun(store)
    parts = () if krun is None else (krun, natives.locate().krun_start)
    key = digest(*sorted(DESCRIPTION.iterdir()), *parts, _offered())
    with locked(place / ".lock", "the lab"):
        known = place / "key"
        if not again and known.is_file() and known.read_text() == key and (place / RECORD).is_file():
            print(f"the lab is there: {place}")
            return
        known.unlink(missing_ok=True)
        (place / RECORD).unlink(missing_ok=True)
        _build(place / DISK, parts)
        more = {} if krun is None else {"libkrun": build_libkrun.version()}
        records.save(_taken_out(place, store, more), place / RECORD)
        known.write_text(key)
    print(f"the lab: {place}")


def _libkrun(store: Store) -> Path | None:
    """Return libkrun, which is built where it is not in the cache; None, said, where it cannot be."""
    try:
        return build_libkrun.library(store)
    except VmtailorError as error:
        print(f"the lab is without libkrun: {error.message} ({error.hint})", file=sys.stderr)
        return None


def _build(out: Path, parts: Sequence[Path]) -> None:
    """Build the disk. `parts`: libkrun and the program that loads it, or nothing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in DESCRIPTION.iterdir():
            shutil.copyfile(path, folder / path.name)
        with (folder / "system.toml").open("a") as file:
            for path, place in zip(parts, (f"/usr/lib/{build_libkrun.SONAME}", "/usr/bin/krun-start"), strict=False):
                file.write(f'\n[[file]]\npath = "{place}"\nmode = "0755"\nsource = {json.dumps(str(path))}\n')
        subprocess.run([sys.executable, TREE / "examples/build.py", folder, out], check=True)


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


def _taken_out(place: Path, store: Store, more: Mapping[str, str]) -> Lab:
    """Take the kernel and the initial RAM disk out of the disk, and return what the lab is. `more`: versions of
    monitors that are no packages."""
    with subjects.opened(f"{subjects.DISK}{place / DISK}", store) as found:
        row = named(found.subject.architecture)
        taken = inputs.taken_out(found, guest_programs.of(row.name), store)
        for name, file in ((KERNEL, inputs.KERNEL), (INITRD, inputs.INITRD)):
            shutil.copyfile(taken / file, place / name)
        status = found.root.text("/var/lib/dpkg/status", 16 << 20)
        version = found.root.text("/etc/vmtailor-lab").strip()
        monitors = dict(more)
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
