# SPDX-License-Identifier: Apache-2.0
"""Results that are there: shown, merged, compared, exported. None of this needs root."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vmtailor.base import output as printed
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records, regular_files
from vmtailor.base.files.records import to_bytes
from vmtailor.base.text import plain
from vmtailor.bench.analysis import scenarios
from vmtailor.bench.analysis.host_runs import Compared, compared, image_of, merged, pairs
from vmtailor.bench.analysis.samples_csv import csv_of
from vmtailor.bench.analysis.weighted_ranks import advise as analyse
from vmtailor.bench.analysis.weighted_ranks import parse_weights, require_measured
from vmtailor.bench.cli.result_tables import show, show_advice, show_compared, show_scenarios
from vmtailor.bench.model.results import BenchResults, HostRun
from vmtailor.bench.pages.bench_page import bench_page
from vmtailor.bench.pages.published_tables import data_n_page, published_page


def load(files: Sequence[Path]) -> BenchResults:
    """Return the results of all files, merged. Raises UserInputError."""
    if not files:
        raise UserInputError("no results were named", hint="vmtailor bench report bench.json")
    return merged([records.load(BenchResults, file) for file in files])


def report(files: Sequence[Path], out: Path | None, csv: Path | None, *, json: bool) -> None:
    """Show results as tables, page, CSV or JSON."""
    found = load(files)
    if out is not None:
        _write(out, bench_page(found))
    if csv is not None:
        write_csv(found, csv)
    if json:
        printed.json_bytes([to_bytes(found)])
    elif out is None and csv is None:
        show(found)


def published(files: Sequence[Path], out: Path | None) -> None:
    """Write the results of the published protocols as a Markdown page. Raises UserInputError."""
    _write_page(
        files, out, published_page, "these results are from --quick: published tables need a full measurement",
        hint="make bench-published, or a part of it: vmtailor bench SUITE --on RUNTIME,… without --quick",
    )  # fmt: skip


def data_n(files: Sequence[Path], out: Path | None) -> None:
    """Write the results of instances at once within a machine, beside the published work, as a Markdown page. Raises
    UserInputError."""
    _write_page(
        files, out, data_n_page, "these results have no instances at once within a machine",
        hint="vmtailor bench unixbench --inside vm:DISK --on native,podman --n 0,1,2,3,4",
    )  # fmt: skip


def _write_page(
    files: Sequence[Path], out: Path | None, page_of: Callable[[BenchResults, Sequence[str]], str], lacking: str,
    *, hint: str,
) -> None:  # fmt: skip
    """Write a page to a file or the terminal. Raises UserInputError, with `lacking` and `hint`, when it is empty."""
    page = page_of(load(files), [plain(str(file)) for file in files])
    if not page:
        raise UserInputError(lacking, hint=hint)
    if out is None:
        printed.lines(page)
    else:
        _write(out, page)


def compare(files: Sequence[Path], *, json: bool) -> None:
    """Compare two files, run by run and cell by cell; or the runs of a merged one."""
    if len(files) not in (1, 2):
        raise UserInputError(
            "compare takes two files of results, or one that has several runs",
            hint="vmtailor bench compare BEFORE.json AFTER.json",
        )
    loaded = [records.load(BenchResults, file) for file in files]
    found, not_compared = pairs(loaded[0], loaded[1] if len(loaded) > 1 else None)
    if json:
        printed.document(
            {
                "schema": "vmtailor/bench-compare/2",
                "pairs": [
                    {
                        "before": one.before.host.id,
                        "after": one.after.host.id,
                        "other_image": one.other_image,
                        "images": [image_of(run) for run in (one.before, one.after)],
                        "cells": [_document(cell) for cell in compared(one.before, one.after)],
                    }
                    for one in found
                ],
                "not_compared": not_compared,
            }
        )
        return
    for one in found:
        show_compared(one, compared(one.before, one.after))
    for text in not_compared:
        printed.note(f"! not compared: {text}")


def _document(one: Compared) -> dict[str, Any]:
    medians = [c.summary.median if c is not None and c.summary is not None else None for c in (one.before, one.after)]
    change = None if one.change is None else msgspec.to_builtins(one.change)
    return {"cell": msgspec.to_builtins(one.key), "before": medians[0], "after": medians[1], "change": change}


def advise(files: Sequence[Path], weights: str | None, among: Sequence[str], *, json: bool) -> None:
    """Rank the runtimes of each host's run by weights; without weights, say in words what the figures speak for in
    six uses. `among`: only these; empty: all."""
    runs = load(files).runs
    if weights is None:
        return _in_words(runs, among, json=json)
    asked = parse_weights(weights)
    require_measured(runs, among)
    found = [(run, analyse(run, asked, among)) for run in runs]
    if json:
        rows = [{"host": run.host.id, "quick": run.quick, **msgspec.to_builtins(one)} for run, one in found]
        printed.document({"schema": "vmtailor/bench-advice/2", "weights": asked, "runs": rows})
    else:
        for run, one in found:
            show_advice(run, one, asked)


def _in_words(runs: Sequence[HostRun], among: Sequence[str], *, json: bool) -> None:
    found = [(run, scenarios.advise(run, among)) for run in runs]
    if json:
        rows = [
            {
                "host": run.host.id,
                "quick": run.quick,
                "scenarios": [
                    {"name": one.scenario.name, "chosen": one.chosen, "sentences": one.sentences} for one in advice
                ],
            }
            for run, advice in found
        ]
        printed.document({"schema": "vmtailor/bench-scenarios/1", "runs": rows})
        return
    for run, advice in found:
        show_scenarios(run, advice)


def write_csv(found: BenchResults, file: Path) -> None:
    """Write every sample, one a line."""
    _write(file, csv_of(found))


def _write(file: Path, text: str) -> None:
    regular_files.write_output(file, text.encode())
    printed.note(f"written: {file}")
