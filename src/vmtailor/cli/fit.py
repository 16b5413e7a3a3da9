# SPDX-License-Identifier: Apache-2.0
"""`vmtailor fit`: the main job, from an image to a proven bundle and its report."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from vmtailor.base import output
from vmtailor.base.errors import AnswerNo, UserInputError
from vmtailor.base.text import plural
from vmtailor.model.option_rows import JSON, REMOTE_CACHE, VERBOSE
from vmtailor.model.systems.units import UnitsMode, UnitStanding
from vmtailor.pipeline import shared_results
from vmtailor.pipeline.fit import run_fit
from vmtailor.pipeline.options import FitOptions
from vmtailor.stages import report as report_stage


def fit(
    asked: FitOptions,
    remote_cache: Annotated[str, REMOTE_CACHE] = "",
    json: Annotated[bool, JSON] = False,
    verbose: Annotated[bool, VERBOSE] = False,
) -> None:
    """Make the machine that fits an image, or a system on a disk: trace, plan, build, verify, measure, report."""
    shared_results.begin(remote_cache)
    if asked.units is UnitsMode.ASK and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserInputError("--units ask needs a terminal to ask at", hint="--units trim tries all of them")
    result = run_fit(asked, _may_be_masked)
    report_stage.show(result, json=json, verbose=verbose)
    if not result.verified:
        what = "container" if result.system is None else "system"
        raise AnswerNo(
            f"the {what} does not work in the tailored machine",
            hint=f"{asked.out}/report.html has every trial; --keep NAME keeps a symbol, --budget N allows more trials",
        )


def _may_be_masked(units: Sequence[UnitStanding]) -> bool:
    """List the units that nobody wanted, and ask whether they are to be tried."""
    for one in units:
        output.note(f"  {one.name}" + (f", started in {one.start_s:.3f} s" if one.start_s is not None else ""))
    what = plural(len(units), "unit", "units")
    return bool(units) and typer.confirm(f"Try to mask {what} that nothing in the exercise wants?", err=True)
