# SPDX-License-Identifier: Apache-2.0
"""The catalogue of remedies: one file each in data/advice, read and checked."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmtailor.base.errors import VmtailorError

FOLDER = Path(__file__).resolve().parents[2] / "data" / "advice"

#: What a match looks at.
MATCH_KINDS = frozenset(
    {
        "initcall",
        "probe",
        "message",
        "late-message",
        "unit",
        "config",
        "config-unset",
        "command-line",
        "gap",
        "span",
        "phase",
        "phase-length",
        "console",
        "deferral",
        "absent-probe",
        "module",
        "waiting",
        "arch",
    }
)
#: How the saving is worked out (docs/reference/advice.md).
SAVINGS = frozenset(
    {
        "exclusive",
        "phase",
        "phase-part",
        "phase-over",
        "console",
        "gap",
        "unit",
        "deferral",
        "module",
        "printing",
        "none",
    }
)
CHANGE_KINDS = frozenset(
    {"configuration", "command line", "root file system", "machine", "unit", "runtime", "kernel version", "patch"}
)


@dataclass(frozen=True)
class Match:
    """One sign of a remedy. `pattern` must match a name whole, or a part of a message; `to` ends a span; `value` is
    of a symbol."""

    kind: str
    pattern: re.Pattern[str]
    min_us: int = 0
    to: re.Pattern[str] | None = None
    value: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Step:
    """One way to make the change, for kernels from `from_version` up to but without `until_version`."""

    kind: str
    what: str
    from_version: str = ""
    until_version: str = ""


@dataclass(frozen=True)
class Entry:
    """One remedy. `gone` says why kernels from `until_version` on do not need it."""

    id: str
    title: str
    looks: str
    costs: str
    risk: str
    saving: str
    confidence: str
    judged_on: str
    from_version: str
    until_version: str
    gone: str
    changes: tuple[Step, ...]
    matches: tuple[Match, ...]
    unless: tuple[Match, ...]


def _match(raw: dict[str, Any]) -> Match:
    if raw["kind"] not in MATCH_KINDS:
        raise ValueError(f"unknown kind of match {raw['kind']!r}")
    return Match(
        raw["kind"],
        re.compile(raw["pattern"]),
        int(raw.get("min_us", 0)),
        re.compile(raw["to"]) if "to" in raw else None,
        re.compile(raw["value"]) if "value" in raw else None,
    )


def read_entry(path: Path) -> Entry:
    """One file of the catalogue. Raises VmtailorError when it is not as it must be: it is ours."""
    try:
        raw = tomllib.loads(path.read_text("utf-8"))
        steps = tuple(
            Step(c["kind"], c["what"], c.get("from_version", ""), c.get("until_version", "")) for c in raw["change"]
        )
        if raw["id"] != path.stem or raw["saving"] not in SAVINGS or not {s.kind for s in steps} <= CHANGE_KINDS:
            raise ValueError("its id is not its file's name, or its saving or kind of change is unknown")
        return Entry(
            raw["id"],
            raw["title"],
            raw["looks"],
            raw["costs"],
            raw["risk"],
            raw["saving"],
            raw["confidence"],
            raw.get("judged_on", ""),
            raw.get("from_version", ""),
            raw.get("until_version", ""),
            raw.get("gone", ""),
            steps,
            tuple(_match(m) for m in raw["match"]),
            tuple(_match(m) for m in raw.get("unless", ())),
        )
    except (KeyError, ValueError, TypeError, re.error) as error:
        raise VmtailorError(f"the catalogue entry {path.name} is wrong: {error}") from error


@functools.cache
def catalogue() -> tuple[Entry, ...]:
    """All remedies, by id."""
    return tuple(read_entry(path) for path in sorted(FOLDER.glob("*.toml")))


def version_tuple(version: str) -> tuple[int, ...]:
    """`6.12.117-cloud` → (6, 12, 117). Empty when it is no version."""
    found = re.match(r"(\d{1,4})(?:\.(\d{1,4}))?(?:\.(\d{1,6}))?", version)
    return tuple(int(part) for part in found.groups() if part is not None) if found else ()


def in_range(version: str | None, from_version: str, until_version: str) -> bool:
    """Whether a kernel lies in a range. One that is not known is taken to."""
    known = version_tuple(version) if version else ()
    if not known:
        return True
    if from_version and known < version_tuple(from_version):
        return False
    return not (until_version and known >= version_tuple(until_version))
