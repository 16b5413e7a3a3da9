# SPDX-License-Identifier: Apache-2.0
"""`vmtailor analyze`: logs and charts of one boot → where its time went, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from vmtailor.analysis.timeline.boot_json import json_chunks, to_csv, trace_events
from vmtailor.analysis.timeline.boot_page import boot_page
from vmtailor.analysis.timeline.boot_timeline import analyze as analyze_files
from vmtailor.base import output as printed
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import regular_files
from vmtailor.base.text import encodable
from vmtailor.cli.tables.timeline_table import show_timeline
from vmtailor.model.option import Option
from vmtailor.model.option_rows import JSON, PAGE_OUT, TOP


def analyze(
    files: Annotated[
        Sequence[Path],
        Option(
            name="FILES", type=Path, many=True,
            help="Read logs and charts of one boot: kernel log, journal, systemd-analyze, bootchart, ftrace, .config; "
            "folders, compressed files and - too.",
        ),
    ],
    json: Annotated[bool, JSON] = False,
    csv: Annotated[bool, Option(name="--csv", type=bool, help="Print every item as a row of CSV.")] = False,
    trace: Annotated[
        Path | None,
        Option(name="--trace", type=Path, help="Write Chrome trace events, which open in Perfetto, to this file."),
    ] = None,
    out: Annotated[Path | None, PAGE_OUT] = None,
    top: Annotated[int, replace(TOP, help="Print so many hot spots.")] = 20,
    boot: Annotated[
        int,
        Option(
            name="--boot", type=int, least=0,
            help="Take this boot of a log that holds several: 1 the first, 0 the last.",
        ),
    ] = 0,
) -> None:  # fmt: skip
    """Show where the time of a boot went: phases, hot spots, and the changes that would help."""
    if json and csv:
        raise UserInputError("--json and --csv exclude each other", hint="give one of them")
    timeline = analyze_files(files, boot, needs_log=True)
    if out is not None:
        regular_files.write_output(out, boot_page(timeline, _title(files)).encode())
        printed.note(f"written: {out}")
    if trace is not None:
        regular_files.write_output(trace, trace_events(timeline))
        printed.note(f"written: {trace} (open it at ui.perfetto.dev or in chrome://tracing)")
    if json:
        printed.json_bytes(json_chunks(timeline))
    elif csv:
        printed.lines(to_csv(timeline))
    else:
        show_timeline(timeline, top)


def _title(files: Sequence[Path]) -> str:
    return encodable(files[0].name) + (f" and {len(files) - 1} more" if len(files) > 1 else "")
