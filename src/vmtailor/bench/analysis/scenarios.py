# SPDX-License-Identifier: Apache-2.0
"""Advice in words: for each of six uses of containers, which runtimes the measured figures speak for, and which figures
are lacking. Pure."""

from __future__ import annotations

import statistics
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources

import msgspec

from vmtailor.base.text import plain
from vmtailor.bench.analysis.benchmarks import benchmark
from vmtailor.bench.analysis.cells import NATIVE, Cell, cells_of, set_against
from vmtailor.bench.analysis.phrases import amount
from vmtailor.bench.model.results import HostRun, is_counted
from vmtailor.model.change import Verdict


@dataclass(frozen=True)
class ScenarioNeed:
    """A figure that a use of containers asks for. `must`: nothing can be said of the use without it."""

    suite: str
    test: str
    figure: str
    words: str
    must: bool = False


@dataclass(frozen=True)
class Scenario:
    """A use of containers, and the figures that it asks for."""

    name: str
    about: str
    needs: tuple[ScenarioNeed, ...]


@dataclass(frozen=True)
class MeasuredNeed:
    """A need that was measured. `leaders`: the runtime with the best figure, and those that the samples do not tell
    from it; `best`: that figure; `last`: the worst, of the runtime `behind`."""

    need: ScenarioNeed
    leaders: tuple[str, ...]
    best: str
    behind: str
    last: str

    @property
    def words(self) -> str:
        """Return the need with who leads in it."""
        if self.behind in self.leaders:
            return f"{self.need.words}: the samples tell none from another ({self.best})"
        return f"{self.need.words}: {' and '.join(self.leaders)} ({self.best}; {self.behind} {self.last})"


@dataclass(frozen=True)
class ScenarioAdvice:
    """The advice of the figures on a use. `chosen`: the runtimes that lead in most needs; empty where nothing can be
    said. `lacking`: needs without figures of two runtimes."""

    scenario: Scenario
    chosen: tuple[str, ...]
    leads: int
    met: tuple[MeasuredNeed, ...]
    lacking: tuple[ScenarioNeed, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """Return the advice in words: who, why, and what is not known."""
        told = [one for one in self.met if one.behind not in one.leaders]
        if missing := [need.words for need in self.lacking if need.must]:
            first = f"Cannot tell without figures of {', '.join(missing)}."
        elif not told:
            first = "Cannot tell: no figure tells one runtime from another."
        else:
            verb = "leads" if len(self.chosen) == 1 else "lead"
            first = (
                f"{' or '.join(self.chosen)}: {verb} in {self.leads} of {len(told)} figures that tell runtimes apart."
            )
        found = [first, *(f"{one.words[0].upper()}{one.words[1:]}." for one in self.met)]
        if self.lacking:
            commands = dict.fromkeys(f"vmtailor bench {need.suite} --only {need.test}" for need in self.lacking)
            what = ", ".join(need.words for need in self.lacking)
            found.append(f"Not measured: {what}. {'; '.join(commands)}.")
        return tuple(found)


def scenarios() -> tuple[Scenario, ...]:
    """Return the uses in the order of the table."""
    text = resources.files("vmtailor").joinpath("bench", "data", "published", "scenarios.toml").read_text()
    return tuple(msgspec.convert(tomllib.loads(text)["scenario"], list[Scenario]))


def advise(run: HostRun, among: Sequence[str] = ()) -> tuple[ScenarioAdvice, ...]:
    """Return what a run says of each use. `among`: only these runtimes; empty: all but native ones, which isolate
    nothing."""
    rows: dict[tuple[str, str, str, int, str], dict[str, Cell]] = {}
    for cell in cells_of(run):
        name = cell.key.runtime
        if cell.values and (name in among if among else name.rpartition("/")[2] != NATIVE):
            rows.setdefault(cell.key.row, {})[name] = cell
    return tuple(_advice(one, rows) for one in scenarios())


def _advice(scenario: Scenario, rows: Mapping[tuple[str, str, str, int, str], Mapping[str, Cell]]) -> ScenarioAdvice:
    met, lacking = [], []
    for need in scenario.needs:
        able = [
            (row, cells)
            for row, cells in rows.items()
            if row[:3] == (need.suite, need.test, need.figure) and len(cells) > 1
        ]
        if not able:
            lacking.append(need)
            continue
        # Timed figures before counted ones, and of several numbers of instances the largest.
        _, cells = max(able, key=lambda one: (not is_counted(one[0][4]), one[0][3]))
        met.append(_met(need, list(cells.values())))
    won: dict[str, int] = {}
    for one in met:
        for name in one.leaders if one.behind not in one.leaders else ():
            won[name] = won.get(name, 0) + 1
    leads = max(won.values(), default=0)
    blind = any(need.must for need in lacking)
    chosen = () if blind else tuple(name for name, count in won.items() if count == leads)
    return ScenarioAdvice(scenario=scenario, chosen=chosen, leads=leads, met=tuple(met), lacking=tuple(lacking))


def _met(need: ScenarioNeed, cells: Sequence[Cell]) -> MeasuredNeed:
    larger = cells[0].larger_is_better
    ordered = sorted(cells, key=lambda cell: statistics.median(cell.values), reverse=larger)
    best, last = ordered[0], ordered[-1]
    leaders = [cell for cell in ordered if cell is best or not _behind(best, cell, larger=larger)]
    return MeasuredNeed(
        need=need, leaders=tuple(plain(cell.key.runtime) for cell in leaders), best=_shown(best),
        behind=plain(last.key.runtime), last=_shown(last),
    )  # fmt: skip


def _behind(best: Cell, cell: Cell, *, larger: bool) -> bool:
    """Return whether the samples tell that a cell is worse than the best one."""
    found = set_against(cell.key, best.values, cell.values, larger_is_better=larger)
    return found is not None and found.verdict is Verdict.WORSE


def _shown(cell: Cell) -> str:
    return amount(statistics.median(cell.values), cell.unit)


def known(need: ScenarioNeed) -> bool:
    """Return whether a need names a test that is registered; its figure is one of it, or of its counted form."""
    figures = {kind.name for kind in benchmark(need.suite, need.test).figures}
    return need.figure in figures or need.figure.endswith((" a unit", " to its end"))
