# SPDX-License-Identifier: Apache-2.0
"""What the TCG plugin is to mark in a boot: addresses of code."""

from __future__ import annotations

from dataclasses import dataclass

#: The mark where the kernel proper begins.
START_KERNEL = "start_kernel"


@dataclass(frozen=True)
class CodeMark:
    """A phase ends and the next begins just before the instruction at `address` runs: the first or `every` time."""

    name: str
    address: int
    every: bool = False


@dataclass(frozen=True)
class CodeSpan:
    """The totals are noted whenever the instruction at `address` is reached."""

    name: str
    address: int
