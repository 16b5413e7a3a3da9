# SPDX-License-Identifier: Apache-2.0
"""Loads: many requests, some of them at the same time. The steps of an exercise that are more than one request."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum


class LoadProtocol(StrEnum):
    """The protocols in which a load asks."""

    HTTP = "http"
    REDIS = "redis"
    COMMAND = "command"  # a program in the container, a process for each request


class Arrivals(StrEnum):
    """The ways in which an open loop's sessions follow one another."""

    EVEN = "even"  # all as far apart
    RANDOM = "random"  # as of many users who know nothing of each other: exponential, from the seed


#: Connections that a load may have at a time.
AT_ONCE_MAX = 4096
#: Requests of a second, at most: the client alone executes more than 1000 instructions for each.
RATE_MAX = 1_000_000.0
#: Sessions, and requests of one session.
SESSIONS_MAX = 10_000_000
CALLS_MAX = 1_000_000
#: Pages of a session.
PAGES_MAX = 64
#: Halvings of the gap between the last rate that held and the first that did not.
REFINE = 4
#: A load of a slowed machine is this small: nothing is measured there, and it proves the same answers.
SLOW_SESSIONS, SLOW_AT_ONCE, SLOW_TIMES = 40, 8, 20
#: There each command is run so often.
SLOW_COMMANDS = 5


@dataclass(frozen=True)
class LoadPage:
    """One request, and the right answer: of HTTP (`method`, `path`), or a command (`command`), of Redis or a program's
    in the container. None asks for nothing. `status`: of HTTP, or of the program's exit. `answer` must be equal;
    `contains` be a part of each answer; `sha256`: of the first right answer, which all others must be like."""

    path: str = "/"
    method: str = "GET"
    command: tuple[str, ...] = ()
    status: int | None = None
    contains: str | None = None
    answer: str | None = None
    sha256: str | None = None

    @property
    def title(self) -> str:
        return " ".join(self.command) if self.command else f"{self.method} {self.path}"


@dataclass(frozen=True)
class Load:
    """A load of sessions, each of `calls` requests that take the `pages` in turn.

    Closed loop (`rate` None): `sessions` in all, `at_once` of them at a time; each begins when another has ended.
    Open loop: `rate` requests a second for `seconds` of the guest's time, whether earlier ones are answered or not.
    With `to_rate`, a sweep: rates that grow by the factor `step`, each for `seconds`, until one is not held.

    `keep_alive`: a session has one connection, not one a request. `pause_s`: shortest and longest pause between the
    requests of a session, drawn from the `seed`. `timeout_s`: of a request, from its scheduled moment. `limit_s`: of
    the whole load. Times are the guest's."""

    pages: tuple[LoadPage, ...]
    protocol: LoadProtocol = LoadProtocol.HTTP
    at_once: int = 1
    sessions: int = 0
    calls: int = 1
    keep_alive: bool = False
    timeout_s: float = 10.0
    limit_s: float = 600.0
    pause_s: tuple[float, float] = (0.0, 0.0)
    seed: int = 1
    rate: float | None = None
    to_rate: float | None = None
    seconds: float = 1.0
    step: float = 1.25
    arrivals: Arrivals = Arrivals.EVEN

    @property
    def first_requests(self) -> int:
        """Return the requests of the first stage."""
        if self.rate is None:
            return self.sessions * self.calls
        # As the client rounds (native/load-client/stage.c).
        return max(1, int(self.rate / self.calls * self.seconds + 0.5)) * self.calls

    def patient(self, times: int) -> Load:
        """Return the load for a machine that is so many times slower."""
        scaled = replace(self, timeout_s=times * self.timeout_s, limit_s=times * self.limit_s)
        if self.rate is None:
            return scaled
        to_rate = self.to_rate / times if self.to_rate is not None else None
        return replace(scaled, rate=self.rate / times, to_rate=to_rate, seconds=times * self.seconds)

    def unpaced(self) -> Load:
        """Return a small closed loop of the same requests, for a machine whose time says nothing: one that is traced,
        or on the wall clock of a busy host."""
        asked = self.sessions if self.rate is None else math.ceil(self.rate * self.seconds / self.calls)
        return replace(
            self,
            sessions=max(1, min(asked, max(SLOW_SESSIONS, len(self.pages)))),
            at_once=min(self.at_once, SLOW_AT_ONCE),
            calls=min(self.calls, max(SLOW_SESSIONS, len(self.pages))),
            timeout_s=SLOW_TIMES * self.timeout_s,
            limit_s=SLOW_TIMES * self.limit_s,
            pause_s=(0.0, 0.0),
            rate=None,
            to_rate=None,
        )
