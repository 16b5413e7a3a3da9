# SPDX-License-Identifier: Apache-2.0
"""`vmtailor report`: the HTML page again, from saved records."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from vmtailor.cli.saved import load_run
from vmtailor.stages.report import PAGE, fit_document, show, write_page


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
        typer.echo(json_module.dumps(fit_document(found), indent=1, ensure_ascii=False))
        return
    path = output or folder / PAGE
    write_page(found, path)
    show(found, Console(highlight=False))
    typer.echo(f"\nwritten: {path}", err=True)
