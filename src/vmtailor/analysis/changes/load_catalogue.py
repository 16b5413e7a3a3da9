# SPDX-License-Identifier: Apache-2.0
"""Changes that are tried under load (data/changes/load), and those that are listed and not proposed.

A file has a subject (`title`) and a row for each change (`[[change]]`):

    id         its name for --try
    does       what is done, in words
    reason     why it may save instructions a request
    gives_up   what is lost with it; "" where nothing is
    proposed   false: it is listed, and tried only by its own name; the reason says why. `load` means all others
    published  figures of earlier work, each a sentence (none: left out)
    processors, where it is for fewer families than all
    KIND       one table a kind of setting (model/change.py), as in change_catalogue.py
"""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmtailor.analysis.changes.change_catalogue import ALL_PROCESSORS, Candidate, processors_of, settings_of
from vmtailor.base.errors import VmtailorError
from vmtailor.model.change import Cause, Change, Reason

FOLDER = Path(__file__).resolve().parents[2] / "data" / "changes" / "load"
#: The name of all that are proposed.
LOAD = "load"


@dataclass(frozen=True)
class LoadChange:
    """One change of the catalogue. `subject`: the title of its file."""

    subject: str
    candidate: Candidate
    reason: str
    gives_up: str
    proposed: bool = True
    published: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        return self.candidate.change.id


def read(path: Path) -> tuple[LoadChange, ...]:
    """Return the changes of one file. Raises VmtailorError when it is not as it must be: it is ours."""
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
        return tuple(_change(raw["title"], dict(row)) for row in raw["change"])
    except (KeyError, ValueError, TypeError) as error:
        raise VmtailorError(f"the catalogue's file {path.name} is wrong: {error}") from error


def _change(subject: str, row: dict[str, Any]) -> LoadChange:
    name, does, reason, gives_up = (row.pop(key) for key in ("id", "does", "reason", "gives_up"))
    proposed, published = row.pop("proposed", True), tuple(row.pop("published", ()))
    processors = processors_of(row.pop("processors", ALL_PROCESSORS))
    change = Change(name, does, settings_of(row, name), (Reason(Cause.ADVICE, f"load:{name}", reason),))
    candidate = Candidate(change, processors=processors)
    return LoadChange(
        subject=subject, candidate=candidate, reason=reason, gives_up=gives_up, proposed=proposed, published=published
    )


@functools.cache
def catalogue() -> tuple[LoadChange, ...]:
    """Return all changes, file by file."""
    return tuple(one for path in sorted(FOLDER.glob("*.toml")) for one in read(path))


def named(name: str) -> list[Candidate]:
    """Return the change of this name, or all that are proposed under load; none for another name."""
    return [one.candidate for one in catalogue() if one.id == name or (name == LOAD and one.proposed)]
