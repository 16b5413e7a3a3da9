# SPDX-License-Identifier: Apache-2.0
"""JSON that somebody else wrote."""

from __future__ import annotations

import math
from typing import Any

import msgspec


def decoded(data: bytes | str) -> Any | None:
    """What the text says; None where it is no JSON, no UTF-8, or nested deeper than can be read."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def finite(value: object) -> float | None:
    """A number in it; None where it is none, or beyond what a float can be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None
