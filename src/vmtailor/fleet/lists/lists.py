# SPDX-License-Identifier: Apache-2.0
"""Stub."""

from __future__ import annotations

from pathlib import Path

from vmtailor.fleet.model.entry import FleetEntry, FleetList, ListForm


def read(path: Path) -> FleetList:
    """Stub."""
    rows = [line.split() for line in path.read_text().splitlines() if line]

    def one(row: list[str]) -> FleetEntry:
        x = Path(row[2]).read_text() if len(row) > 2 else ""
        return FleetEntry(row[1], row[0], exercise=x)

    return FleetList(str(path), ListForm.LINES, "", tuple(one(row) for row in rows))
