# SPDX-License-Identifier: Apache-2.0
"""Margins: what is kept beyond what was demanded, chosen by the user, with its price."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from vmtailor.model.reach import Nearness


class Margin(StrEnum):
    """`reachable`: what the image could ask for. `server`: what servers usually need (data/margins/server.toml).
    No margin at all is the empty set, which the command line calls `none`."""

    REACHABLE = "reachable"
    SERVER = "server"


#: Every choice of margins, the smallest first.
CHOICES: tuple[tuple[Margin, ...], ...] = ((), (Margin.REACHABLE,), (Margin.SERVER,), (Margin.REACHABLE, Margin.SERVER))
NONE = "none"


def label(margins: tuple[Margin, ...]) -> str:
    """A choice as the command line writes it: `none`, `reachable+server`."""
    return "+".join(margin.value for margin in margins) or NONE


@dataclass(frozen=True)
class MarginPrice:
    """What one choice of margins costs, from a kernel that was compiled. `margins` is empty for `none`. Instructions
    are from kernel entry to init, net; `calls` is how many system calls of the processor's table the kernel has. A
    figure that was not taken is None, and `note` says why in a line."""

    margins: tuple[Margin, ...]
    symbols_prompted: int
    symbols_y: int
    calls: int
    kernel_bytes: int | None = None
    init_instructions_net: int | None = None
    min_memory_bytes: int | None = None
    chosen: bool = False
    note: str = ""


@dataclass(frozen=True)
class Lack:
    """A symbol that a kernel has not, and what the image could ask for that needs it. `symbol` is the one to keep,
    `symbols` all that the asks need and are not there. `keys` are system calls, families, paths, the nearest first;
    `files` those that ask, the nearest first. Both are cut short: `more_keys` and `more_files` are not named.
    `to_init` is what the symbols cost the baseline on its way to init, in instructions; None where none of them ran."""

    symbol: str
    symbols: tuple[str, ...]
    nearness: Nearness
    keys: tuple[str, ...]
    files: tuple[str, ...]
    text: str
    more_keys: int = 0
    more_files: int = 0
    to_init: int | None = None


@dataclass(frozen=True)
class KernelUse:
    """An image that a kernel serves, and the margins it was fitted with."""

    reference: str
    digest: str
    margins: tuple[Margin, ...]


@dataclass(frozen=True)
class KernelUses:
    """Beside a kernel in the cache: what it is, and the images that it serves, the one it was made for first. Of many
    only the first and the last are named; `more` are not."""

    SCHEMA: ClassVar[str] = "vmtailor/kernel-uses/1"

    version: str
    architecture: str
    symbols_prompted: int
    symbols_y: int
    kernel_bytes: int
    images: tuple[KernelUse, ...] = ()
    more: int = 0


@dataclass(frozen=True)
class FoundKernel:
    """Where a fit's kernel came from: compiled for it, or found in the cache. `made_for` is the image that it was made
    for, empty where that is not known; `serves` how many images it serves, this one included."""

    cached: bool
    made_for: str
    serves: int
    digest: str
