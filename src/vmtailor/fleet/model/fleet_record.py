# SPDX-License-Identifier: Apache-2.0
"""The record of a fleet, beside its bundles: what is done, what failed and why. No value of a secret is in it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from vmtailor.fleet.model.entry import FleetEntry

#: The file of the record in the fleet's folder, its page, and the folder with the ends of logs.
RECORD, PAGE, LOGS = "fleet.json", "fleet.html", "logs"


class ImageStanding(StrEnum):
    """The standing of an image."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class PartRun:
    """A part that was done. `worker`: empty where another image's task did it, or the cache had it."""

    part: str
    seconds: float
    worker: str = ""


@dataclass(frozen=True)
class FleetImage:
    """One image of a fleet. `kernel`: the key of the kernel that was planned for it. `failed_in`, `says`, `hint`,
    `log`: where it failed, why, what to do, and the file with the end of the log. `verified_again`: of `verify`."""

    entry: FleetEntry
    standing: ImageStanding
    kernel: str = ""
    figures: tuple[tuple[str, int], ...] = ()
    parts: tuple[PartRun, ...] = ()
    failed_in: str = ""
    says: str = ""
    hint: str = ""
    log: str = ""
    verified_again: bool | None = None


# vmtailor/fleet/1: first.
@dataclass(frozen=True)
class FleetRecord:
    """A fleet. `tools`: digest of the tools that its results depend on. `list_path`: the list that it was made from."""

    SCHEMA: ClassVar[str] = "vmtailor/fleet/1"

    list_path: str
    version: str
    tools: str
    images: tuple[FleetImage, ...]

    def named(self, name: str) -> FleetImage | None:
        """Return the image of a name; None where there is none."""
        return next((one for one in self.images if one.entry.name == name), None)

    @property
    def all_done(self) -> bool:
        return all(one.standing is ImageStanding.DONE and one.verified_again is not False for one in self.images)
