# SPDX-License-Identifier: Apache-2.0
"""`vmtailor analyze`: logs and charts of one boot → where its time went, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vmtailor.analysis.timeline.boot_json import json_chunks, to_csv, trace_events
from vmtailor.analysis.timeline.boot_page import boot_page
from vmtailor.analysis.timeline.boot_timeline import analyze as analyze_files
from vmtailor.base import output as printed
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import regular_files
from vmtailor.base.text import encodable
from vmtailor.cli.tables.timeline_table import show_timeline


def analyze(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Logs and charts of one boot, any mixture: kernel log, journal, serial capture, systemd-analyze, "
            "bootchart, ftrace, cloud-init analyze, .config, System.map. Recognised by content; folders, compressed "
            "files and - (standard input) too.",
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print everything as one JSON document.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print every item as a row of CSV.")] = False,
    trace: Annotated[
        Path | None, typer.Option("--trace", help="Write Chrome trace events, which open in Perfetto, to this file.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the page (one HTML file) here.")] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many hot spots to print.")] = 20,
    boot: Annotated[
        int, typer.Option("--boot", min=0, help="Which boot, where a log holds several: 1 the first, 0 the last.")
    ] = 0,
) -> None:
    """Show where the time of a boot went: phases, hot spots, and the changes that would help."""
    if json and csv:
        raise UserInputError("--json and --csv exclude each other", hint="give one of them")
    timeline = analyze_files(files, boot, needs_log=True)
    if output is not None:
        regular_files.write_output(output, boot_page(timeline, _title(files)).encode())
        printed.note(f"written: {output}")
    if trace is not None:
        regular_files.write_output(trace, trace_events(timeline))
        printed.note(f"written: {trace} (open it at ui.perfetto.dev or in chrome://tracing)")
    if json:
        printed.json_bytes(json_chunks(timeline))
    elif csv:
        printed.lines(to_csv(timeline))
    else:
        show_timeline(timeline, top)


def _title(files: list[Path]) -> str:
    return encodable(files[0].name) + (f" and {len(files) - 1} more" if len(files) > 1 else "")
