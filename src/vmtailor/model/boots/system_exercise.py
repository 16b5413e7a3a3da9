# SPDX-License-Identifier: Apache-2.0
"""The exercise of a system with an init of its own: how it is driven, from inside and outside, and judged."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from vmtailor.model.exercise import Exercise, Expect, Ready, ReadyKind, Step, StepKind

#: Default command that shuts a system down. QEMU ends at a reset, which needs no power management.
STOP = ("reboot",)
#: Prefix of the files with answers to an exercise's `[[says]]`; then their names, and how many there may be.
ASKED = "says-"
SAYS_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,30}")
SAYS_MAX = 8
#: Names of units.
UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]{1,200}\.[a-z]{4,10}")
READY_TIMEOUT_S, STEP_TIMEOUT_S, STOP_TIMEOUT_S = 300.0, 120.0, 120.0


class SystemReadyKind(StrEnum):
    """The conditions under which a system counts as ready."""

    UNIT = "unit"  # systemd says that a unit is active
    COMMAND = "command"  # a command in it ends as expected
    TCP = "tcp"  # a port accepts a connection, asked from inside
    HTTP = "http"  # a request is answered as expected, asked from inside
    LOG = "log"  # a line of the console


@dataclass(frozen=True)
class SystemReady:
    """`step` for command, tcp, http; `unit` for unit; `pattern`, a regular expression, for log. `timeout_s`: of the
    guest's time."""

    kind: SystemReadyKind
    step: Step | None = None
    unit: str = ""
    pattern: str = ""
    timeout_s: float = READY_TIMEOUT_S


@dataclass(frozen=True)
class Saying:
    """A command whose output tells how the system stands, after the load. `name`: of the file that it comes as;
    `errors`: its standard error comes with it."""

    name: str
    argv: tuple[str, ...]
    errors: bool = False


# vmtailor/system-exercise/1: first; what the system is asked of itself came later.
@dataclass(frozen=True)
class SystemExercise:
    """`load`: commands run in the system, as root; host commands from outside, through `ports` (of the guest).
    `step_timeout_s`: of each command and request. `stop`: the command that shuts the system down. `says`:
    what is asked of the system after the load, by names of the user's."""

    SCHEMA: ClassVar[str] = "vmtailor/system-exercise/1"

    origin: str
    ready: SystemReady
    load: tuple[Step, ...] = ()
    ports: tuple[int, ...] = ()
    step_timeout_s: float = STEP_TIMEOUT_S
    stop: tuple[str, ...] = STOP
    stop_timeout_s: float = STOP_TIMEOUT_S
    says: tuple[Saying, ...] = ()

    @property
    def host_steps(self) -> tuple[Step, ...]:
        """Return the steps from outside."""
        return tuple(step for step in self.load if step.kind is StepKind.HOST_COMMAND)

    def inside(self) -> Exercise:
        """Return the exercise that the attendant in the guest is given. A unit is asked for by a command, a line of the
        console by nothing."""
        ready = self.ready
        if ready.kind is SystemReadyKind.LOG:
            asked = Ready(ReadyKind.EXIT, None, ready.timeout_s)
        elif ready.kind is SystemReadyKind.UNIT:
            # Its output counts: before systemd runs, newer versions take this for a chroot, say so, and exit with 0.
            command = Step(
                StepKind.COMMAND, argv=("systemctl", "is-active", ready.unit), expect=Expect(stdout="active\n")
            )
            asked = Ready(ReadyKind.COMMAND, command, ready.timeout_s)
        else:
            asked = Ready(ReadyKind(ready.kind.value), ready.step, ready.timeout_s)
        return Exercise(self.origin, asked, self.load, stop_timeout_s=self.stop_timeout_s)
