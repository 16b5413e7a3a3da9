# SPDX-License-Identifier: Apache-2.0
"""Results that are there: shown, merged, compared, exported. None of it needs root."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vmtailor.analysis.bench.export import csv_of
from vmtailor.analysis.bench.merging import merged
from vmtailor.base import output as printed
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.files.records import to_bytes, write_atomic
from vmtailor.cli.bench.tables import show
from vmtailor.model.bench.results import BenchResults


def load(files: Sequence[Path]) -> BenchResults:
    """Results of all files, merged. Raises UserInputError."""
    if not files:
        raise UserInputError("no results were named", hint="vmtailor bench report bench.json")
    return merged([records.load(BenchResults, file) for file in files])


def read_results(what: str, files: Sequence[Path], out: Path | None, csv: Path | None, *, json: bool) -> None:
    """`report` and `compare`."""
    found = load(files)
    if csv is not None:
        write_csv(found, csv)
    if json:
        printed.json_bytes([to_bytes(found)])
    else:
        show(found)


def write_csv(found: BenchResults, file: Path) -> None:
    """Every sample, one a line."""
    write_atomic(file, csv_of(found).encode())
    printed.note(f"written: {file}")
