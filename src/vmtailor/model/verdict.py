# SPDX-License-Identifier: Apache-2.0
"""The verdict on a change: what its samples say."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNDECIDED = "undecided"
