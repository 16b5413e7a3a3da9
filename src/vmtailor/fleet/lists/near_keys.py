# SPDX-License-Identifier: Apache-2.0
"""Words about keys that are not known."""

from __future__ import annotations

from collections.abc import Iterable

from vmtailor.base import near_names
from vmtailor.base.text import plain

_MOST = 3


def unknown(found: Iterable[str], known: Iterable[str]) -> str:
    """Return `has a key that is not known, imagee: did you mean image?` for the keys of a table."""
    names = list(known)
    strange = sorted(str(one) for one in found if one not in names)
    named = ", ".join(plain(one)[:60] for one in strange[:_MOST])
    question = near_names.asked(strange[0], names) if len(strange) == 1 else ""
    many = "keys that are not known" if len(strange) > 1 else "a key that is not known"
    return f"has {many}, {named}{f': {question}' if question else ''}"
