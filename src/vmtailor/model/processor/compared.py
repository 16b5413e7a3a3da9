# SPDX-License-Identifier: Apache-2.0
"""One image on several processors, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Platform:
    """One bundle: what it is called, its processor, machine and kernel."""

    name: str
    architecture: str
    machine: str
    kernel_version: str
    verified: bool


@dataclass(frozen=True)
class PlatformFigure:
    """A figure of each platform's tailored machine, in their order; None where it could not be taken. `unit`:
    instructions, bytes, or empty for a number of things."""

    name: str
    unit: str
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class PlatformSymbol:
    """A symbol that some of the kernels have and others have not. `has`: for each platform, its value or None. `why`:
    its reason where it is, for a symbol that somebody chose."""

    symbol: str
    has: tuple[str | None, ...]
    why: str


@dataclass(frozen=True)
class ProcessorsCompared:
    """Bundles of several processors. `shared`: symbols that all of their kernels have. `differing`: those that only
    some have."""

    SCHEMA: ClassVar[str] = "vmtailor/processors-compared/1"

    platforms: tuple[Platform, ...]
    figures: tuple[PlatformFigure, ...]
    shared: int
    differing: tuple[PlatformSymbol, ...]
