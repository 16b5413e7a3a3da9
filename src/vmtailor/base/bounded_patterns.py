# SPDX-License-Identifier: Apache-2.0
"""Patterns of data files that look only so far along a line, so that no text makes them slow."""

from __future__ import annotations

import re

#: Characters that a repetition of any pattern takes at most.
FARTHEST = 200
#: An escape, a class of characters, or one character; then the repetition without a limit.
_PART = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\]){0,300}+\]|[^()|^$*+?{}])([*+])?+", re.S)


def bounded(pattern: str, farthest: int = FARTHEST) -> str:
    """Return a pattern with `*` and `+` behind a character or a class limited to `farthest` repetitions. Groups that
    repeat stay as they are."""

    def limited(part: re.Match[str]) -> str:
        return f"{part[1]}{{{0 if part[2] == '*' else 1},{farthest}}}" if part[2] else part[0]

    return _PART.sub(limited, pattern)
