# SPDX-License-Identifier: Apache-2.0
"""The parts of a fit, each of which may be done on a host of its own."""

from __future__ import annotations

from enum import StrEnum


class FitPart(StrEnum):
    """The parts of a fit, in an order in which they can be done."""

    PREPARE = "prepare"
    TRACE = "trace"
    BASELINE = "baseline"
    PLAN = "plan"
    KERNEL = "kernel"
    VERIFY = "verify"
    MEASURE = "measure"
    SEAL = "seal"
