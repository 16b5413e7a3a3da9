# SPDX-License-Identifier: Apache-2.0
"""Runs as a program of its own beside a scope: when who holds it is gone, however it ended, the scope is removed.

python3 -m vmtailor.bench.runtimes.sweeper PLACE NAME    (standard input: a pipe that the holder keeps open)
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from vmtailor.bench.runtimes.host_cgroups import PREFIX
from vmtailor.bench.runtimes.scope import sweep_one


def main(words: list[str]) -> int:
    """Wait for the end of standard input, then sweep."""
    place, name = Path(words[0]), words[1]
    if not name.startswith(PREFIX) or "/" in name:
        return 2
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while os.read(0, 4096):
        pass
    sweep_one(place, name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
