# SPDX-License-Identifier: Apache-2.0
"""QEMU's sets of inherited descriptors: it opens a file by the path of a set, and takes the descriptor that fits."""

from __future__ import annotations


def add(descriptor: int, number: int) -> tuple[str, str]:
    """Return the words that put a descriptor into the set of a number."""
    return "-add-fd", f"fd={descriptor},set={number}"


def path(number: int) -> str:
    """Return the path by which QEMU opens the set of a number."""
    return f"/dev/fdset/{number}"
