# SPDX-License-Identifier: Apache-2.0
"""One run of a system's whole exercise: its boot, and what the system said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vmtailor.model.boots.boot import Boot
from vmtailor.model.guest import GuestReport


# vmtailor/system-run/1: first.
@dataclass(frozen=True)
class SystemRun:
    """`report`: answers of the exercise, the kernel's log, and what the system says of itself (its `files`). `words`:
    the console's last lines, the command and QEMU's words, for a person."""

    SCHEMA: ClassVar[str] = "vmtailor/system-run/1"

    boot: Boot
    report: GuestReport
    words: str = ""
