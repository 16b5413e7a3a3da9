# SPDX-License-Identifier: Apache-2.0
"""Cells of machines on the instruction clock, which are never set beside those of the wall clock."""

from __future__ import annotations

#: How a test is run whose figures are counts: the variant that names it.
CLOCK = "instruction clock"
#: How instances at once are run within a machine: their rates are of its virtual time, and nobody's seconds.
VIRTUAL = "our set, 1 copy, virtual time"


def is_counted(variant: str) -> bool:
    """Whether a variant's figures are of the instruction clock: a busy host does not sway them."""
    return variant in (CLOCK, VIRTUAL)
