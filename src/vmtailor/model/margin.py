# SPDX-License-Identifier: Apache-2.0
"""Margins: what is kept beyond what was demanded, chosen by the user, with its price."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Margin(StrEnum):
    """`reachable`: what the image could ask for. `server`: what servers usually need. `data/margins` lists what
    a margin keeps for every image. No margin at all is the empty set, which the command line calls `none`."""

    REACHABLE = "reachable"
    SERVER = "server"


#: Every choice of margins, the smallest first.
CHOICES: tuple[tuple[Margin, ...], ...] = ((), (Margin.REACHABLE,), (Margin.SERVER,), (Margin.REACHABLE, Margin.SERVER))
NONE = "none"


def label(margins: tuple[Margin, ...]) -> str:
    """Return a choice as the command line writes it: `none`, `reachable+server`."""
    return "+".join(margin.value for margin in margins) or NONE


@dataclass(frozen=True)
class MarginPrice:
    """The price of one choice of margins, from a kernel that was compiled. `margins` is empty for `none`. Instructions
    are from kernel entry to init, net. `calls` counts the system calls of the processor's table that the kernel has. A
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
