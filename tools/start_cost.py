# SPDX-License-Identifier: Apache-2.0
"""Measure what `vmtailor run` costs beside the machine that it starts.

    tools/start_cost.py [-n PAIRS] [--entrypoint PROGRAM] BUNDLE [COMMAND...]

Pairs of a second `run BUNDLE COMMAND` and of QEMU started by hand with the same arguments, in turn. Prints vmtailor's
own processor time (the program that was started and became the supervisor, without QEMU), and the whole commands'
times."""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.booting.run_orders import RunOrders
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.monitors.supervised_start import RUN_VOLUME
from vmtailor.model.boots.workload import FIXED_KEY
from vmtailor.pipeline import machine_run
from vmtailor.pipeline.machine_run import RunOptions

#: Goals: seconds of vmtailor's own processor time, and the whole command as a share of QEMU's.
OWN_S, SHARE = 0.15, 1.10


@dataclass(frozen=True)
class Cost:
    """The cost of one command, in seconds: its own processor time, that of the programs that it waited for, and by the
    clock on the wall."""

    own_s: float
    waited_s: float
    wall_s: float

    @property
    def cpu_s(self) -> float:
        return self.own_s + self.waited_s


def cost(argv: list[str]) -> Cost:
    """Run a command without input or output, and return its cost. Raises SystemExit when it fails."""
    began = time.monotonic()
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    wall_s = time.monotonic() - began
    # A process that has ended and is not waited for still tells its own time and that of its children.
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    own, waited = (sum(map(int, fields[at : at + 2])) / os.sysconf("SC_CLK_TCK") for at in (11, 13))
    if process.wait() != 0:
        raise SystemExit(f"status {process.returncode}: {shlex.join(argv)}")
    return Cost(own, waited, wall_s)


def by_hand(orders: RunOrders, folder: Path) -> list[str]:
    """Return QEMU's command with all files by their names, its run volume in a folder."""
    volume = folder / "volume"
    records = guest_volume.records([("key", FIXED_KEY.hex()), *orders.volume])
    data = b"vtrun %d\n" % len(records) + records
    volume.write_bytes(data + bytes(-len(data) % 512))
    return shlex.split(orders.start.command.replace(RUN_VOLUME, str(volume)))


def shown(name: str, values: list[float], unit: str = "s") -> str:
    """Return a row: median, least and most."""
    return f"{name:44} {statistics.median(values):7.3f} {unit}   ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    """Print the figures; exits with 1 where a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("-n", type=int, default=10, metavar="PAIRS")
    parser.add_argument("--entrypoint")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args()
    options = RunOptions(asked.bundle, tuple(asked.command), entrypoint=asked.entrypoint)
    words = ["--entrypoint", asked.entrypoint] if asked.entrypoint else []
    run = [sys.executable, "-m", "vmtailor", "run", *words, str(asked.bundle), *asked.command]
    orders, _ = machine_run.orders_of(replace(options, bundle=asked.bundle))
    with tempfile.TemporaryDirectory() as folder:
        first, (ours, theirs) = cost(run), ([], [])  # type: tuple[Cost, tuple[list[Cost], list[Cost]]]
        for _ in range(asked.n):
            ours.append(cost(run))
            theirs.append(cost(by_hand(orders, Path(folder))))
    own = [one.own_s for one in ours]
    cpu = [a.cpu_s / b.cpu_s for a, b in zip(ours, theirs, strict=True)]
    wall = [a.wall_s / b.wall_s for a, b in zip(ours, theirs, strict=True)]
    print(f"first start: own processor time {first.own_s:.3f} s, with what it asked {first.cpu_s:.3f} s")
    print(shown(f"own processor time of {asked.n} more starts", own))
    print(shown("whole command, processor time", [one.cpu_s for one in ours]))
    print(shown("QEMU by hand, processor time", [one.cpu_s for one in theirs]))
    print(shown("in pairs, processor time", cpu, "times"))
    print(shown("in pairs, time", wall, "times"))
    missed = statistics.median(own) > OWN_S or statistics.median(cpu) > SHARE
    print(f"goals: at most {OWN_S} s and {SHARE} times: {'missed' if missed else 'met'}")
    sys.exit(int(missed))


if __name__ == "__main__":
    main()
