# SPDX-License-Identifier: Apache-2.0
"""`vmtailor report`: the HTML page again, from saved records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vmtailor.base import output as printed
from vmtailor.cli.fit_record import load_run
from vmtailor.model.bundle import PAGE
from vmtailor.stages.report import show, write_page


def report(
    run: Annotated[Path, typer.Argument(help="A bundle, or the run.json in it.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help=f"Where to write the page. Default: {PAGE} in the bundle.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the document of fit --json, and write no page.")] = False,
) -> None:
    """Write the HTML page of a fit again, and print its tables."""
    found, folder = load_run(run)
    if json:
        show(found, json=True)
        return
    path = output or folder / PAGE
    write_page(found, path)
    show(found)
    printed.note("")
    printed.note(f"written: {path}")
