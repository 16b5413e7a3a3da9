# SPDX-License-Identifier: Apache-2.0
"""Names that were meant by a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: Longest name that is compared: comparing takes the square of the length.
_LONGEST = 80
#: How much of two names is alike, from 0 to 1, before one is taken for the other.
_ALIKE = 0.6


def nearest(wanted: str, names: Iterable[str], most: int = 3, alike: float = _ALIKE) -> tuple[str, ...]:
    """Return names that are spelled like `wanted`, the best first; case does not count. At most `most`. `alike`: how
    much of both is at least the same, from 0 to 1."""
    by_folded = {name.casefold(): name for name in names if len(name) <= _LONGEST}
    folded = wanted.casefold()
    if not 0 < len(folded) <= _LONGEST:
        return ()
    close = difflib.get_close_matches(folded, by_folded, n=most, cutoff=alike)
    return tuple(by_folded[name] for name in close)


def asked(wanted: str, names: Iterable[str], most: int = 1, alike: float = _ALIKE) -> str:
    """Return the question for a misspelt name, `did you mean EPOLL?`; empty where nothing is spelled like it."""
    close = nearest(wanted, names, most, alike)
    return f"did you mean {' or '.join(close)}?" if close else ""


def or_else(wanted: str, names: Iterable[str], hint: str) -> str:
    """Return a hint that first asks for the name that was meant."""
    question = asked(wanted, names)
    return f"{question} {hint}" if question else hint
