# SPDX-License-Identifier: Apache-2.0
"""Which symbols of a configuration did not come out as they were asked for."""

from __future__ import annotations

from collections.abc import Mapping

from vmtailor.model.kernel import LostSymbol


def lost(wanted: Mapping[str, str], resolved: Mapping[str, str]) -> tuple[LostSymbol, ...]:
    """What did not resolve as requested, in the order requested. A symbol that .config does not name is `n`. What was
    to be a module and is built in, since something that is built in selects it, is there."""
    return tuple(
        LostSymbol(name, value, resolved.get(name, "n"))
        for name, value in wanted.items()
        if not _same(value, resolved.get(name, "n"))
    )


def _same(one: str, other: str) -> bool:
    if one == other or (one, other) == ("m", "y"):
        return True
    try:
        return int(one, 0) == int(other, 0)
    except ValueError:
        # An empty string and a string symbol that is out of sight are the same to the code.
        return {one, other} == {"", "n"}
