# SPDX-License-Identifier: Apache-2.0
"""Cells of machines on the instruction clock, which are never set beside those of the wall clock."""

from __future__ import annotations

#: How a test is run whose figures are counts: the variant that names it.
CLOCK = "instruction clock"
