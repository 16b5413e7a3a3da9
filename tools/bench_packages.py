# SPDX-License-Identifier: Apache-2.0
"""Print the system packages that benchmarks need besides, one a line: those of every runtime that comes with the
program, and what builds the image of the benchmarks.

Runs before anything is installed, so it uses the standard library only."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

RUNTIMES = Path(__file__).parent.parent / "src/vmtailor/bench/data"
#: Of the host's side of tests, and for the image's LINPACK.
TOOLS = ("apache2-utils", "iperf3", "iproute2", "libopenblas-pthread-dev", "gcc", "libc6-dev")


def main() -> int:
    """Print each package once."""
    found = [name for file in sorted(RUNTIMES.glob("*.toml")) for name in tomllib.loads(file.read_text())["packages"]]
    for package in dict.fromkeys([*found, *TOOLS]):
        print(package)
    return 0


if __name__ == "__main__":
    sys.exit(main())
