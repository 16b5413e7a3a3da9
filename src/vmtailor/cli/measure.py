# SPDX-License-Identifier: Apache-2.0
"""`vmtailor measure`: measure both machines of a bundle or a work folder, on both clocks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec

from vmtailor.base import output
from vmtailor.base.text import plain
from vmtailor.model.option import Option
from vmtailor.model.option_rows import JSON, VERBOSE
from vmtailor.pipeline import bundle_reference, second_measure
from vmtailor.pipeline.options import FitOptions
from vmtailor.stages import report


def measure(
    folder: Annotated[
        Path, Option(name="FOLDER", type=Path, help="Measure this bundle that `fit` wrote, or this work folder.")
    ],
    options: FitOptions,
    json: Annotated[bool, JSON] = False,
    verbose: Annotated[bool, VERBOSE] = False,
) -> None:
    """Measure both machines of a bundle or a work folder, the baseline and the tailored one, and print the figures.
    Earlier results for the same bytes are reused. A work folder keeps the figures. For a system's bundle, the tailored
    machine is measured; the baseline's figures come from its fit."""
    folder = bundle_reference.local(folder)
    asked = replace(options, reference=str(folder), out=folder)
    found = second_measure.measure(folder, asked)
    if found.baseline_of:
        output.note(
            f"the baseline's figures are those of the fit (vmtailor {plain(found.baseline_of[:40])}): a system's "
            "bundle lacks the symbols of its own kernel"
        )
    if json:
        output.document({"schema": found.SCHEMA, **msgspec.to_builtins(found)})
    else:
        report.show_figures(found, str(folder), verbose=verbose)
