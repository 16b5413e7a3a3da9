# SPDX-License-Identifier: Apache-2.0
"""Sizes as people write them, held against what can be."""

from __future__ import annotations

import re

from vmtailor.base import notation
from vmtailor.base.errors import UserInputError

_AGE = re.compile(r"([0-9]{1,6})\s*([hdw])\Z", re.ASCII)
_SECONDS = {"h": 3600, "d": 86400, "w": 7 * 86400}


def parse_memory(text: str, *, least: int = 8 << 20, most: int = 1 << 40) -> int:
    """`256M`, `1g`, `64` (MiB), `134217728b` → bytes. Raises UserInputError for what is no size, or none for a
    machine."""
    size = notation.parse_size(text)
    if size is None:
        raise UserInputError(f"'{text[:40]}' is no amount of memory", hint="write it as 256M or 1G")
    if not least <= size <= most:
        raise UserInputError(
            f"a machine cannot have '{text}' of memory",
            hint=f"from {notation.size_text(least)} to {notation.size_text(most)}",
        )
    return size


def parse_age(text: str) -> float:
    """`12h`, `30d`, `4w` → seconds. Raises UserInputError for what is no such time."""
    match = _AGE.match(text.strip())
    if match is None:
        raise UserInputError(f"'{text[:40]}' is no age", hint="write it as 12h, 30d or 4w")
    return float(int(match.group(1)) * _SECONDS[match.group(2)])


def parse_room(text: str) -> int:
    """`0`, `500M`, `20G` → bytes. Raises UserInputError for what is no size."""
    size = 0 if text.strip() == "0" else notation.parse_size(text, needs_unit=True)
    if size is None:
        raise UserInputError(f"'{text[:40]}' is no size", hint="write it as 500M or 20G")
    return size


def parse_image_size(text: str) -> int:
    """`16G`, `500M`, `1T` → bytes. Raises UserInputError for what is no size, or no size for an image."""
    size = notation.parse_size(text, needs_unit=True)
    if size is None:
        raise UserInputError(f"'{text[:40]}' is no size of an image", hint="write it as 500M, 32G or 1T")
    if not 1 << 20 <= size <= 1 << 44:
        raise UserInputError(f"an image cannot have a size of '{text}'", hint="from 1M to 16T")
    return size
