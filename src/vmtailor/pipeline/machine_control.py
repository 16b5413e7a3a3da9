# SPDX-License-Identifier: Apache-2.0
"""Stop, kill, wait for and remove named machines, and ask what they use."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import AnswerNo, HostError, UserInputError, VmtailorError
from vmtailor.base.text import is_number
from vmtailor.drivers.host import control_socket
from vmtailor.drivers.host.control_socket import ControlSocket, FromSupervisor, NotRunning, exit_of
from vmtailor.drivers.host.machine_folders import MachineFolder, MachineFolders
from vmtailor.drivers.image import signals

#: Seconds between the stop signal and the end, unless the machine or the caller says otherwise.
GRACE_S = 10.0
#: Seconds beyond its time to stop in which a machine must have gone, and for one that is killed.
BEYOND_S, KILL_S = 30.0, 20.0


def signal_number(name: str) -> int:
    """Return the number of a signal: HUP, SIGHUP, 1. Raises UserInputError."""
    number = signals.number_of(name)
    if number is None:
        raise UserInputError(f"'{name[:40]}' is not a signal", hint="write it as SIGHUP, HUP, 1 or SIGRTMIN+3")
    return number


@dataclass(frozen=True)
class MachineOutcome:
    """The outcome for one of several machines. `word`: as it was named. `error`: None where it was done."""

    word: str
    error: VmtailorError | None = None
    value: int = 0


@dataclass(frozen=True)
class _Asked:
    """A machine that was asked to stop. `line`: None for one that does not run."""

    folder: MachineFolder
    line: ControlSocket | None
    grace_s: float | None


def stop(words: Sequence[str], grace_s: float | None, by_signal: str | None = None) -> Iterator[MachineOutcome]:
    """Stop machines, all at the same time; yields an outcome for each, in their order. `grace_s`: seconds until a
    machine is ended, -1 for any number; None for what it was started with. One that does not run is stopped already."""
    folders = MachineFolders()
    pairs = [("signal", str(signal_number(by_signal)))] if by_signal else []
    with ExitStack() as stack:
        begun: list[tuple[str, _Asked | VmtailorError]] = []
        for word in words:
            try:
                begun.append((word, _asked(folders.find(word), grace_s, pairs, stack)))
            except VmtailorError as error:
                begun.append((word, error))
        for word, asked in begun:
            yield MachineOutcome(word, asked if isinstance(asked, VmtailorError) else _stopped(asked))


def _asked(folder: MachineFolder, grace_s: float | None, pairs: Sequence[tuple[str, str]], stack: ExitStack) -> _Asked:
    wanted_s = folder.record.stop_timeout_s if grace_s is None else grace_s
    wait_s = None if wanted_s is None or wanted_s < 0 else wanted_s
    told = [("grace-ms", "-1" if wait_s is None else str(round(1000 * wait_s))), *pairs]
    try:
        line = stack.enter_context(control_socket.asked(folder, "stop", told))
    except NotRunning:
        return _Asked(folder, None, 0.0)
    return _Asked(folder, line, wait_s)


def _stopped(asked: _Asked) -> VmtailorError | None:
    """Wait until a machine has ended that was told to; returns the error where it did not."""
    folder, line, grace_s = asked.folder, asked.line, asked.grace_s
    limit_s = None if grace_s is None else grace_s + BEYOND_S
    try:
        if line is not None:
            for _ in control_socket.frames(line, limit_s):
                pass
    except control_socket.BrokenLine:
        pass  # it has gone while it spoke
    except VmtailorError as error:
        return error
    if folder.wait_ended(BEYOND_S if line is None else limit_s if limit_s is not None else 1e9):
        return None
    return HostError(f"{folder.record.name} has not ended", hint=f"vmtailor rm -f {folder.record.name} kills it")


def kill(folder: MachineFolder, number: int) -> None:
    """Send a signal to a machine's container. Raises NotRunning, RequestRefused, HostError."""
    control_socket.answer(folder, "kill", [("signal", str(number))])


def wait(folder: MachineFolder) -> int:
    """Return the exit status of a machine's container once it has ended for good. Raises HostError."""
    if not folder.alive:
        return folder.state().exit_code
    try:
        with control_socket.asked(folder, "wait") as line:
            for kind, payload in control_socket.frames(line, None):
                if kind == FromSupervisor.EXIT:
                    return exit_of(payload).code
    except (NotRunning, control_socket.BrokenLine):
        pass  # it has ended in this moment, or was killed
    folder.wait_ended(KILL_S)
    return folder.state().exit_code


def remove(folder: MachineFolder, *, force: bool) -> None:
    """Remove a machine with all that it has kept. Raises AnswerNo for one that runs, unless `force`."""
    name = folder.record.name
    if folder.alive:
        if not force:
            raise AnswerNo(f"the machine {name} is running", hint=f"vmtailor stop {name}, or vmtailor rm -f {name}")
        _end(folder)
    try:
        if not MachineFolders().remove(folder):
            raise AnswerNo(f"the machine {name} has just been started", hint=f"vmtailor rm -f {name}")
    except FileNotFoundError:
        pass  # another one removes it, or it went by itself
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise HostError(f"{folder.path} cannot be removed: {words}", hint=f"remove {folder.path}") from error


def _end(folder: MachineFolder) -> None:
    """End a machine at once: by its supervisor, or else by the end of that."""
    with contextlib.suppress(VmtailorError), control_socket.asked(folder, "stop", [("grace-ms", "0")]) as line:
        for _ in control_socket.frames(line, KILL_S):
            pass
    if folder.wait_ended(KILL_S):
        return
    number = folder.state().pid
    if not _is_supervisor(number):
        raise HostError(f"{folder.record.name} cannot be ended", hint=f"its supervisor holds {folder.path / 'alive'}")
    with contextlib.suppress(ProcessLookupError):
        os.kill(number, signal.SIGKILL)
    if not folder.wait_ended(KILL_S):
        raise HostError(f"{folder.record.name} has not ended", hint=f"kill -9 {number}")


def _is_supervisor(number: int) -> bool:
    """Return whether a process is a supervisor of ours: its number may have become another's."""
    try:
        place = Path(f"/proc/{number}")
        return (
            number > 1 and place.stat().st_uid == os.geteuid() and (place / "comm").read_text().strip() == "supervise"
        )
    except (OSError, ValueError):
        return False


@dataclass(frozen=True)
class MachineUse:
    """The use of a machine at one moment. `cpu_ns`: processor time of its monitor so far; `memory_bytes`: memory of the
    monitor's process; `guest_bytes`, `processes`: of the guest, None where it cannot tell; `at_ns`: monotonic."""

    cpu_ns: int
    memory_bytes: int
    guest_bytes: int | None
    processes: int | None
    at_ns: int


def use(folder: MachineFolder) -> MachineUse:
    """Return what a running machine uses. Raises NotRunning, RequestRefused, HostError."""
    values = control_socket.answer(folder, "stats")

    def number(key: str) -> int | None:
        text = values.get(key, "")
        return int(text) if is_number(text) and len(text) < 20 else None

    return MachineUse(
        cpu_ns=number("cpu-ns") or 0,
        memory_bytes=number("memory") or 0,
        guest_bytes=number("memory-used"),
        processes=number("processes"),
        at_ns=time.monotonic_ns(),
    )
