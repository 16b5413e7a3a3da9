# SPDX-License-Identifier: Apache-2.0
"""Where a machine's memory goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryPart:
    """One part, in bytes; `what` says what it is."""

    name: str
    bytes: int
    what: str


@dataclass(frozen=True)
class MemoryUse:
    """A machine's memory, after its load: the parts add up to `machine_bytes`."""

    machine_bytes: int
    parts: tuple[MemoryPart, ...]
