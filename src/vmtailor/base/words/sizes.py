# SPDX-License-Identifier: Apache-2.0
"""Amounts of memory and of content as options take them: powers of 1024, whole numbers. (For reading: `figures`.)"""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_FORM = re.compile(r"([0-9]{1,15})\s*([KMGT]?)((?:i?B)?)", re.IGNORECASE | re.ASCII)
#: A number without a unit is of MiB, unless it is as large as this: container engines take plain numbers for bytes, and
#: nothing has so many MiB.
_SURELY_BYTES = 8 << 20


def parse(text: str, *, needs_unit: bool = False) -> int | None:
    """`256M`, `1 GiB`, `2t`, `64` (MiB), `134217728b` → bytes; None for what is no size. `needs_unit`: a plain number
    is none."""
    match = _FORM.fullmatch(text.strip())
    if match is None or (needs_unit and not match[2]):
        return None
    number, unit = int(match[1]), match[2].upper()
    if not unit and not match[3] and number < _SURELY_BYTES:
        unit = "M"
    return number * _UNITS[unit]


def text(size: int) -> str:
    """A size as options take it: 16G, 500M; what is no whole number of MiB in bytes."""
    for unit in ("G", "M"):
        if size >= _UNITS[unit] and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return f"{size} bytes"


def mebibytes(size: int) -> str:
    """A size in MiB, for records and messages: 256 MiB, 0.5 MiB."""
    return f"{size >> 20} MiB" if size % (1 << 20) == 0 else f"{size / (1 << 20):g} MiB"
