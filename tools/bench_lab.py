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
        libkrun.write_text(lab.file_rows(lab.libkrun_files(Store())))
        further = ["--with", DESCRIPTION / "monitors.toml", "--with", libkrun]
        subprocess.run([sys.executable, TREE / "examples/build.py", DESCRIPTION, out, *further], check=True)


if __name__ == "__main__":
    try:
        main()
    except VmtailorError as error:
        raise SystemExit(f"error: {error.message}\nhint: {error.hint}") from error
