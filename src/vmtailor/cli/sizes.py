# SPDX-License-Identifier: Apache-2.0
"""Sizes as people write them, held against what can be."""

from __future__ import annotations

from vmtailor.base import sizes
from vmtailor.base.errors import UserInputError


def parse_memory(text: str, *, least: int = 8 << 20, most: int = 1 << 40) -> int:
    """`256M`, `1g`, `64` (MiB), `134217728b` → bytes. Raises UserInputError for what is no size, or none for a
    machine."""
    size = sizes.parse(text)
    if size is None:
        raise UserInputError(f"'{text[:40]}' is no amount of memory", hint="write it as 256M or 1G")
    if not least <= size <= most:
        raise UserInputError(
            f"a machine cannot have '{text}' of memory", hint=f"from {sizes.text(least)} to {sizes.text(most)}"
        )
    return size


def parse_image_size(text: str) -> int:
    """`16G`, `500M`, `1T` → bytes. Raises UserInputError for what is no size, or no size for an image."""
    size = sizes.parse(text, needs_unit=True)
    if size is None:
        raise UserInputError(f"'{text[:40]}' is no size of an image", hint="write it as 500M, 32G or 1T")
    if not 1 << 20 <= size <= 1 << 44:
        raise UserInputError(f"an image cannot have a size of '{text}'", hint="from 1M to 16T")
    return size
