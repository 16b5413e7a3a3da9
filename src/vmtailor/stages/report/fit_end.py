# SPDX-License-Identifier: Apache-2.0
"""The end of `fit`, `refit`, `report` and `measure`: the verdict, four figures, and the commands that come next."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from vmtailor.base.terminal import Text
from vmtailor.base.text import plural
from vmtailor.base.verb_end import EndFigure, EndVerdict, NextCommand, VerbEnd, VerdictMark
from vmtailor.model.bundle import PAGE
from vmtailor.model.change import Cause
from vmtailor.model.exercise import Proof
from vmtailor.model.fit_run import FitRun
from vmtailor.stages.report.figure_rows import MeasuredSides, groups, spread

#: The figures of an end and their titles, the first first. A figure of the wall clock stands in for the first where it
#: is missing.
HEADLINES = {
    "init_instructions_net": "instructions to init, net",
    "ready_wall_us": "start → ready",
    "init_wall_us": "start → init",
    "kernel_bytes": "kernel file",
    "min_memory_bytes": "least memory",
    "symbols_prompted": "symbols with a prompt",
}
_TIMES = ("init_instructions_net", "ready_wall_us", "init_wall_us")


def of_fit(run: FitRun, notes: Sequence[Text], *, verbose: bool) -> VerbEnd:
    """Return the end of a fit. `notes`: its doubts."""
    return VerbEnd(
        verdict=verdict(run),
        figures=headlines(run) if run.verified else (),
        notes=notes,
        more="in the report",
        files=(("report", f"{near(run.bundle)}/{PAGE}"),),
        commands=_commands(run, verbose=verbose),
    )


def near(path: str) -> str:
    """Return a path as it is typed in this folder: relative where it lies below, else as it is."""
    with contextlib.suppress(ValueError, OSError):
        path = str(Path(path).relative_to(Path.cwd()))
    return f"./{path}" if path.startswith(("-", "~")) else path


def of_measure(pair: MeasuredSides, folder: str, *, verbose: bool) -> VerbEnd:
    """Return the end of `measure`."""
    all_figures = NextCommand("Print all figures", ("vmtailor", "measure", folder, "--verbose"))
    boots = plural(pair.tailored.boots, "boot")
    return VerbEnd(
        verdict=EndVerdict(VerdictMark.GOOD, "measured", f"{boots} a side, {spread(pair)}"),
        figures=headlines(pair),
        commands=() if verbose else (all_figures,),
    )


def headlines(run: MeasuredSides) -> tuple[EndFigure, ...]:
    """Return the figures of HEADLINES that both sides have; of times the first."""
    rows = {row.name: row for group in groups(run) for row in group.rows if None not in row.exact}
    time = next((name for name in _TIMES if name in rows), None)
    shown = [name for name in HEADLINES if name in rows and (name == time or name not in _TIMES)]
    return tuple(
        EndFigure(HEADLINES[name], row.baseline, row.tailored, row.ratio)
        for name, row in ((name, rows[name]) for name in shown)
    )


def verdict(run: FitRun) -> EndVerdict:
    """Return what a fit proved."""
    if not run.verified:
        return EndVerdict(
            VerdictMark.BAD, "not verified", f"{run.reference} does not work yet in the machine that was built"
        )
    if run.degraded:
        words = "the answers are right, but calls fail that worked on the baseline"
        return EndVerdict(VerdictMark.DOUBTFUL, f"{run.proof.headline}, degraded", words)
    worked = run.proof in (Proof.LOAD, Proof.ENDED)
    does = "works" if worked else "starts"
    words = f"{run.reference} {does} in its own machine as it did on the baseline"
    return EndVerdict(mark_of(run.proof), run.proof.headline, words)


def mark_of(proof: Proof) -> VerdictMark:
    """Return the mark of a verification that passed: a tick only where something was asked, or ran to its end."""
    return VerdictMark.GOOD if proof in (Proof.LOAD, Proof.ENDED) else VerdictMark.DOUBTFUL


def _commands(run: FitRun, *, verbose: bool) -> list[NextCommand]:
    bundle = near(run.bundle)
    tables = [] if verbose else [NextCommand("Print every table and trial", ("vmtailor", "report", bundle))]
    if not run.verified:
        return tables
    port = next(iter(run.tcp_ports), None)
    publish = ("-p", f"{port + 8000 if port < 1024 else port}:{port}") if port else ()
    demanded = (
        c.id for c in run.plan.symbols if c.setting.chosen and any(r.cause is Cause.DEMANDED for r in c.reasons)
    )
    symbol = next(demanded, "EPOLL")
    start = "Start the container in its machine" if run.system is None else "Start the system in its machine"
    again = NextCommand("Verify it on another host", ("vmtailor", "verify", bundle, "--clock", "wall"))
    return [
        NextCommand(start, ("vmtailor", "run", *publish, bundle)),
        *tables,
        NextCommand("See why a symbol is in, or out", ("vmtailor", "explain", bundle, symbol)),
        *([again] if run.system is None else []),
    ]
