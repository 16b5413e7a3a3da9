# SPDX-License-Identifier: Apache-2.0
"""What `bench_fit.py` found, and its tables: figures beside their goals, what became of removed symbols."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from vmtailor.model.fit_run import FitRun, Side


@dataclass(frozen=True)
class Timing:
    """Wall seconds through the command line. `cold`: the first fit found no result of an earlier run in the cache.
    `planning_bytes` is the most memory that planning held. `processor_s`: of the first fit, of all processors."""

    first_fit_s: float
    second_fit_s: float
    planning_s: float
    planning_bytes: int
    cold: bool = True
    processor_s: float = 0.0


@dataclass(frozen=True)
class Removal:
    """What became of the exercise without one symbol. `outcome`: breaks, policy, unneeded, cannot be removed alone."""

    symbol: str
    cause: str
    outcome: str
    why: str
    with_it: tuple[str, ...] = ()


@dataclass(frozen=True)
class Peer:
    """Another project's configuration on the same source. `side` is None when it does not work."""

    name: str
    side: Side | None
    added: tuple[str, ...]
    remark: str


@dataclass(frozen=True)
class Started:
    """A bundle's machine, run by `vmtailor run`. `what` it did, in words; `expected`: whether it is what it should."""

    what: str
    expected: bool


@dataclass(frozen=True)
class Result:
    """One image, with one margin. `document` is what `fit --json` printed; `started` is None where it is not said what
    its machine should do."""

    name: str
    document: dict[str, Any]
    run: FitRun
    timing: Timing
    peers: tuple[Peer, ...] = ()
    removals: tuple[Removal, ...] = ()
    margin: str = "none"
    started: Started | None = None

    @property
    def title(self) -> str:
        """How it is headed in tables."""
        return self.name if self.margin == "none" else f"{self.name} ({self.margin} margin)"


@dataclass(frozen=True)
class Row:
    """One line of the table: what, the goal in words, its value for an image or a peer, and whether that is good."""

    title: str
    goal: str
    of_run: Callable[[Result], Any]
    good: Callable[[Any, Result], bool] = lambda value, result: True
    of_side: Callable[[Side], Any] = field(default=lambda side: None)


def share(removals: Sequence[Removal], outcome: str) -> str:
    hits = sum(1 for found in removals if found.outcome == outcome)
    return f"{hits} of {len(removals)} ({100 * hits / len(removals):.0f} %)" if removals else "not asked"


def _policy_apart(result: Result) -> int:
    return sum(result.document["symbols"][cause] for cause in ("demanded", "platform", "dependency", "repair"))


def _largest_spread(side: Side) -> float | None:
    return max((value for _, value in side.spread), default=None)


def _small_enough(_value: Any, result: Result) -> bool:
    side = result.run.tailored
    return side.kernel_bytes <= 9e6 or side.kernel_compressed_bytes <= 3.5e6


def _per_request_goal(value: float, result: Result) -> bool:
    before = result.run.baseline.request_kernel_instructions
    return before is None or value <= before


ROWS = (
    Row("verified", "yes", lambda r: r.run.verified, lambda v, r: bool(v)),
    Row("unexplained symbols", "0", lambda r: len(r.run.unexplained), lambda v, r: v == 0),
    Row(
        "kernel entry → init, net (M)", "≤ 30", lambda r: r.run.tailored.init_instructions_net,
        lambda v, r: v <= 30e6, lambda s: s.init_instructions_net,
    ),
    Row(
        "kernel entry → init, gross (M)", "", lambda r: r.run.tailored.init_instructions,
        of_side=lambda s: s.init_instructions,
    ),
    Row(
        "reset → init, net (M)", "≤ 40", lambda r: r.run.tailored.reset_instructions_net,
        lambda v, r: v <= 40e6, lambda s: s.reset_instructions_net,
    ),
    Row(
        "kernel entry → ready, gross (M)", "", lambda r: r.run.tailored.ready_instructions,
        of_side=lambda s: s.ready_instructions,
    ),
    Row("prompted symbols, policy apart", "≤ 110", _policy_apart, lambda v, r: v <= 110),
    Row(
        "prompted symbols in all", "", lambda r: r.run.tailored.symbols_prompted, of_side=lambda s: s.symbols_prompted
    ),
    Row("symbols =y", "", lambda r: r.run.tailored.symbols_y, of_side=lambda s: s.symbols_y),
    Row(
        "kernel file booted (MB)", "≤ 9, or packed ≤ 3.5", lambda r: r.run.tailored.kernel_bytes, _small_enough,
        lambda s: s.kernel_bytes,
    ),
    Row(
        "the same packed (MB)", "", lambda r: r.run.tailored.kernel_compressed_bytes,
        of_side=lambda s: s.kernel_compressed_bytes,
    ),
    Row(
        "least memory (MiB)", "≤ 32", lambda r: r.run.tailored.min_memory_bytes, lambda v, r: v <= 32 << 20,
        lambda s: s.min_memory_bytes,
    ),
    Row(
        "kernel instructions per request", "≤ baseline", lambda r: r.run.tailored.request_kernel_instructions,
        _per_request_goal, lambda s: s.request_kernel_instructions,
    ),
    Row(
        "largest spread between boots", "< 0.1 %", lambda r: _largest_spread(r.run.tailored), lambda v, r: v < 0.001,
        _largest_spread,
    ),
    Row("cold fit (s)", "≤ 900", lambda r: r.timing.first_fit_s if r.timing.cold else None, lambda v, r: v <= 900),
    Row("the first fit's processor time (s)", "", lambda r: r.timing.processor_s),
    Row("second fit (s)", "< 10", lambda r: r.timing.second_fit_s, lambda v, r: v < 10),
    Row("planning (s)", "< 60", lambda r: r.timing.planning_s, lambda v, r: v < 60),
    Row("memory of planning (MB)", "< 2000", lambda r: r.timing.planning_bytes, lambda v, r: v < 2e9),
)  # fmt: skip


#: Goals of every margin; those of figures are for margin none.
HOLDS_FOR_ALL = ("verified", "unexplained symbols", "largest spread between boots")
#: Unit in a row's title → what one is of what is counted.
SCALES = {"(M)": 1e6, "(MB)": 1e6, "(MiB)": float(1 << 20), "(s)": 1.0}
GOALS = Path(__file__).with_name("bench_goals.toml")


def rows_for(architecture: str) -> tuple[Row, ...]:
    """The rows, with the goals of a processor."""
    goals = tomllib.loads(GOALS.read_text("utf-8")).get(architecture, {})

    def of(row: Row) -> Row:
        if row.title not in goals:
            return row
        most = goals[row.title] * SCALES[row.title.rsplit(maxsplit=1)[-1]]
        return replace(row, goal=f"≤ {goals[row.title]}", good=lambda value, result: value <= most)

    return tuple(map(of, ROWS))


#: Unit in a row's title → how its value is written.
UNITS: dict[str, Callable[[Any], str]] = {
    "(M)": lambda value: f"{value / 1e6:.2f}",
    "(MB)": lambda value: f"{value / 1e6:.2f}",
    "(MiB)": lambda value: f"{value / (1 << 20):.0f}",
    "(s)": lambda value: f"{value:.1f}",
    "boots": lambda value: "none" if value == 0 else f"{100 * value:.4f} %",
}


def shown(title: str, value: Any) -> str:
    """A value as its row's unit asks; a dash for what could not be taken."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    write = UNITS.get(title.rsplit(maxsplit=1)[-1], lambda value: f"{value:,.0f}".replace(",", " "))
    return write(value)


def table_of(results: Sequence[Result], rows_of: Sequence[Row] = ROWS) -> tuple[list[str], list[list[str]], list[str]]:
    """Head, rows, and the goals that are missed. Each image has a column, each baseline and each peer one too."""
    head = ["figure", "goal"]
    for result in results:
        title = result.title
        head += [title, f"{title}: baseline", *(f"{title}: {peer.name}" for peer in result.peers)]
    rows, missed = [], []
    for row in rows_of:
        cells = [row.title, row.goal]
        for result in results:
            value = row.of_run(result)
            text = shown(row.title, value)
            held = result.margin == "none" or row.title in HOLDS_FOR_ALL
            if row.goal and held and value is not None and not row.good(value, result):
                text += " ✗"
                missed.append(f"{result.title}: {row.title}")
            sides = [result.run.baseline, *(peer.side for peer in result.peers)]
            cells += [text, *("–" if side is None else shown(row.title, row.of_side(side)) for side in sides)]
        rows.append(cells)
    return head, rows, missed


def removal_rows(result: Result) -> list[list[str]]:
    def why(removal: Removal) -> str:
        return removal.why + (f" (with it go {', '.join(removal.with_it)})" if removal.with_it else "")

    return [[removal.symbol, removal.cause, removal.outcome, why(removal)] for removal in result.removals]


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"

    return "\n".join([line(head), line("---" for _ in head), *(line(row) for row in rows)]) + "\n"


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], as_markdown: bool) -> None:
    if as_markdown:
        print(f"{title}\n\n{markdown(head, rows)}")
        return
    table = Table(*head, box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for row in rows:
        table.add_row(*row)
    Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 200).print(table)


def show_all(results: Sequence[Result], as_markdown: bool, architecture: str = "") -> list[str]:
    """Print every table; returns the goals that are missed."""
    head, rows, missed = table_of(results, rows_for(architecture))
    show("Figures", head, rows, as_markdown)
    for result in results:
        if result.started is not None:
            print(f"{result.title}, run: {result.started.what}")
            missed += [] if result.started.expected else [f"{result.title}: run"]
        if not result.timing.cold:
            print(
                f"{result.title}: the first fit used results of earlier runs; --cold does it from nothing but downloads"
            )
        for found in result.peers:
            print(f"{result.name}, {found.name}: {found.remark}")
        if result.removals:
            title = f"{result.name}: kept symbols removed one by one; unneeded: {share(result.removals, 'unneeded')}"
            show(title, ["symbol", "cause", "without it", "why"], removal_rows(result), as_markdown)
    return missed
