# SPDX-License-Identifier: Apache-2.0
"""Runtimes ranked by stated weights: a ranking from measured cells, how it changes with the weights, and whether the
samples tell the first from the others.

A suite's score of a runtime says how much better it is than the median runtime of a row: the geometric mean over the
rows that all ranked runtimes have. The total is the geometric mean over suites, by weight. So no unit and no single
test weighs more than another of its suite."""

from __future__ import annotations

import math
import random
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.bench.analysis.cells import Cell, against, cells_of
from vmtailor.bench.analysis.heat_map import RANKED
from vmtailor.bench.model.results import HostRun, SuiteName, is_counted
from vmtailor.model.change import Verdict

#: Resamplings of the cells, and the share of them in which a runtime must be first to be called so.
DRAWS, SURE = 400, 0.95
#: A runtime without values for more than this share of the figures is not ranked.
LACKING = 1 / 3
#: A bound below this share of the weight counts as 0.
_LEAST = 1e-6
_Values = Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Ranked:
    """`score`: 1 is the middle of the field, 2 twice as good; `suites`: of each; `first`: the share of resamplings in
    which it is the best."""

    runtime: str
    score: float
    suites: tuple[tuple[str, float], ...]
    first: float


@dataclass(frozen=True)
class Hold:
    """The range of a suite's weight, with all others fixed, in which the first runtime stays first. `least`: the weight
    below which `below` is first; None: there is none. `most`, `above`: the same at the upper end."""

    suite: str
    least: float | None
    below: str
    most: float | None
    above: str


@dataclass(frozen=True)
class Advice:
    """A ranking. `decided`: the samples tell which runtime is first. `holds`: the range of each weight. `left_out`:
    runtimes and figures, and why. `untold`: runtimes that no figure tells from the first one, by the test of ranks."""

    ranked: tuple[Ranked, ...]
    rows: int
    decided: bool
    holds: tuple[Hold, ...]
    left_out: tuple[str, ...]
    untold: tuple[str, ...] = ()


def parse_weights(text: str) -> dict[str, float]:
    """Return the weights in `efficiency=2,startup=1`. Raises UserInputError."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = part.strip().partition("=")
        try:
            weight = float(number) if equals else math.nan
        except ValueError:
            weight = math.nan
        if not (name and 0 <= weight < 1e6):
            raise UserInputError(f"--weights: {part.strip()[:64]!r} is not SUITE=NUMBER", hint="efficiency=2,startup=1")
        found[name] = weight
    if not any(found.values()):
        raise UserInputError("--weights: all are 0", hint="efficiency=2,startup=1")
    return found


def advise(run: HostRun, weights: Mapping[str, float], among: Sequence[str] = ()) -> Advice:
    """Rank the runtimes of one run. `among`: only these; empty: all. Raises UserInputError for a weight of a suite that
    was not measured."""
    rows: dict[tuple[str, str, str, int, str], dict[str, Cell]] = defaultdict(dict)
    for cell in cells_of(run):
        if is_counted(cell.key.variant):
            continue  # counts of machines: nothing else has them
        if among and cell.key.runtime not in among:
            continue
        if weights.get(cell.key.suite, 0) > 0 and not (
            cell.key.suite == SuiteName.ISOLATION and cell.key.figure != RANKED
        ):
            rows[cell.key.row][cell.key.runtime] = cell
    for suite, weight in weights.items():
        if weight > 0 and not any(row[0] == suite for row in rows):
            raise UserInputError(
                f"nothing of the suite {suite[:64]!r} was measured", hint=f"vmtailor bench {suite[:64]}"
            )
    names = list(dict.fromkeys(name for cells in rows.values() for name in cells))
    lacking = {name: [row for row, cells in rows.items() if _unusable(cells.get(name))] for name in names}
    able = [name for name in names if len(lacking[name]) <= LACKING * len(rows)]
    kept_rows = {row: cells for row, cells in rows.items() if not any(row in lacking[name] for name in able)}
    left_out = [f"{n}: no value for {len(lacking[n])} of {len(rows)} figures" for n in names if n not in able]
    left_out += [_row_words(row) for row in rows if row not in kept_rows]
    if len(able) < 2 or not kept_rows:
        return Advice(ranked=(), rows=len(kept_rows), decided=False, holds=(), left_out=tuple(left_out))
    values = {row: {name: cells[name].values for name in able} for row, cells in kept_rows.items()}
    larger = {row: next(iter(cells.values())).larger_is_better for row, cells in kept_rows.items()}
    medians = {row: {name: statistics.median(by[name]) for name in able} for row, by in values.items()}
    suites = _suites(medians, larger, able)
    wins = _wins(values, larger, able, weights)
    scores = {name: _whole(suites[name], weights) for name in able}
    ranked = tuple(
        Ranked(name, scores[name], tuple(suites[name].items()), wins[name] / DRAWS)
        for name in sorted(able, key=lambda name: -scores[name])
    )
    # Draws from few samples hardly vary, so the test of ranks must tell the first from each other one, too.
    best = ranked[0].runtime
    untold = tuple(name for name in able if name != best and not _told(values, larger, best, name))
    decided = not untold and ranked[0].first >= SURE
    holds = tuple(_hold(suite, suites, weights, best) for suite in suites[best])
    return Advice(
        ranked=ranked, rows=len(kept_rows), decided=decided, holds=holds, left_out=tuple(left_out), untold=untold
    )


def _row_words(row: tuple[str, str, str, int, str]) -> str:
    _, test, figure, count, variant = row
    words = f"{test} ×{count}" if count > 1 else test
    return f"{words}{f', {variant}' if variant else ''}: {figure}, of which not all have a value above zero"


def _hold(suite: str, suites: Mapping[str, Mapping[str, float]], weights: Mapping[str, float], best: str) -> Hold:
    """Return how far a weight can go: the lead over another is a straight line over one weight, so it ends where the
    nearest of these lines does."""
    below: tuple[float, str] | None = None
    above: tuple[float, str] | None = None
    for name in suites:
        ahead = {each: math.log(score / suites[name][each]) for each, score in suites[best].items()}
        lead = sum(weights[each] * ahead[each] for each in ahead)
        if not ahead[suite]:
            continue
        at = weights[suite] - lead / ahead[suite]
        # If no other suite has a weight, this one's does not matter.
        if ahead[suite] > 0 and at > _LEAST * weights[suite]:
            below = max(below or (at, name), (at, name))
        elif ahead[suite] < 0:
            above = min(above or (at, name), (at, name))
    least, most = below or (None, ""), above or (None, "")
    return Hold(suite=suite, least=least[0], below=least[1], most=most[0], above=most[1])


def require_measured(runs: Sequence[HostRun], among: Sequence[str]) -> None:
    """Raise UserInputError where one of these runtimes was timed on no host."""
    trials = (trial for run in runs for trial in run.trials if not is_counted(trial.variant))
    there = list(dict.fromkeys(trial.runtime for trial in trials))
    for name in among:
        if name not in there:
            raise UserInputError(
                f"--on: {plain(name)[:64]!r} was not measured", hint=f"measured: {plain(', '.join(there))[:300]}"
            )


def _told(
    values: Mapping[tuple[str, str, str, int, str], _Values],
    larger: Mapping[tuple[str, str, str, int, str], bool],
    best: str,
    other: str,
) -> bool:
    """Return whether there is a figure in which one is better than the other, and not by chance."""
    found = (against(by[other], by[best], larger_is_better=larger[row]) for row, by in values.items())
    return any(one is not None and one.verdict is Verdict.BETTER for one in found)


def _unusable(cell: Cell | None) -> bool:
    return cell is None or not cell.values or statistics.median(cell.values) <= 0


def _suites(
    medians: Mapping[tuple[str, str, str, int, str], Mapping[str, float]],
    larger: Mapping[tuple[str, str, str, int, str], bool],
    names: Sequence[str],
) -> dict[str, dict[str, float]]:
    logs: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in names}
    for row, by_name in medians.items():
        middle = statistics.median(by_name.values())
        for name in names:
            gain = math.log(max(by_name[name], 1e-12) / max(middle, 1e-12))
            logs[name][row[0]].append(gain if larger[row] else -gain)
    return {name: {s: math.exp(statistics.fmean(v)) for s, v in by.items()} for name, by in logs.items()}


def _whole(suites: Mapping[str, float], weights: Mapping[str, float]) -> float:
    total = sum(weights[suite] for suite in suites)
    return math.exp(sum(weights[suite] * math.log(score) for suite, score in suites.items()) / total) if total else 1.0


def _wins(
    values: Mapping[tuple[str, str, str, int, str], _Values],
    larger: Mapping[tuple[str, str, str, int, str], bool],
    names: Sequence[str],
    weights: Mapping[str, float],
) -> dict[str, int]:
    """Return how often each is first when every cell's samples are drawn again."""
    chance = random.Random(1)
    wins = dict.fromkeys(names, 0)
    for _ in range(DRAWS):
        drawn = {
            row: {name: statistics.median(chance.choices(by[name], k=len(by[name]))) for name in names}
            for row, by in values.items()
        }
        suites = _suites(drawn, larger, names)
        wins[max(names, key=lambda name: _whole(suites[name], weights))] += 1
    return wins
