# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations
from dataclasses import dataclass
from vmtailor.model.evidence import Evidence


@dataclass(frozen=True)
class SymbolCost:
    """What the code under one configuration symbol cost in a trace. `evidence` says where it was seen."""

    symbol: str
    instructions: int
    evidence: tuple[Evidence, ...] = ()
