# SPDX-License-Identifier: Apache-2.0
"""The record of a fit as one HTML file that opens offline."""

from __future__ import annotations

from pathlib import Path

from vmtailor.analysis.changes.plan_summary import MEANING, ORDER, counts
from vmtailor.base import figures, pages
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.model.boots.boot import Phase
from vmtailor.model.exercise import Proof
from vmtailor.model.fit import FitRun
from vmtailor.stages.report import margins, memory, timeline, tuned, views, waterfall
from vmtailor.stages.report.document import fit_document, repairs
from vmtailor.stages.report.figures import groups


def page(run: FitRun) -> str:
    """The page. The document of `fit --json` is in it too, under `fit` in the element `#data`."""
    before, after = ({phase.phase: phase for phase in side.phases} for side in (run.baseline, run.tailored))
    found = counts(run.plan.symbols)
    down = waterfall.of(run)
    return pages.render(
        "report.html",
        styles=("report.css",),
        scripts=("report.js",),
        data={"fit": fit_document(run), **views.table_data(run)},
        values={
            "run": run,
            "name": views.subject_name(run),
            "measures": views.measures(run),
            "groups": groups(run),
            "picture": timeline.picture(run.baseline, run.tailored),
            "memory": memory.picture(run.baseline, run.tailored),
            "phase_meaning": timeline.MEANING,
            "phases": [(phase, before.get(phase), after.get(phase)) for phase in Phase],
            "phase_cost": timeline.cost,
            "waterfall": down,
            "bars": waterfall.bars(down) if down is not None else (),
            "named": waterfall.named,
            "signed": waterfall.signed,
            "remainder": waterfall.REMAINDER,
            "costs": views.cost_lists(run),
            "causes": [(cause, number, MEANING[cause]) for cause, number in found.items()],
            "cause_order": ORDER,
            "kept": sum(found.values()),
            "repairs": repairs(run),
            "worked": run.proof in (Proof.LOAD, Proof.ENDED),
            "margin_line": margins.price_line(run),
            "kernel_line": margins.kernel_line(run.found_kernel) if run.found_kernel is not None else "",
            "price_heads": margins.HEADS,
            "prices": margins.price_rows(run),
            "lacks": [(lack, margins.lack_line(lack)) for lack in run.lacks],
            "tuned": tuple(tuned.rows(run)),
            "tuned_meaning": tuned.MEANING,
            "percent": figures.percent,
            "ratio": figures.ratio,
        },
    )


def write_page(run: FitRun, path: Path) -> None:
    """Write the page to a file, whole or not at all."""
    write_atomic(path, page(run).encode())
