# SPDX-License-Identifier: Apache-2.0
"""The exercise: how the container is driven and judged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar

from vmtailor.model.load import SLOW_COMMANDS, Load, LoadProtocol

#: Stands for the host's port that leads to a port of the guest, in a word of a command on the host.
HOST_PORT = re.compile(r"\{port:(\d{1,9})\}")


class ReadyKind(StrEnum):
    """The conditions under which the container counts as ready."""

    COMMAND = "command"  # a command in the guest exits 0 (a HEALTHCHECK is one)
    TCP = "tcp"  # a port accepts a connection
    HTTP = "http"  # a request is answered with the status asked for
    EXIT = "exit"  # the program ran to its end


class StepKind(StrEnum):
    """The kinds of steps of the load."""

    HTTP = "http"
    TCP = "tcp"  # a port accepts a connection
    COMMAND = "command"  # in the guest
    HOST_COMMAND = "host-command"  # on the host, against the published port; wall clock only
    PEAK = "peak"  # a load: so many requests at once
    SURF = "surf"  # a load: sessions of several pages, with pauses
    RATE = "rate"  # a load: so many requests a second, answered or not


#: Kinds of steps that are loads of many requests.
LOADS = (StepKind.PEAK, StepKind.SURF, StepKind.RATE)


@dataclass(frozen=True)
class Expect:
    """The right answer. None asks for nothing. `stdout` must be equal, `contains` a part; `sha256` of body or
    output."""

    status: int | None = None  # HTTP status
    exit_code: int | None = None
    stdout: str | None = None
    contains: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Step:
    """One step. HTTP: `port`, `method`, `path`. TCP: `port`. Commands: `argv`; a host command sees `{port:N}` replaced.
    `repeat` is how often it is done, each time judged; each time counts as one request. Loads: `port`, `load`."""

    kind: StepKind
    port: int = 0
    method: str = "GET"
    path: str = "/"
    argv: tuple[str, ...] = ()
    repeat: int = 1
    expect: Expect = Expect()
    load: Load | None = None

    @property
    def title(self) -> str:
        """Return the step in a few words, for a sentence about it."""
        if self.load is not None:
            port = f", port {self.port}" if self.port else ""
            return f"{self.kind} of {self.load.pages[0].title}{port}"
        return " ".join(self.argv) if self.argv else f"{self.method} :{self.port}{self.path}"


@dataclass(frozen=True)
class Ready:
    kind: ReadyKind
    step: Step | None = None  # for command, tcp and http
    timeout_s: float = 120.0  # of virtual time in the guest


class Proof(StrEnum):
    """The worth of a verification: what the container did while it was watched."""

    LOAD = "exercised with load"
    ENDED = "ran to its end"
    STARTED = "started, no load"  # the user's exercise asks for nothing but a connection once the container is ready
    DERIVED = "derived, no load"  # there was none: what the image's configuration says was asked

    @property
    def headline(self) -> str:
        """Return what may be said of a container that passed."""
        return {Proof.LOAD: "verified with load", Proof.ENDED: "ran to its end"}.get(self, "started; no load seen")


def _unpaced(step: Step) -> Iterator[Step]:
    if step.load is None:
        yield step
    elif step.load.protocol is not LoadProtocol.COMMAND:
        yield replace(step, load=step.load.unpaced())
    else:
        for page in step.load.pages:
            expect = Expect(exit_code=page.status, stdout=page.answer, contains=page.contains, sha256=page.sha256)
            yield Step(StepKind.COMMAND, argv=page.command, repeat=SLOW_COMMANDS, expect=expect)


#: Values of `Exercise.origin` for exercises derived from the image's configuration.
DERIVED = ("healthcheck", "ports", "run-to-end")


# vmtailor/exercise/1: first; steps that are loads came later.
@dataclass(frozen=True)
class Exercise:
    """`origin` says where it came from: a file's name, `healthcheck`, `ports` or `run-to-end`.

    `expect` judges the program's own end where it ends by itself (ready kind `exit`). `privileged`: root in the
    container may do everything, as with `docker run --privileged`."""

    SCHEMA: ClassVar[str] = "vmtailor/exercise/1"

    origin: str
    ready: Ready
    load: tuple[Step, ...] = ()
    expect: Expect = Expect()
    stop_signal: str = ""  # empty: the image's
    stop_timeout_s: float = 10.0
    privileged: bool = False

    @property
    def derived(self) -> bool:
        """Return whether it was made from the image's configuration, so that no user has said what the container is
        for."""
        return self.origin in DERIVED

    def patient(self, times: int) -> Exercise:
        """Return the exercise for a slower machine: it waits so many times as long for the container to be ready and to
        end."""
        ready = replace(self.ready, timeout_s=times * self.ready.timeout_s)
        load = tuple(replace(one, load=one.load.patient(times)) if one.load else one for one in self.load)
        return replace(self, ready=ready, load=load, stop_timeout_s=times * self.stop_timeout_s)

    def unpaced(self) -> Exercise:
        """Return the exercise for a machine whose time says nothing: its loads are small, and ask the same. Loads of
        commands are steps of one command each there, which the tracer sees."""
        return replace(self, load=tuple(small for one in self.load for small in _unpaced(one)))

    @property
    def loads(self) -> tuple[Step, ...]:
        """Return the steps that are loads."""
        return tuple(step for step in self.load if step.load is not None)

    @property
    def guest_steps(self) -> tuple[Step, ...]:
        """Return the steps that are done in the guest, which numbers them so."""
        return tuple(step for step in self.load if step.kind is not StepKind.HOST_COMMAND)

    def loads_last(self) -> Exercise:
        """Return the exercise with its loads behind all other steps."""
        return replace(self, load=(*(step for step in self.load if step.load is None), *self.loads))

    def without_loads(self) -> Exercise:
        """Return the exercise without its loads."""
        return replace(self, load=tuple(step for step in self.load if step.load is None))

    @property
    def proof(self) -> Proof:
        if self.ready.kind is ReadyKind.EXIT:
            return Proof.ENDED
        if self.derived:  # a health check that is asked again is no load
            return Proof.DERIVED
        return Proof.LOAD if any(step.kind is not StepKind.TCP for step in self.load) else Proof.STARTED
