# SPDX-License-Identifier: Apache-2.0
"""The way from the baseline's instructions to the tailored machine's, folder by folder of the source tree.

Functions are measured on both sides; a folder's figure is the sum of its own. The expected effect is the cost that the
baseline's trace attributes to the symbols left out. The remainder is what a folder lost beyond that, and `remainder`
explains it. All figures are instructions from kernel entry to init, net of the loops that only emulation causes. The
folders add up to the measured difference, and so do expected effects and the remainder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vmtailor.analysis.changes.effects import Samples, TrialRun, judge
from vmtailor.analysis.cost.attribution import AttributedCost, Attribution
from vmtailor.analysis.cost.loops import LoopNames, functions, plain
from vmtailor.model.boots.boot import Boot, Phase
from vmtailor.model.change import Change, Figure, exact
from vmtailor.model.fit_run import Part
from vmtailor.model.plan import Plan

#: Folders of the source tree that are told apart one level from_tree.
_DEEP = ("arch", "drivers", "net", "fs")
OTHER, PROGRAMS = "other", "programs before init"
#: Owners of code that no left-out symbol accounts for. The left-out part of a function is not in the tailored kernel,
#: so if a function is mainly left out, the rest of it is code that is always built.
ALWAYS, BOTH, GONE = "code that is always built", "code of symbols that both kernels have", "code left out"
NEW = "code that only the tailored kernel has, or has under another name"
#: Functions that are named of one part.
MOST_FUNCTIONS = 5
#: Names of the rows that are no folder of the tree.
DOES = {
    OTHER: "functions whose source file is not known",
    PROGRAMS: "what the kernel starts before init, and its own init up to the mark",
}


def folder_of(file: str) -> str:
    """Return the subsystem of a source file: its top folder, or two levels where that says little."""
    parts = file.split("/")
    if len(parts) < 2 or not file:
        return OTHER
    return "/".join(parts[:2]) if parts[0] in _DEEP and len(parts) > 2 else parts[0]


@dataclass(frozen=True)
class Traced:
    """The content of the baseline's trace: the source of each function, and the code of each symbol."""

    rows: tuple[AttributedCost, ...]
    without_debug_information: int
    files: Mapping[str, str]


def traced(costs: Attribution, loops: Sequence[LoopNames]) -> Traced:
    """Return the way to init in a trace, net of loops."""
    names = functions(loops)
    rows = tuple(r for r in costs.rows if r.phase == Phase.KERNEL and plain(r.function) not in names)
    files = {row.function: row.file for row in costs.rows}
    return Traced(rows, costs.remainder.get(Phase.KERNEL, 0), files)


def folders(boot: Boot, files: Mapping[str, str], loops: Sequence[LoopNames]) -> dict[str, int]:
    """Return folder → instructions from kernel entry to init, net; the sum is exactly what was counted."""
    found: dict[str, int] = defaultdict(int)
    for function, instructions in _functions(boot, loops).items():
        found[folder_of(files.get(function, ""))] += instructions
    for phase in boot.phases:
        if phase.phase is Phase.KERNEL:
            counted = sum(row.instructions for row in boot.functions if row.phase is Phase.KERNEL)
            found[OTHER] += phase.kernel - counted
            found[PROGRAMS] += phase.user
    return dict(found)


def _functions(boot: Boot, loops: Sequence[LoopNames]) -> dict[str, int]:
    names = functions(loops)
    found: dict[str, int] = defaultdict(int)
    for row in boot.functions:
        if row.phase is Phase.KERNEL and plain(row.function) not in names:
            found[row.function] += row.instructions
    return found


def subsystems(
    plan: Plan, trace: Traced, before: Sequence[Boot], after: Sequence[Boot], loops: Sequence[LoopNames]
) -> tuple[Change, ...]:
    """Return each folder as one change, the largest loss first. Its settings are the symbols left out that had code
    there, with an effect expected of each (`source` is the symbol). Its measured effect is of all of them together."""
    kept = {change.id for change in plan.symbols if change.is_kept}
    left = [folders(boot, trace.files, loops) for boot in before]
    right = [folders(boot, trace.files, loops) for boot in after]
    costs: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in trace.rows:
        if row.symbol and row.symbol not in kept:
            costs[folder_of(row.file)][row.symbol] += row.instructions
    settings = {change.id: change.setting for change in plan.gone}
    figure = Figure.INIT_INSTRUCTIONS_NET
    found = []
    for name in {name for side in (*left, *right) for name in side} | costs.keys():
        symbols = sorted(costs[name].items(), key=lambda item: (-item[1], item[0]))
        change = Change(
            name,
            DOES.get(name, ""),
            tuple(settings[symbol] for symbol, _ in symbols if symbol in settings),
            expected=tuple(exact(figure, -cost, symbol) for symbol, cost in symbols),
        )
        one, other = (tuple(float(side.get(name, 0)) for side in sides) for sides in (left, right))
        runs = [TrialRun(samples=(Samples(figure, values, exact=True),)) for values in (one, other)]
        found.append(judge(change, *runs))
    return tuple(sorted(found, key=lambda c: (sum(e.value for e in c.measured), c.id)))


def remainder(plan: Plan, trace: Traced, before: Boot, after: Boot, loops: Sequence[LoopNames]) -> tuple[Part, ...]:
    """Return the parts of the difference that no symbol left out accounts for. The tailored kernel has no debug
    information at hand: its functions are told apart by the baseline's functions of their names."""
    kept = {change.id for change in plan.symbols if change.is_kept}
    one: dict[str, dict[str, int]] = {owner: defaultdict(int) for owner in (ALWAYS, BOTH, GONE)}
    for row in trace.rows:
        one[ALWAYS if not row.symbol else BOTH if row.symbol in kept else GONE][row.function] += row.instructions
    other: dict[str, dict[str, int]] = {owner: defaultdict(int) for owner in (ALWAYS, BOTH, NEW)}
    for function, instructions in _functions(after, loops).items():
        owners = [owner for owner in (ALWAYS, BOTH, GONE) if function in one[owner]]
        owner = max(owners, key=lambda name: one[name][function] if name != GONE else -1, default=NEW)
        other[ALWAYS if owner == GONE else owner][function] += instructions
    first, last = folders(before, trace.files, loops), folders(after, trace.files, loops)
    traced_in_all = sum(sum(found.values()) for found in one.values()) + trace.without_debug_information
    counted = sum(sum(found.values()) for found in other.values())
    uncounted = sum(last.values()) - last.get(PROGRAMS, 0) - counted
    parts = (
        _part(ALWAYS, one[ALWAYS], other[ALWAYS]),
        _part(BOTH, one[BOTH], other[BOTH]),
        _part(NEW, {}, {**other[NEW], "": uncounted}),
        Part("code without debug information", trace.without_debug_information, 0),
        Part(PROGRAMS, first.get(PROGRAMS, 0), last.get(PROGRAMS, 0)),
        Part(
            "what the traced boot ran otherwise than the measured one",
            sum(first.values()) - first.get(PROGRAMS, 0) - traced_in_all,
            0,
        ),
    )
    return tuple(part for part in parts if part.before or part.after)


def _part(name: str, before: Mapping[str, int], after: Mapping[str, int]) -> Part:
    changes = {f: after.get(f, 0) - before.get(f, 0) for f in {*before, *after} if f}
    most = sorted(changes.items(), key=lambda item: (-abs(item[1]), item[0]))[:MOST_FUNCTIONS]
    return Part(name, sum(before.values()), sum(after.values()), tuple(pair for pair in most if pair[1]))
