# SPDX-License-Identifier: Apache-2.0
"""`vmtailor report`: the HTML page again, from saved records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from vmtailor.base import output as printed
from vmtailor.base.errors import UserInputError
from vmtailor.cli.fit_record import later_verdicts, load_run, words_of
from vmtailor.model.bundle import PAGE
from vmtailor.model.option import Option
from vmtailor.model.option_rows import JSON, PAGE_OUT
from vmtailor.pipeline import bundle_reference
from vmtailor.stages.report import show, summary, write_page


def report(
    run: Annotated[Path, Option(name="RUN", type=Path, help="Report this bundle, or the run.json in it.")],
    out: Annotated[
        Path | None, replace(PAGE_OUT, help=f"Write the page to this file. Default: {PAGE} in the bundle.")
    ] = None,
    markdown: Annotated[
        bool, Option(name="--markdown", type=bool, help="Print a summary in Markdown, and write no page.")
    ] = False,
    against: Annotated[
        Path | None,
        Option(name="--against", type=Path, help="With --markdown, show the difference to this bundle or run.json."),
    ] = None,
    json: Annotated[bool, replace(JSON, help="Print the document of fit --json, and write no page.")] = False,
) -> None:
    """Write the HTML page of a fit again, and print its tables."""
    run = bundle_reference.local(run)
    found, folder = load_run(run)
    found = replace(found, bundle=str(folder.absolute()))  # a record names the folder in which it was written
    if against is not None and not markdown:
        raise UserInputError("--against is for the summary", hint="add --markdown")
    if markdown:
        former = load_run(bundle_reference.local(against))[0] if against is not None else None
        printed.lines(summary(found, former))
        return
    later = later_verdicts(run)
    if json:
        show(found, json=True, later=later)
        return
    path = out or folder / PAGE
    write_page(found, path, words_of(run), later)
    show(found, verbose=True, later=later)
    printed.note(f"written: {path}")
