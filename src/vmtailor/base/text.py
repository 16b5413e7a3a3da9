# SPDX-License-Identifier: Apache-2.0
"""Untrusted text made fit for a terminal."""

from __future__ import annotations

from vmtailor.base.figures import NARROW_SPACE


def plain(text: str) -> str:
    """Text from an image or a guest on one line: control characters (so escape sequences) are shown, not obeyed."""
    return "".join(c if c.isprintable() or c == NARROW_SPACE else f"\\x{ord(c):02x}" for c in text)


def plural(number: int, one: str, many: str = "") -> str:
    """A number with its noun: `1 repair`, `2 repairs`."""
    return f"{number} {one if number == 1 else many or one + 's'}"
