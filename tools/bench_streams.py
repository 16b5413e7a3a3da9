# SPDX-License-Identifier: Apache-2.0
"""`make bench-streams BUNDLE=FOLDER`: the processor time of data that `run -i` carries into a container and back.

The container's command gives back what it reads. The same start with nothing to carry is told beside it. The data is
random, and what comes back is compared with it.

    tools/bench_streams.py BUNDLE [COMMAND]... [--mib N]
"""

from __future__ import annotations

import argparse
import hashlib
import os
import resource
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

_LONG_S = 3600.0


@dataclass(frozen=True)
class Carried:
    """One run: the seconds of all its processes on a processor, and those that passed. `same`: all came back."""

    cpu_s: float
    wall_s: float
    same: bool


def carried(argv: list[str], data: bytes) -> Carried:
    """Run a command with data on its standard input, and compare its output with that."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(argv, input=data, stdout=subprocess.PIPE, timeout=_LONG_S, check=False)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    same = hashlib.sha256(done.stdout).digest() == hashlib.sha256(data).digest()
    return Carried(cpu_s, time.monotonic() - began, same)


def table(mib: float, empty: Carried, full: Carried) -> str:
    """Return the figures as text. Data that did not come back as it went is said first."""
    left = max(1e-9, full.cpu_s - empty.cpu_s)
    rows = [
        f"{mib:g} MiB there and back: {full.cpu_s:.2f} s of processor time, {full.wall_s:.1f} s in all",
        f"nothing there and back: {empty.cpu_s:.2f} s of processor time, {empty.wall_s:.1f} s in all",
        f"each way, for a second of processor time: {mib * 1.048576 / left:.3g} MB",
    ]
    return "\n".join([*([] if empty.same and full.same else ["the data did not come back as it went"]), *rows])


def main(words: list[str] | None = None) -> int:
    """Print the figures; 1 when the data did not come back."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("command", nargs="*", default=["cat"])
    parser.add_argument("--mib", type=float, default=64.0)
    given = parser.parse_args(words)
    argv = [sys.executable, "-m", "vmtailor", "run", "-i", str(given.bundle), *given.command]
    empty, full = carried(argv, b""), carried(argv, os.urandom(int(given.mib * (1 << 20))))
    print(table(given.mib, empty, full))
    return 0 if empty.same and full.same else 1


if __name__ == "__main__":
    sys.exit(main())
