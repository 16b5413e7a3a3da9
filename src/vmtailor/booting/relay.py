# SPDX-License-Identifier: Apache-2.0
"""`run`: a relay between the caller's terminal and signals and the guest, until the guest ends.

Nothing here waits for ever. A reader of the container's output has a queue of its own. A container that was asked to
stop has its grace period, and init has its time to start."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from vmtailor.analysis.demands.degradation import NORMAL
from vmtailor.base.files import temporary
from vmtailor.booting.run_volume import with_run, with_tools
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.guest.guest_session import GuestSession
from vmtailor.drivers.host import tty
from vmtailor.drivers.host.caught_signals import STOPPING, CaughtSignals
from vmtailor.drivers.host.outlet import Outlet
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import Wants
from vmtailor.drivers.monitors.running_machine import RunningMachine
from vmtailor.model.boots.workload import Run
from vmtailor.model.guest_mounts import Share
from vmtailor.model.machine import Disk, Machine, TalkLine

#: Seconds that a machine has to go once its init has said the last word.
LAST_S = 15.0
#: Seconds that a reader has for what is queued when the grace period is over.
READER_S = 1.0
#: Bytes of standard input that may wait for the guest.
_AHEAD_BYTES = 65536
#: Bytes of standard input that are read at once, for a serial line and for a port.
_READ_BYTES, _READ_PORT_BYTES = 4096, 65536
_LOOK_S = 0.5
#: Seconds of silence after which it is asked whether the machine's CPUs still take interrupts, and between two such
#: looks: a kernel whose console was silenced says nothing when it halts.
_SILENCE_S = 5.0
#: Errors of a write whose other end is gone (not of a full disk).
_GONE = (errno.EPIPE, errno.EIO, errno.ENXIO)


class Finish(StrEnum):
    """The end of a relay."""

    CLOSED = "closed"  # the machine has ended, or its init has said all
    FAREWELL = "farewell"  # the kernel was made to halt, power off or start again, not by init
    HALTED = "halted"  # the same, without a word of the kernel
    KILLED = "killed"  # the grace period is over, or it was asked twice
    NOT_STARTED = "not started"  # init has not spoken in time


@dataclass(frozen=True)
class Observer:
    """An observer of refused calls. `tools`: the tracer's volume. `hear` is called with init's reports as they come."""

    tools: Path
    hear: Callable[[bytes], None]


@dataclass(frozen=True)
class RelayOptions:
    """The caller's options. `grace_s`: seconds between the stop signal and the end of the machine. `start_s`: seconds
    in which init must have spoken, since a kernel that goes astray prints nothing. `once_up`: lines for standard error
    once the guest has spoken and its ports are open. `observer`: called with refused calls. `shares`: of the host's
    files; `volumes`: further disks, behind init's own."""

    stop_signal: int
    grace_s: float
    start_s: float
    interactive: bool = False
    terminal: bool = False
    once_up: str = ""
    observer: Observer | None = None
    shares: tuple[Share, ...] = ()
    volumes: tuple[Disk, ...] = ()


class Relay:
    """The relay of one machine: call `run`, then `say` for each line of ours, then `drain`."""

    def __init__(self, running: RunningMachine, key: bytes, wishes: RelayOptions, signals: CaughtSignals) -> None:
        self.running = running
        self._wishes = wishes
        self._signals = signals
        self._out, self._err = Outlet(1, signals.wake), Outlet(2, signals.wake)
        told = {guest_volume.REFUSED_FILE: wishes.observer.hear} if wishes.observer is not None else {}
        self.session = GuestSession(
            running.serial, key=key, on_stdout=self._out.put, on_stderr=self._err.put, on_file=told, port=running.port,
            keep_output=False,
        )  # fmt: skip
        self._read_bytes = _READ_BYTES if running.port is None else _READ_PORT_BYTES
        self._raw = tty.RawTerminal(wishes.terminal and wishes.interactive)
        self._reading = wishes.interactive
        self._waiting = wishes.once_up
        self._asked_s = math.inf
        self._ended_s = math.inf
        self._heard_s = time.monotonic()
        self._killed = False
        self._gone = False

    def run(self) -> Finish:
        """Relay until the machine has ended, or should be ended."""
        with self._raw.held():
            while True:
                self._hear_signals()
                finish = self._finished()
                if finish is not None:
                    self._gone = True
                    return finish
                self._turn()

    def say(self, text: str) -> None:
        """Write a line of ours on standard error, behind the container's."""
        self._err.put(f"vmtailor: {text}\n".encode())

    def drain(self) -> None:
        """Wait until all output is read, after the end of the machine. Once somebody has asked for the end, wait no
        longer than the grace period, and report output that is dropped."""
        least = time.monotonic() + READER_S
        while self._out.queued or self._err.queued:
            self._hear_signals()
            end = max(least, 0.0 if self._killed else self._asked_s + self._wishes.grace_s)
            left = end - time.monotonic()
            if left <= 0:
                break
            select.select([self._signals], [], [], min(left, _LOOK_S))
        lost = self._out.close()
        if lost and not self._err.queued:
            self._err.put(b"vmtailor: %d bytes of output were dropped: nobody read them\n" % lost)
            self._err.wait(READER_S)
        if self._err.close():
            _silence_errors()

    def failed(self) -> tuple[tuple[str, int], ...]:
        """Return the streams that could not be written to, with the errno; a reader that has gone is no failure."""
        streams = (("standard output", self._out.failed), ("standard error", self._err.failed))
        return tuple((name, error) for name, error in streams if error and error not in _GONE)

    # --- one turn ---

    def _finished(self) -> Finish | None:
        session, now = self.session, time.monotonic()
        if session.ended:
            self._ended_s = min(self._ended_s, now)
        if not session.open or now > self._ended_s + LAST_S:
            return Finish.CLOSED
        if session.farewell and not session.ended:
            return Finish.FAREWELL
        if self._killed or now > self._asked_s + self._wishes.grace_s:
            return Finish.KILLED
        if not session.listening and self.running.elapsed_s > self._wishes.start_s:
            return Finish.NOT_STARTED
        return Finish.HALTED if self._halted(now) else None

    def _halted(self, now: float) -> bool:
        """Return whether the machine has halted silently. Asked seldom, since it stops the machine for a moment."""
        if self._held_back or now < self._heard_s + _SILENCE_S:
            return False
        self._heard_s = now
        return self.running.halted()

    @property
    def _held_back(self) -> bool:
        """Should the guest wait for those who read its output? Not when it is to end: then it must be heard."""
        asked = self._asked_s < math.inf
        return (self._out.full or self._err.full) and not asked and not self.session.ended

    def _turn(self) -> None:
        session = self.session
        lines = [] if self._held_back else [line.fileno() for line in session.lines]
        wanted = [self._signals.fileno(), *lines]
        if self._reading and session.stdin_queued < _AHEAD_BYTES:
            wanted.append(0)
        writer = [session.write_fileno()] if session.wants_write else []
        ready, writable, _ = select.select(wanted, writer, [], _LOOK_S)
        if 0 in ready:
            self._read()
        if any(line in ready for line in lines):
            session.pump(0)
            self._heard_s = time.monotonic()
            self._announce()
        elif writable:
            session.send_waiting()

    def _announce(self) -> None:
        if self._waiting and self.running.running:
            self._err.put(self._waiting.encode())
        self._waiting = ""

    def _read(self) -> None:
        try:
            data = os.read(0, self._read_bytes)
        except BlockingIOError:
            return
        except OSError:  # the terminal is gone
            data = b""
        if data:
            self.session.send_stdin(data)
        else:
            self.session.end_stdin()
            self._reading = False

    # --- signals ---

    def _hear_signals(self) -> None:
        for number in self._signals.take():
            if number in STOPPING:
                # Asked twice: now.
                self._killed = self._killed or (number == signal.SIGINT and self._asked_s < math.inf)
                self._stop()
            elif not self._gone:
                self._pass_on(number)
        # Whoever reads our output has left: that would have ended any other program at its next word.
        if errno.EPIPE in (self._out.failed, self._err.failed) and self._asked_s == math.inf:
            self._stop()

    def _stop(self) -> None:
        self._asked_s = min(self._asked_s, time.monotonic())
        if not self._gone:
            self.session.send_signal(self._wishes.stop_signal)

    def _pass_on(self, number: int) -> None:
        if number == signal.SIGCONT:
            self._raw.again()
        if number == signal.SIGWINCH and self._wishes.terminal:
            self.session.resize(*tty.size())
        else:
            self.session.send_signal(number)


@contextlib.contextmanager
def relayed(machine: Machine, run: Run, wishes: RelayOptions, signals: CaughtSignals) -> Iterator[Relay]:
    """Start a machine for one run, and relay its terminal. Raises HostError when it does not start."""
    if wishes.observer is not None:
        run = replace(run, tracer=guest_volume.REFUSED_OPTIONS, quiet=tuple(sorted(NORMAL)))
    run = replace(run, virtio_line=machine.line is TalkLine.VIRTIO)
    # On no disk: the container's environment is in it.
    with (
        temporary.memory_file(guest_volume.run_bytes(run)) as volume,
        monitors.of(machine).start(
            _with_volumes(machine, volume, wishes), Wants(control=True, greeted=False, shares=wishes.shares)
        ) as running,
    ):
        yield Relay(running, run.key, wishes, signals)


def _with_volumes(machine: Machine, volume: str, wishes: RelayOptions) -> Machine:
    machine = with_run(machine, volume)
    if wishes.observer is not None:
        machine = with_tools(machine, wishes.observer.tools)
    return replace(machine, disks=(*machine.disks, *wishes.volumes))


def _silence_errors() -> None:
    """Nobody reads standard error: what we would still say there must not wait for that either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)
