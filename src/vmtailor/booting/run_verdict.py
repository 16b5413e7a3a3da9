# SPDX-License-Identifier: Apache-2.0
"""`run`: the meaning of a machine's end to the caller: an exit status, words to print, or an error."""

from __future__ import annotations

import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base import notation
from vmtailor.base.errors import GuestError, HostError, VmtailorError
from vmtailor.base.text import plain
from vmtailor.booting.run_end import Finish, RunEnd
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.running_machine import ending_of, refuses
from vmtailor.model.boots.ending import End
from vmtailor.model.bundle import RUN
from vmtailor.model.fit_run import FitRun
from vmtailor.model.guest import GuestNote, GuestReport
from vmtailor.model.kept_machine import USED_UP

#: Exit status of what had to be killed.
KILLED = 128 + signal.SIGKILL
#: Exit status of what is there and cannot be executed as it was asked for.
CANNOT_EXECUTE = 126
_MIB = 1 << 20
_OUT_OF_MEMORY = re.compile(r"Out of memory|System is deadlocked on memory|Initramfs unpacking failed: write error")
_KILLED_FOR_MEMORY = re.compile(r"Out of memory: Killed process \d+ \(([^)\n]{1,32})\)")


@dataclass(frozen=True)
class RunVerdict:
    """The verdict of a run. `status` counts when `error` is None. `words`: further lines for standard error."""

    status: int = 0
    words: tuple[str, ...] = ()
    error: VmtailorError | None = None


@dataclass(frozen=True)
class Memory:
    """The memory of a machine, and the least in which the bundle's exercise passed; None when that is not known."""

    has_bytes: int
    least_bytes: int | None

    @property
    def too_little(self) -> bool:
        return self.least_bytes is not None and self.has_bytes < self.least_bytes

    def error(self, what: str) -> GuestError:
        """Return the error of a machine that failed for lack of memory; it says more than the kernel's own symptoms."""
        has = notation.mebibytes(self.has_bytes)
        if not self.too_little or self.least_bytes is None:
            return GuestError(f"{what}: {has} of memory were not enough", hint="give it more: --memory")
        least = -(-self.least_bytes // _MIB)
        return GuestError(
            f"{what}: it has {has} of memory, and the bundle's least memory is measured as {least} MiB",
            hint=f"give it at least --memory {least}M",
        )


def memory_of(folder: Path, has_bytes: int) -> Memory:
    """Return the memory of a bundle's machine. The least memory is None when no record has it."""
    try:
        return Memory(has_bytes, bundle_folder.load(folder).record(FitRun, RUN).tailored.min_memory_bytes)
    except (VmtailorError, OSError):
        return Memory(has_bytes, None)


def verdict(ended: RunEnd, command: str, memory: Memory) -> RunVerdict:
    """Return the meaning of the end to the caller. `command`: the monitor's, for people."""
    report = ended.report
    if report.exit_code is not None:
        error = None if report.exit_code else require_written(ended.failed)
        return RunVerdict(report.exit_code, _words(report, memory), error)
    if ended.finish is Finish.KILLED:
        return RunVerdict(KILLED)
    if report.fatal is not None:
        return _given_up(report.fatal, memory)
    return RunVerdict(error=_without_status(ended, command, memory))


def _without_status(ended: RunEnd, command: str, memory: Memory) -> VmtailorError:
    report, halted = ended.report, bool(ended.farewell) or ended.finish is Finish.HALTED
    if ended.finish is Finish.NOT_STARTED or (halted and not ended.listening):
        # Before its init has spoken, no container runs that could end a machine.
        what = f"the machine's init has not started within {ended.elapsed_s:.0f} s"
        if halted:
            what = f"the kernel halted before the machine's init started ('{ended.farewell or 'without a word'}')"
        details = f"{report.console[-4000:]}\n{command}".strip()
        if memory.too_little or _OUT_OF_MEMORY.search(report.console):
            return memory.error(what)
        return GuestError(what, hint="give the machine more memory, or fit the image again", details=details)
    if halted:
        return GuestError(
            f"the container ended the machine, and left no exit status ('{ended.farewell or 'halted in silence'}')",
            hint="a container ends when its first program ends; poweroff, halt and reboot are for whole machines",
        )
    monitor = monitors.usual()
    end = End(
        ending=ending_of(ended.status, report.console),
        command=command,
        console_tail=report.console,
        stderr=ended.said,
        seconds=ended.elapsed_s,
        returncode=ended.status,
        monitor=monitor.row.title,
    )
    if refuses(end, ended.heard):
        return monitor.not_started(end)
    if _OUT_OF_MEMORY.search(report.console) or (memory.too_little and not ended.listening):
        return memory.error("the machine ended too early")
    return end.error()


def _given_up(fatal: GuestNote, memory: Memory) -> RunVerdict:
    """Init could not start the container: 126 where what was asked for is why, as with container engines."""
    if fatal.text.startswith("user '"):
        return RunVerdict(CANNOT_EXECUTE, (f"the container could not be started: {plain(fatal.text)}",))
    if memory.too_little:
        return RunVerdict(error=memory.error(f"the machine's init gave up: {fatal.text}"))
    if fatal.text.startswith("--"):
        return RunVerdict(
            error=GuestError(
                f"the container could not be started: {fatal.text}",
                hint=f"fit the image again with --keep {fatal.symbol}" if fatal.symbol else "change this option",
            )
        )
    return RunVerdict(
        error=GuestError(
            f"the machine's init gave up: {fatal.text}",
            hint=f"fit the image again with --keep {fatal.symbol}" if fatal.symbol else "fit the image again",
        )
    )


def _words(report: GuestReport, memory: Memory) -> tuple[str, ...]:
    words = []
    if report.exit_reason:
        # Init notes what the kernel lacks in the same words as the call that failed for it.
        lacking = [note.symbol for note in report.notes if note.symbol and note.text == report.exit_reason]
        hint = f" (the kernel lacks {lacking[0]}: fit the image again with --keep {lacking[0]})" if lacking else ""
        words.append(f"the container could not be started: {plain(report.exit_reason)}{hint}")
    killed = _KILLED_FOR_MEMORY.search(report.file("kernel-log"))
    if killed and report.exit_code:
        words.append(
            f"the machine's {notation.mebibytes(memory.has_bytes)} {USED_UP}"
            f" '{plain(killed[1])}': give it more with --memory"
        )
    return tuple(words)


def require_written(failed: tuple[tuple[str, int], ...]) -> HostError | None:
    """Return an error when we could not write the container's output."""
    for name, error in failed:
        return HostError(
            f"{name} could not be written: {os.strerror(error).lower()}",
            hint="the container's output since then is lost; free some space, and run it again",
        )
    return None
