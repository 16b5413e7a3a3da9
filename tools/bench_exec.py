# SPDX-License-Identifier: Apache-2.0
"""`make bench-exec BUNDLE=FOLDER`: how long a machine takes for `exec`, from the request at its control socket to the
command's end there.

The machine's processor time is that of its monitor's process: of the guest, and of its emulation. It does not depend on
what else the host does, so it is the figure to compare; the time that passed is the host's.

    tools/bench_exec.py BUNDLE [COMMAND]... [--times N]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.drivers.host import control_socket
from vmtailor.drivers.host.control_socket import FromSupervisor, exit_of
from vmtailor.drivers.host.machine_folders import MachineFolder, MachineFolders

NAME = "bench-exec"


@dataclass(frozen=True)
class ExecTimes:
    """Milliseconds of each command that passed, and the monitor's processor time of one, on average."""

    passed_ms: tuple[float, ...]
    cpu_ms: float

    @property
    def text(self) -> str:
        return (
            f"exec, {len(self.passed_ms)} times: {self.cpu_ms:.1f} ms of processor time each; "
            f"least {min(self.passed_ms):.1f} ms, median {statistics.median(self.passed_ms):.1f} ms passed"
        )


def timed(folder: MachineFolder, command: Sequence[str], times: int) -> ExecTimes:
    """Run a command in a machine so often. The first time is not counted: it reads the program from the disk."""
    _once(folder, command)
    before, passed = _cpu_ns(folder), []
    for _ in range(times):
        began = time.monotonic()
        _once(folder, command)
        passed.append(1e3 * (time.monotonic() - began))
    return ExecTimes(tuple(passed), (_cpu_ns(folder) - before) / times / 1e6)


def _once(folder: MachineFolder, command: Sequence[str]) -> None:
    with control_socket.asked(folder, "exec", [("arg", word) for word in command]) as line:
        for kind, payload in control_socket.frames(line, 60.0):
            if kind == FromSupervisor.EXIT and exit_of(payload).code:
                raise SystemExit(f"{command[0]}: {exit_of(payload)}")


def _cpu_ns(folder: MachineFolder) -> int:
    return int(control_socket.answer(folder, "stats")["cpu-ns"])


def main(words: list[str] | None = None) -> int:
    """Print the figures of a machine that is started for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("command", nargs="*", default=["true"])
    parser.add_argument("--times", type=int, default=50)
    asked = parser.parse_args(words)
    program = [sys.executable, "-m", "vmtailor"]
    with tempfile.TemporaryDirectory(prefix="vmtailor-bench-") as place:
        os.environ |= {"XDG_STATE_HOME": f"{place}/state", "XDG_RUNTIME_DIR": place}
        # Standard input stays open and empty, so that a shell waits.
        start = [*program, "run", "-d", "-i", "--name", NAME, str(asked.bundle), "sh"]
        subprocess.run(start, check=True, stdout=subprocess.DEVNULL, timeout=600)
        try:
            print(timed(MachineFolders().find(NAME), asked.command, asked.times).text)
        finally:
            subprocess.run([*program, "rm", "-f", NAME], check=True, stdout=subprocess.DEVNULL, timeout=600)
    return 0


if __name__ == "__main__":
    sys.exit(main())
