# SPDX-License-Identifier: Apache-2.0
"""Sizes as people write them."""

from __future__ import annotations

import re

from vmtailor.base.errors import UserInputError

_UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LEAST = 8 << 20
_FORM = re.compile(r"(\d+)\s*([KMG]?)(?:i?B)?\Z", re.IGNORECASE)


def parse_memory(text: str) -> int:
    """`256M`, `1g`, `64` (MiB), `134217728b` → bytes. Raises UserInputError for what is no size, or none for a
    machine."""
    match = _FORM.match(text.strip())
    if match is None:
        raise UserInputError(f"'{text}' is no amount of memory", hint="write it as 256M or 1G")
    number, unit = int(match.group(1)), match.group(2).upper()
    # Container engines take plain numbers, and those with a b, for bytes; no machine has so many MiB.
    in_bytes = not unit and (text.strip()[-1] in "bB" or number >= _LEAST)
    size = number * (1 if in_bytes else _UNITS[unit])
    if not _LEAST <= size <= 1 << 40:
        raise UserInputError(f"a machine cannot have '{text}' of memory", hint="from 8M to 1024G")
    return size
