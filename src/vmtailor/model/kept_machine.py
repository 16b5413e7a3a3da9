# SPDX-License-Identifier: Apache-2.0
"""A machine that has a name and a folder of its own: started by `run -d` or `run --name`, and kept until `rm`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import is_number
from vmtailor.model.image import HealthCheck
from vmtailor.model.machine import PublishedPort

#: Names as container engines take them, and whole identifiers.
NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]{1,127}")
ID = re.compile(r"[0-9a-f]{64}")
#: Digits of an identifier that tables show.
SHORT = 12
#: Words of the error of a machine that lacked memory.
USED_UP = "of memory were used up, and its kernel killed"
#: Status of a machine whose supervisor was killed: so it was killed itself.
KILLED = 137


class MachineStatus(StrEnum):
    """Statuses of a machine, in the supervisor's words."""

    CREATED = "created"
    RUNNING = "running"
    STOPPING = "stopping"
    RESTARTING = "restarting"
    EXITED = "exited"
    DEAD = "dead"


class RestartWhen(StrEnum):
    """The ends of a container after which its machine is started again."""

    NO = "no"
    ON_FAILURE = "on-failure"
    ALWAYS = "always"
    UNLESS_STOPPED = "unless-stopped"


@dataclass(frozen=True)
class RestartPolicy:
    """When a machine is started again. `most`: how often at most; 0 for any number."""

    when: RestartWhen = RestartWhen.NO
    most: int = 0

    def __str__(self) -> str:
        return f"{self.when}:{self.most}" if self.most else str(self.when)


def parse_restart(text: str) -> RestartPolicy:
    """Return the policy of `no`, `on-failure[:N]`, `always`, `unless-stopped`. Raises UserInputError."""
    when, colon, most = text.partition(":")
    known = {one.value: one for one in RestartWhen}
    counts = is_number(most) and len(most) < 7 if colon else True
    if (when or "no") not in known or not counts or (colon and when != RestartWhen.ON_FAILURE):
        raise UserInputError(
            f"--restart {text[:60]}: no such policy", hint="no, on-failure, on-failure:3, always or unless-stopped"
        )
    return RestartPolicy(known[when or "no"], int(most or 0))


# vmtailor/kept-machine/1
@dataclass(frozen=True, kw_only=True)
class KeptMachine:
    """A named machine, as it was made. `bundle`: the absolute path of its folder; `bundle_digest`: `sha256:…` of the
    bundle's record; `command`: what is executed; `created`: RFC 3339; `ports`: with the ports that were chosen;
    `options`: of `run`, those that differ from their defaults, by field; `restart`: a policy as `--restart` takes it;
    `remove`: it goes when it has ended; `memory_bytes`, `cpus`: of its machine; `layer_bytes`: the most that the disk
    of what it writes may hold, 0 where that is in memory, and `layer_lacks` says why; `volumes`: the image's."""

    SCHEMA: ClassVar[str] = "vmtailor/kept-machine/1"

    id: str
    name: str
    bundle: str
    bundle_digest: str
    image: str
    image_digest: str
    command: tuple[str, ...]
    created: str
    labels: tuple[tuple[str, str], ...] = ()
    ports: tuple[PublishedPort, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    env: tuple[tuple[str, str], ...] = ()
    user: str = ""
    cwd: str = "/"
    hostname: str = ""
    terminal: bool = False
    interactive: bool = False
    stop_signal: str = "SIGTERM"
    stop_timeout_s: float | None = 10.0
    restart: str = "no"
    remove: bool = False
    health: HealthCheck | None = None
    memory_bytes: int = 0
    cpus: int = 1
    layer_bytes: int = 0
    layer_lacks: str = ""
    volumes: tuple[str, ...] = ()

    @property
    def short_id(self) -> str:
        return self.id[:SHORT]


@dataclass(frozen=True, kw_only=True)
class MachineState:
    """The state of a named machine. `started_ns` and `finished_ns`: real time, 0 where it never did; `exit_code`: of
    its last end; `health`: starting, healthy, unhealthy or none; `alive`: its supervisor runs."""

    status: MachineStatus = MachineStatus.CREATED
    pid: int = 0
    started_ns: int = 0
    finished_ns: int = 0
    exit_code: int = 0
    restarts: int = 0
    health: str = "none"
    error: str = ""
    alive: bool = False

    @property
    def running(self) -> bool:
        return self.alive and self.status in (
            MachineStatus.RUNNING,
            MachineStatus.STOPPING,
            MachineStatus.RESTARTING,
        )
