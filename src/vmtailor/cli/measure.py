# SPDX-License-Identifier: Apache-2.0
"""`vmtailor measure`: both machines of a bundle or a work folder, on both clocks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from vmtailor.base import output
from vmtailor.cli.options import common
from vmtailor.pipeline import second_measure, work_stages
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.work_files import is_work_folder
from vmtailor.stages import report


def measure(
    folder: Annotated[Path, typer.Argument(help="A bundle that `fit` wrote, or a work folder.")],
    boots: Annotated[int, typer.Option(min=1, max=100, help="Boots of each side on the instruction clock.")] = 3,
    source: common.SourceOption = None,
    json: common.JsonOption = False,
) -> None:
    """Measure both machines of a bundle or a work folder, the baseline and the tailored one, and print the figures.
    What was measured before of the same bytes is found again. In a work folder the figures are kept."""
    asked = FitOptions(reference=str(folder), out=folder, boots=boots, source=source)
    found = work_stages.measure(folder, asked) if is_work_folder(folder) else second_measure.measure(folder, asked)
    if json:
        output.document({"schema": found.SCHEMA, **msgspec.to_builtins(found)})
    else:
        report.show_figures(found)
