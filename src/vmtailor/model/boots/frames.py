# SPDX-License-Identifier: Apache-2.0
"""Where an instruction stands in the source, inlined functions included."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceFrame:
    """One function at an address. `file` is as the compiler noted it; unknown parts are empty, or line 0."""

    function: str
    file: str
    line: int


#: Innermost (inlined) function first; the last one is the function that stands in the symbol table.
SourceFrames = tuple[SourceFrame, ...]
