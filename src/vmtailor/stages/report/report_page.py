# SPDX-License-Identifier: Apache-2.0
"""Write the record of a fit as one HTML file that opens offline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmtailor.analysis.changes import machine_words
from vmtailor.analysis.changes.plan_summary import MEANING, ORDER, cause_of, counts
from vmtailor.analysis.guests import load_rows
from vmtailor.base import figures, pages
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.drivers.monitors import monitor_proof
from vmtailor.model.architecture import image_name
from vmtailor.model.boots.boot import Phase
from vmtailor.model.change import Figure
from vmtailor.model.exercise import Proof
from vmtailor.model.fit_run import FitRun, Side
from vmtailor.model.monitor_verdicts import MonitorVerdict
from vmtailor.stages.report import ledger_waterfall, load_pictures, margin_prices, pictures, tuned_changes
from vmtailor.stages.report.document import fit_document, repairs
from vmtailor.stages.report.figure_rows import groups

#: Rows of a list of costs; what follows is summed up in a last row.
MOST_ROWS = 18


@dataclass(frozen=True)
class Measure:
    """One line of the card at the top. Widths in percent of the larger side."""

    title: str
    baseline: str
    tailored: str
    ratio: str
    widths: tuple[float, float]


@dataclass(frozen=True)
class CostRow:
    """One name with its cost on both sides; shares in percent of that side's whole."""

    name: str
    costs: tuple[int | None, int | None]
    shares: tuple[float, float]


@dataclass(frozen=True)
class CostList:
    """One tab: the instructions of both sides by name."""

    key: str
    title: str
    note: str
    totals: tuple[int, int]
    rows: tuple[CostRow, ...]


def subject_name(run: FitRun) -> str:
    """Return the short name of the subject: `docker://host/library/nginx:1.25` → `nginx:1.25`."""
    tail = run.reference.rstrip("/").rsplit("/", 1)[-1]
    return tail.split(":", 1)[1] if "/" not in run.reference and ":" in tail else tail or run.reference


def measures(run: FitRun) -> tuple[Measure, ...]:
    """Return the card at the top: five figures, each of them with its exact counterpart in the tables below."""
    table: tuple[tuple[str, Callable[[Side], float | None], Callable[[float | None], str]], ...] = (
        ("Instructions to init, net", lambda s: s.init_instructions_net, figures.millions),
        ("Kernel file", lambda s: s.kernel_bytes, figures.file_bytes),
        ("Symbols with a prompt", lambda s: s.symbols_prompted, figures.grouped),
        ("Least memory", lambda s: s.min_memory_bytes, figures.memory_bytes),
        ("Kernel instructions a request", lambda s: s.request_kernel_instructions, figures.short),
    )
    found = []
    for title, of, form in table:
        before, after = of(run.baseline), of(run.tailored)
        if before is None and after is None:
            continue
        most = max(before or 0, after or 0) or 1
        widths = (100 * (before or 0) / most, 100 * (after or 0) / most)
        found.append(
            Measure(
                title=title,
                baseline=form(before),
                tailored=form(after),
                ratio=figures.ratio(before, after),
                widths=widths,
            )
        )
    return tuple(found)


def cost_lists(run: FitRun) -> tuple[CostList, ...]:
    """Return the lists of instructions by folder of the source tree, initcall, symbol and function."""
    sides = (run.baseline, run.tailored)

    def functions(side: Side) -> Sequence[tuple[str, int]]:
        found: dict[str, int] = {}
        for row in side.functions:
            found[row.function] = found.get(row.function, 0) + row.instructions
        return sorted(found.items(), key=lambda item: -item[1])

    table = (
        (
            "subsystem",
            "Subsystem",
            "kernel entry to ready, by folder of the source tree",
            [s.subsystems for s in sides],
            None,
        ),
        (
            "initcall",
            "Initcall",
            "with what each one called; initcalls that wait for others may overlap",
            [s.initcalls for s in sides],
            [s.init_instructions for s in sides],
        ),
        (
            "symbol",
            "Symbol",
            "kernel entry to ready, by the configuration symbol that the code belongs to",
            [s.symbol_costs for s in sides],
            [s.ready_instructions for s in sides],
        ),
        (
            "function",
            "Function",
            "in the function itself, all phases; the most expensive ones were kept",
            [functions(s) for s in sides],
            [sum(p.kernel for p in s.phases) for s in sides],
        ),
    )
    found = []
    for key, title, note, costs, wholes in table:
        totals = [(whole or 0) if wholes else 0 for whole in (wholes or (0, 0))]
        totals = [total or sum(cost for _, cost in rows) for total, rows in zip(totals, costs, strict=True)]
        if costs[0] or costs[1]:
            rows = _cost_rows(dict(costs[0]), dict(costs[1]), (totals[0], totals[1]))
            found.append(CostList(key=key, title=title, note=note, totals=(totals[0], totals[1]), rows=rows))
    return tuple(found)


def _cost_rows(before: dict[str, int], after: dict[str, int], totals: tuple[int, int]) -> tuple[CostRow, ...]:
    def row(name: str, costs: tuple[int | None, int | None]) -> CostRow:
        first, second = (min(100.0, 100 * (c or 0) / t) if t else 0.0 for c, t in zip(costs, totals, strict=True))
        return CostRow(name, costs, (first, second))

    rows = [row(name, (before.get(name), after.get(name))) for name in dict.fromkeys((*before, *after))]
    rows.sort(key=lambda r: -max(r.shares))
    shown, rest = rows[:MOST_ROWS], rows[MOST_ROWS:]
    if rest:
        sums = (sum(r.costs[0] or 0 for r in rest), sum(r.costs[1] or 0 for r in rest))
        shown.append(row(f"{len(rest)} others", (sums[0] or None, sums[1] or None)))
    return tuple(shown)


def table_data(run: FitRun) -> dict[str, Any]:
    """Return the long tables, which the page's script builds: plain lists of strings and numbers."""
    unexplained = set(run.unexplained)
    return {
        "symbols": [
            {
                "name": symbol.id,
                "value": symbol.value,
                "prompt": symbol.setting.chosen,
                "kept": symbol.is_kept,
                "cause": "unexplained" if symbol.id in unexplained else (cause_of(symbol) or "unexplained"),
                "reasons": [[reason.cause, reason.text, reason.reference] for reason in symbol.reasons],
            }
            for symbol in run.plan.symbols
        ],
        "left_out": [
            {
                "name": row.id,
                "instructions": row.saves(Figure.TRACE_INSTRUCTIONS),
                "evidence": [[e.kind, e.key, e.where, e.count] for e in row.evidence],
            }
            for row in run.plan.left_out
        ],
        "calls": [
            {
                "task": call.task,
                "name": call.name,
                "count": call.count,
                "errors": [[error, count] for error, count in call.errors],
                "us": [call.min_s * 1e6, call.mean_s * 1e6, call.max_s * 1e6],
                "constant": [[index, value] for index, value in call.constant_args],
            }
            for call in run.calls
        ],
    }


def page(run: FitRun, words: tuple[str, ...] = (), later: Sequence[MonitorVerdict] = ()) -> str:
    """Return the page. The document of `fit --json` is in it too, under `fit` in the element `#data`. `words`: the
    machine's kernel command line, where it is known. `later`: the verdicts since the fit."""
    before, after = ({phase.phase: phase for phase in side.phases} for side in (run.baseline, run.tailored))
    found = counts(run.plan.symbols)
    down = ledger_waterfall.of(run)
    verdicts = monitor_proof.verdicts_of(run, later)
    return pages.render(
        "report.html",
        styles=("report.css",),
        scripts=("report.js",),
        data={"fit": fit_document(run, later), **table_data(run)},
        values={
            "run": run,
            "name": subject_name(run),
            "architecture": image_name(run.plan.architecture),
            "measures": measures(run),
            "groups": groups(run),
            "picture": pictures.boot_picture(run.baseline, run.tailored),
            "memory": pictures.memory_picture(run.baseline, run.tailored),
            "loads": load_pictures.loads(run.baseline, run.tailored),
            "load_heads": load_rows.HEADS,
            "load_legend": load_rows.LEGEND,
            "load_size": (load_pictures.WIDTH, load_pictures.HEIGHT),
            "phase_meaning": pictures.MEANING,
            "phases": [(phase, before.get(phase), after.get(phase)) for phase in Phase],
            "phase_cost": pictures.cost,
            "waterfall": down,
            "bars": ledger_waterfall.bars(down) if down is not None else (),
            "named": ledger_waterfall.named,
            "signed": ledger_waterfall.signed,
            "remainder": ledger_waterfall.REMAINDER,
            "costs": cost_lists(run),
            "causes": [(cause, number, MEANING[cause]) for cause, number in found.items()],
            "cause_order": ORDER,
            "kept": sum(found.values()),
            "repairs": repairs(run),
            "worked": run.proof in (Proof.LOAD, Proof.ENDED),
            "margin_line": margin_prices.price_line(run),
            "kernel_line": margin_prices.kernel_line(run.found_kernel) if run.found_kernel is not None else "",
            "price_heads": margin_prices.HEADS,
            "prices": margin_prices.price_rows(run),
            "lacks": [(lack, margin_prices.lack_line(lack)) for lack in run.lacks],
            "monitors": monitor_proof.rows(verdicts) if later else (),
            "monitor_line": monitor_proof.line(verdicts),
            "tuned": tuple(tuned_changes.rows(run)),
            "tuned_meaning": tuned_changes.MEANING,
            "words": machine_words.explained(run.plan, words),
            "percent": figures.percent,
            "ratio": figures.ratio,
        },
    )


def write_page(run: FitRun, path: Path, words: tuple[str, ...] = (), later: Sequence[MonitorVerdict] = ()) -> None:
    """Write the page to a file, whole or not at all. `words`, `later`: as for `page`."""
    write_atomic(path, page(run, words, later).encode())
