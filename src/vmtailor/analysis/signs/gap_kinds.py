# SPDX-License-Identifier: Apache-2.0
"""What a silence is, and which stretches a log names, by data/boot_gaps.toml."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from vmtailor.base.errors import VmtailorError


@dataclass(frozen=True)
class GapKind:
    """A kind of silence, told by the message before it, the one after it, or (`both`) by both. `blocks`: the boot waits
    for it in user space, too."""

    id: str
    title: str
    before: re.Pattern[str] | None
    after: re.Pattern[str] | None
    both: bool = False
    blocks: bool = False

    def fits(self, before: str, after: str) -> bool:
        """Whether the messages around a silence tell this kind."""
        first = self.before is not None and self.before.search(before) is not None
        if self.both or not first:
            second = self.after is not None and self.after.search(after) is not None
            return first and second if self.both else second
        return first


@dataclass(frozen=True)
class StretchKind:
    """A stretch from one message to the next that ends it, whatever is said between."""

    id: str
    title: str
    begins: re.Pattern[str]
    ends: re.Pattern[str]
    blocks: bool = False


@functools.cache
def _tables() -> tuple[tuple[GapKind, ...], tuple[StretchKind, ...]]:
    try:
        raw = tomllib.loads((resources.files("vmtailor") / "data" / "boot_gaps.toml").read_text("utf-8"))
        gaps = tuple(
            GapKind(g["id"], g["title"], _pattern(g, "before"), _pattern(g, "after"), g.get("both", False),
                    g.get("blocks", False))
            for g in raw["gap"]
        )  # fmt: skip
        stretches = tuple(
            StretchKind(s["id"], s["title"], re.compile(s["from"]), re.compile(s["to"]), s.get("blocks", False))
            for s in raw["stretch"]
        )
    except (KeyError, ValueError, TypeError, re.error) as error:
        raise VmtailorError(f"the table of gaps is wrong: {error}") from error
    return gaps, stretches


def _pattern(raw: dict[str, Any], name: str) -> re.Pattern[str] | None:
    return re.compile(raw[name]) if name in raw else None


def gap_kinds() -> tuple[GapKind, ...]:
    """All kinds of silences, in the file's order."""
    return _tables()[0]


def stretch_kinds() -> tuple[StretchKind, ...]:
    """All kinds of stretches, in the file's order."""
    return _tables()[1]


def ids() -> frozenset[str]:
    """The ids of all kinds: what a change may name."""
    return frozenset([kind.id for kind in gap_kinds()] + [kind.id for kind in stretch_kinds()])
