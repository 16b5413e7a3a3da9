# SPDX-License-Identifier: Apache-2.0
"""Sizes as people write them."""

from __future__ import annotations

import re

from vmtailor.base.errors import UserInputError

_UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_LEAST = 8 << 20
_FORM = re.compile(r"([0-9]{1,15})\s*([KMG]?)(?:i?B)?\Z", re.IGNORECASE | re.ASCII)
_LARGE = re.compile(r"([0-9]{1,12})\s*([MGT])(?:i?B)?\Z", re.IGNORECASE | re.ASCII)


def parse_memory(text: str) -> int:
    """`256M`, `1g`, `64` (MiB), `134217728b` → bytes. Raises UserInputError for what is no size, or none for a
    machine."""
    match = _FORM.match(text.strip())
    if match is None:
        raise UserInputError(f"'{text[:40]}' is no amount of memory", hint="write it as 256M or 1G")
    number, unit = int(match.group(1)), match.group(2).upper()
    # Container engines take plain numbers, and those with a b, for bytes; no machine has so many MiB.
    in_bytes = not unit and (text.strip()[-1] in "bB" or number >= _LEAST)
    size = number * (1 if in_bytes else _UNITS[unit])
    if not _LEAST <= size <= 1 << 40:
        raise UserInputError(f"a machine cannot have '{text}' of memory", hint="from 8M to 1024G")
    return size


_LENGTH = re.compile(r"([0-9]{1,6})\s*([hdw])\Z", re.ASCII)
_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}


def parse_age(text: str) -> float:
    """`12h`, `30d`, `4w` → seconds. Raises UserInputError for what is no such time."""
    match = _LENGTH.match(text.strip())
    if match is None:
        raise UserInputError(f"'{text[:40]}' is no age", hint="write it as 12h, 30d or 4w")
    return float(int(match.group(1)) * _SECONDS[match.group(2)])


def parse_room(text: str) -> int:
    """`0`, `500M`, `20G` → bytes. Raises UserInputError for what is no size."""
    match = _LARGE.match("0M" if text.strip() == "0" else text.strip())
    if match is None:
        raise UserInputError(f"'{text[:40]}' is no size", hint="write it as 500M or 20G")
    return int(match.group(1)) * _UNITS[match.group(2).upper()]


def parse_image_size(text: str) -> int:
    """`16G`, `500M`, `1T` → bytes. Raises UserInputError for what is no size, or no size for an image."""
    match = _LARGE.match(text.strip())
    if match is None:
        raise UserInputError(f"'{text[:40]}' is no size of an image", hint="write it as 500M, 32G or 1T")
    size = int(match.group(1)) * _UNITS[match.group(2).upper()]
    if not 1 << 20 <= size <= 1 << 44:
        raise UserInputError(f"an image cannot have a size of '{text}'", hint="from 1M to 16T")
    return size
