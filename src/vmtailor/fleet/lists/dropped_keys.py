# SPDX-License-Identifier: Apache-2.0
"""Keys of other programs' files that have no meaning for a fit, each with why: rows of the wing's `data/`."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from typing import Any

from vmtailor.base import near_names
from vmtailor.base.text import plain
from vmtailor.fleet.model.entry import Meaningless

#: Characters of a key that is shown.
_LONGEST = 80


@cache
def _rows(table: str) -> dict[str, dict[str, str]]:
    text = (resources.files("vmtailor.fleet") / "data" / f"{table}.toml").read_text("utf-8")
    document: dict[str, dict[str, str]] = tomllib.loads(text)
    return document


def of(table: str, part: str, found: dict[str, Any], read: Iterable[str], where: str = "") -> Iterator[Meaningless]:
    """Yield the keys of a part of a file that are neither read nor empty. `table`: compose or kubernetes. `part`: the
    table of its rows. `where`: what stands before the key."""
    rows, taken = _rows(table)[part], frozenset(read)
    for key, value in found.items():
        if key in taken or value in (None, {}, [], False, "") or str(key).startswith("x-"):
            continue
        why = rows.get(key, "")
        if why == "silent":
            continue
        if not why:
            meant = near_names.nearest(str(key), [*rows, *taken], 1)
            why = f"not a key of this part{f'; did you mean {meant[0]}?' if meant else ''}"
        yield Meaningless(plain(f"{where}{key}")[:_LONGEST], why)
