#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Build the disk with the engines and with monitors beside them, for `vmtailor bench --inside`.

    tools/bench_lab.py OUT

benchmarks/engines describes it: system.toml has the engines, monitors.toml adds QEMU. libkrun is added where this host
can build it (tools/build_libkrun.py).
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
    out = parser.parse_args().out
    with tempfile.TemporaryDirectory() as name:
        libkrun = Path(name, "libkrun.toml")
        libkrun.write_text(_rows(lab.libkrun_files(Store())))
        further = ["--with", str(DESCRIPTION / "monitors.toml"), "--with", str(libkrun)]
        build = [sys.executable, str(TREE / "examples/build.py"), str(DESCRIPTION), str(out)]
        subprocess.run([*build, *further], check=True)


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
