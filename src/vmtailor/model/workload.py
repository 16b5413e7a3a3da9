# SPDX-License-Identifier: Apache-2.0
"""How a machine is driven once it is started."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ReadyBy(StrEnum):
    """How the host learns that the guest is ready."""

    LOG = "log"  # a line of the console matches
    LOGIN = "login"  # a login prompt
    SYSTEMD = "systemd"  # systemd's "Startup finished"
    TCP = "tcp"  # a port accepts
    SSH = "ssh"  # an SSH banner
    HTTP = "http"  # a good answer
    EVENT = "event"  # a QEMU event
    EXERCISE = "exercise"  # what a bundle's own exercise says; not to be chosen


@dataclass(frozen=True)
class ReadySignal:
    """One ready signal. `pattern` for log; `port` for tcp, ssh, http; `path` for http; `event` for event."""

    by: ReadyBy
    pattern: str = ""
    port: int = 0
    path: str = "/"
    event: str = ""

    def __str__(self) -> str:
        tails = {
            ReadyBy.LOG: self.pattern,
            ReadyBy.TCP: str(self.port),
            ReadyBy.SSH: str(self.port),
            ReadyBy.HTTP: f"{self.port}{self.path}",
            ReadyBy.EVENT: self.event,
        }
        tail = tails.get(self.by, "")
        return f"{self.by}:{tail}" if tail else str(self.by)
