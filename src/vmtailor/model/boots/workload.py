# SPDX-License-Identifier: Apache-2.0
"""The ways to drive a machine once it is started: our init with an exercise, a system with an init of its own and a
ready signal, or nothing."""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from vmtailor.model.boots.surroundings import USUAL, GuestSurroundings
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.exercise import Exercise
from vmtailor.model.guest_mounts import GuestMount
from vmtailor.model.machine import Clock

#: Bytes of the key that tags what a guest says.
KEY_BYTES = 16
#: A fixed key: two boots that shall agree to the instruction must be told the same bytes.
FIXED_KEY = bytes(range(KEY_BYTES))
#: Factor by which a busy host may stretch processor time.
BUSY_TIMES = 5
#: Host seconds in which a machine on the instruction clock may do nothing: it waits for nobody.
STILL_S = 30.0
#: Processor time allowed to a machine: these seconds, plus this many times what the same work took on another.
SLACK_S, SLACK_TIMES = 30.0, 6
#: The address that QEMU's user network gives its guest.
NETWORK = "10.0.2.15/24,10.0.2.2,10.0.2.3"


@dataclass(frozen=True)
class Terminal:
    """The entry point gets a terminal of this size."""

    rows: int = 24
    columns: int = 80


@dataclass(frozen=True)
class Run:
    """One run: what differs from the image's configuration, and how it is driven. None leaves the image's.

    `network` is `ADDRESS/PREFIX,GATEWAY,DNS`, `network6` the same of IPv6 without the last. `tracer`: options of strace
    (TRACER_OPTIONS); empty: not traced. `quiet`: with any, init tells the calls that failed with other errors than
    these, in place of a whole trace. `hold`: after the load, wait for the host's go. `grace_ms`: between SIGTERM and
    SIGKILL for what the entry point left. `key` tags all frames; make one for each run, fixed where two boots must
    agree to the byte. `privileged`: root in the container may do everything, not only what container engines leave it;
    an exercise may ask for that, too. `pid_one`: the entry point is PID 1 of a namespace of its own, where the kernel
    can do that; None: as the image's folder says. `virtio_line`: init talks on the machine's virtio port.
    `surroundings`: an init of a version before knows none but the usual ones. `mounts`: in their order.
    `sample_ms`: between two samples of the machine's figures; 0 for none."""

    argv: tuple[str, ...] | None = None
    env: tuple[tuple[str, str], ...] = ()
    user: str | None = None
    cwd: str | None = None
    hostname: str | None = None
    terminal: Terminal | None = None
    stdin: bool = False
    network: str | None = None
    network6: str | None = None
    exercise: Exercise | None = None
    stop_signal: str | None = None
    tracer: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    hold: bool = False
    privileged: bool = False
    pid_one: bool | None = None
    virtio_line: bool = False
    surroundings: GuestSurroundings = USUAL
    mounts: tuple[GuestMount, ...] = ()
    grace_ms: int = 1000
    sample_ms: int = 0
    key: bytes = field(default_factory=lambda: secrets.token_bytes(KEY_BYTES))

    def unpaced(self) -> Run:
        """Return the run on a machine whose time says nothing: loads of its exercise are small."""
        return self if self.exercise is None else replace(self, exercise=self.exercise.unpaced())


class ReadyBy(StrEnum):
    """The ways in which the host learns that the guest is ready."""

    LOG = "log"  # a line of the console matches
    LOGIN = "login"  # a login prompt
    SYSTEMD = "systemd"  # systemd's "Startup finished"
    TCP = "tcp"  # a port accepts
    SSH = "ssh"  # an SSH banner
    HTTP = "http"  # a good answer
    EVENT = "event"  # a QEMU event
    EXERCISE = "exercise"  # what a bundle's own exercise says; not to be chosen
    NOTHING = "nothing"  # nobody asks it anything: it has run for so long


@dataclass(frozen=True)
class ReadySignal:
    """One ready signal. `pattern` for log; `port` for tcp, ssh, http; `path` for http; `event` for event;
    `seconds` for nothing."""

    by: ReadyBy
    pattern: str = ""
    port: int = 0
    path: str = "/"
    event: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        tails = {
            ReadyBy.LOG: self.pattern,
            ReadyBy.TCP: str(self.port),
            ReadyBy.SSH: str(self.port),
            ReadyBy.HTTP: f"{self.port}{self.path}",
            ReadyBy.EVENT: self.event,
            ReadyBy.NOTHING: f"{self.seconds:g}",
        }
        tail = tails.get(self.by, "")
        return f"{self.by}:{tail}" if tail else str(self.by)


#: Signals that are asked for over the network.
BY_PORT = (ReadyBy.TCP, ReadyBy.SSH, ReadyBy.HTTP)


@dataclass(frozen=True)
class Patience:
    """The limits of a boot: seconds of processor time that QEMU may use until init has spoken, and in all. A busy host
    does not shorten them. `instructions`: those that the guest may execute, if they are counted; no host changes them.
    `still_s`: host seconds in which QEMU may use next to none. On the instruction clock, where timers are not waited
    for, such a machine stands still."""

    start_s: float = math.inf
    all_s: float = math.inf
    still_s: float = math.inf
    instructions: float = math.inf

    @classmethod
    def after(cls, baseline_s: float) -> Patience:
        """Return the patience for a machine that does what another did in so many processor seconds."""
        return cls(all_s=SLACK_S + SLACK_TIMES * baseline_s)


class Clients(StrEnum):
    """The places from which a load asks."""

    INSIDE = "inside"  # the guest, over its loopback interface
    HOST = "host"  # the machine's host, over the machine's network


@dataclass(frozen=True)
class Exercised:
    """Our init starts the container on the machine's first disk, and drives it by its exercise. `timeout_s`: of host
    time for the whole boot; `patience`: in which it is given up. `tools`: the tracer's volume, which has
    every system call noted; its file's ending names the format. `at_load`: called when the guest waits after its own
    load, so that host clients can do theirs (`run.hold`). `exits`: KVM's trace of exits is kept. `clients`: who asks
    in the exercise's loads."""

    run: Run
    timeout_s: float
    tools: Path | None = None
    at_load: Callable[[], None] | None = None
    patience: Patience = Patience()
    exits: bool = False
    clients: Clients = Clients.INSIDE

    @property
    def signal(self) -> ReadySignal:
        return ReadySignal(ReadyBy.EXERCISE)

    def unhurried(self, clock: Clock, patience: Patience | None = None) -> Exercised:
        """Return the boot limited by processor time on the instruction clock, where machines do not wait. It may take
        the host time that a busy host needs for that. `patience`: other limits than all of its time."""
        if clock is not Clock.INSTRUCTIONS:
            return self
        patience = patience or Patience(all_s=self.timeout_s)
        return replace(self, timeout_s=BUSY_TIMES * self.timeout_s, patience=replace(patience, still_s=STILL_S))


@dataclass(frozen=True)
class OwnInit:
    """A system with an init of its own, until `ready` comes. `timeout_s`: of host time. `also`: signals that must come,
    too, before the boot counts as right. `marks`: further milestones by lines of the console. `collector`: it runs in
    the guest, and writes to a second serial port.

    `settled`: once all signals came, the machine goes on until this returns true, at most for `settle_s`. It is asked
    with the seconds since 1970 at which they had come."""

    ready: ReadySignal
    timeout_s: float
    also: tuple[ReadySignal, ...] = ()
    marks: tuple[tuple[str, re.Pattern[str]], ...] = ()
    collector: bool = False
    settled: Callable[[float], bool] | None = None
    settle_s: float = 0.0

    @property
    def signal(self) -> ReadySignal:
        return self.ready

    @property
    def ports(self) -> tuple[int, ...]:
        """Return the ports of the guest that are asked."""
        return tuple(dict.fromkeys(s.port for s in (self.ready, *self.also) if s.by in BY_PORT))


class Until(StrEnum):
    """The points up to which a system is taken before its machine is ended."""

    READY = "ready"  # as soon as it is ready, without a load
    REST = "rest"  # without a load, once it is at rest after it was ready, and has told where its memory is
    SHUTDOWN = "shutdown"  # through the whole exercise


@dataclass(frozen=True)
class Attended:
    """A system with an init of its own, driven by its exercise: an attendant of ours starts it from a disk of its own
    (`volume`), which is the machine's last, and stays beside it. `timeout_s`: of host time for the whole boot. `key`
    tags what the attendant says. `until`: how far it goes. `patience`: in which it is given up, beside `timeout_s`.
    `sample_ms`: between two samples of the machine's figures, as the volume says; 0 for none."""

    exercise: SystemExercise
    volume: Path
    key: bytes
    timeout_s: float
    until: Until = Until.SHUTDOWN
    patience: Patience = Patience()
    sample_ms: int = 0

    @property
    def signal(self) -> ReadySignal:
        return ReadySignal(ReadyBy.EXERCISE)

    def unhurried(self, clock: Clock, patience: Patience | None = None) -> Attended:
        """Return the boot limited by processor time on the instruction clock, as `Exercised.unhurried` does."""
        if clock is not Clock.INSTRUCTIONS:
            return self
        patience = patience or Patience(all_s=self.timeout_s)
        return replace(self, timeout_s=BUSY_TIMES * self.timeout_s, patience=replace(patience, still_s=STILL_S))


@dataclass(frozen=True)
class Nothing:
    """The machine is left alone for so many seconds of host time. It counts as ready when it still runs then, and has
    not said that it is lost."""

    timeout_s: float

    @property
    def signal(self) -> ReadySignal:
        return ReadySignal(ReadyBy.NOTHING, seconds=self.timeout_s)

    @property
    def ports(self) -> tuple[int, ...]:
        """Return none: nothing of the guest is asked."""
        return ()


Workload = Exercised | OwnInit | Attended | Nothing
