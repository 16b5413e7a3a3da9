#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build the disk with the engines and with monitors beside them, for `vmtailor bench --inside`.

    tools/bench_lab.py [--python] OUT

benchmarks/engines describes it: system.toml has the engines, monitors.toml adds QEMU. libkrun is added where this host
can build it (tools/build_libkrun.py). --python adds the distribution's Python of this one's version, in which vmtailor
itself runs (tools/bench_run_lab.py), and leaves libkrun out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import lab

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import VmtailorError

TREE = Path(__file__).resolve().parent.parent
DESCRIPTION = TREE / "benchmarks" / "engines"


def main() -> None:
    """Build the disk, in place of what is there."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path, metavar="OUT", help="the disk to write")
    parser.add_argument("--python", action="store_true", help="with Python, and without libkrun")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        more = Path(name, "more.toml")
        more.write_text(python_rows() if arguments.python else _rows(lab.libkrun_files(Store())))
        further = ["--with", str(DESCRIPTION / "monitors.toml"), "--with", str(more)]
        build = [sys.executable, str(TREE / "examples/build.py"), str(DESCRIPTION), str(arguments.out)]
        subprocess.run([*build, *further], check=True)


def python_rows() -> str:
    """Return the rows of a description that add the distribution's Python of this one's version, by its usual name."""
    version = f"python3.{sys.version_info.minor}"
    # What only imports that nobody here makes need; the rest is in the disk for QEMU.
    assumed = '["media-types", "mime-support", "tzdata"]'
    link = f'[[link]]\npath = "/usr/bin/python3"\ntarget = "{version}"\n'
    return f'packages = ["{version}"]\nassume = {assumed}\n\n{link}'


def _rows(files: dict[str, Path]) -> str:
    """Return the rows of a description that add libkrun, its library by a name that says its version."""
    named = {path: Path(path).with_name(own.name) for path, own in files.items()}
    rows = lab.file_rows({str(named[path]): own for path, own in files.items()})
    links = (f'\n[[link]]\npath = "{path}"\ntarget = "{name.name}"\n' for path, name in named.items())
    return rows + "".join(link for link, (path, name) in zip(links, named.items(), strict=True) if path != str(name))


if __name__ == "__main__":
    try:
        main()
    except VmtailorError as error:
        raise SystemExit(f"error: {error.message}\nhint: {error.hint}") from error
