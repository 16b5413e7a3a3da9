# SPDX-License-Identifier: Apache-2.0
"""Compare two sides of boots: each phase and item is gone, new, faster, slower, moved, the same, or undecided."""

from __future__ import annotations

import bisect
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from vmtailor.analysis.comparison.sides import Samples, Saved
from vmtailor.analysis.statistics import boot_statistics
from vmtailor.analysis.statistics.significance import Difference, Thresholds, can_decide, exact, least_values, shift
from vmtailor.analysis.statistics.significance import compare as judge
from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.comparison import ComparedSide, Comparison, ConfigChange, Row, RowMode, RowVerdict
from vmtailor.model.boots.timeline import PhaseName, Timeline, Warn
from vmtailor.model.change import Verdict

#: A difference below a millisecond or a twentieth is of no interest, of items and of phases.
THRESHOLDS = Thresholds(relative=0.05, absolute=1000.0)
#: An item that a side has in no more than this share of its boots comes and goes: its durations say little.
SELDOM = 0.5

Key = tuple[str, str, int]

EXACT = {Verdict.BETTER: RowVerdict.FASTER, Verdict.WORSE: RowVerdict.SLOWER, Verdict.SAME: RowVerdict.SAME}


@dataclass(frozen=True)
class Item:
    """An item of one boot."""

    duration_us: int
    start_us: int | None
    path: str


def row(key: Key, left: Sequence[float], right: Sequence[float], of: tuple[int, int], thresholds: Thresholds) -> Row:
    """Return the row of one item, whose values of each side are given; `of` is how many boots each side has. Raises
    ValueError without any value."""
    boots = (len(left), len(right))
    if not left or not right:
        count, all_of = (boots[1], of[1]) if not left else (boots[0], of[0])
        verdict = RowVerdict.NEW if not left else RowVerdict.GONE
        us = statistics.median(left or right)
        return Row(
            *key,
            us if left else None,
            us if right else None,
            us if not left else -us,
            None,
            None,
            None,
            verdict if count >= all_of else RowVerdict.PARTLY,
            boots=boots,
            of=of,
        )
    found: Difference = judge(left, right, thresholds)
    low, high = found.low, found.high
    if low is not None and found.verdict is Verdict.SAME:
        _, low, high = shift(left, right)
    verdict, direction = _verdict_of(found, (low, high), boots, thresholds)
    if any(count <= SELDOM * whole for count, whole in zip(boots, of, strict=True)):
        verdict, direction = RowVerdict.PARTLY, ""
    return Row(
        *key, found.before, found.after, found.change, low, high, found.p, verdict, direction, False, boots, of=of
    )


def _verdict_of(
    found: Difference, interval: tuple[float | None, float | None], boots: tuple[int, int], thresholds: Thresholds
) -> tuple[RowVerdict, str]:
    """Return the verdict, and which way it leans or is."""
    low, high = interval
    leaning = RowVerdict.FASTER.value if found.change < 0 else RowVerdict.SLOWER.value
    small = abs(found.change) < thresholds.least(found.before)
    if low is None or high is None:
        if small:
            return (RowVerdict.BELOW if found.change else RowVerdict.SAME), ""
        return RowVerdict.UNDECIDED, leaning
    if low == high == 0:
        return RowVerdict.SAME, ""
    clear = (low > 0 or high < 0) and can_decide(*boots)
    if (clear and small) or found.verdict is Verdict.SAME:
        return RowVerdict.BELOW, leaning if clear else ""
    if found.verdict is Verdict.UNDECIDED:
        return RowVerdict.UNDECIDED, leaning
    return EXACT[found.verdict], ""


def with_modes(found: Row, left: Sequence[float], right: Sequence[float]) -> Row:
    """Return the row with the two groups that the boots of a side fall into, where they do."""
    groups = [boot_statistics.find_modes(values) for values in (left, right)]
    before, after = (
        tuple(RowMode(mode.median, mode.count) for mode in found) if len(found) == 2 else () for found in groups
    )
    return msgspec.structs.replace(found, before_modes=before, after_modes=after) if before or after else found


def usual_path(items: Sequence[Item]) -> str:
    """Return the path that most boots have it on; "" where there is none."""
    return Counter(item.path for item in items).most_common(1)[0][0] if items else ""


def moved(left: Mapping[Key, int], right: Mapping[Key, int]) -> set[Key]:
    """Return the items of both sides that are not in the longest run of items in the same order: they were put
    elsewhere. Given is when each began, in one boot of each side: only within a boot is there an order."""
    known = sorted(
        ((key, at, right[key]) for key, at in left.items() if key in right and key[0] in ("initcall", "unit")),
        key=lambda entry: (entry[1], entry[2]),
    )
    tails: list[int] = []
    tail_index: list[int] = []
    back: list[int] = []
    for n, (_, _, b) in enumerate(known):
        at = bisect.bisect_right(tails, b)
        back.append(tail_index[at - 1] if at else -1)
        if at == len(tails):
            tails.append(b)
            tail_index.append(n)
        else:
            tails[at], tail_index[at] = b, n
    kept: set[int] = set()
    n = tail_index[-1] if tail_index else -1
    while n >= 0:
        kept.add(n)
        n = back[n]
    return {key for n, (key, _, _) in enumerate(known) if n not in kept}


#: Items that never reach this are left out of the comparison, unless they are gone or new.
WORTH_US = 100


#: Kinds of items of a boot, as rows name them.
_KINDS = ("initcall", "probe", "unit", "process")


def compare_sides(
    before: Saved, after: Saved, names: tuple[str, str], thresholds: Thresholds = THRESHOLDS
) -> Comparison:
    """Compare two sides. Raises UserInputError when they have nothing in common to compare, and where their times are
    of different clocks."""
    if before.clocks and after.clocks and before.clocks != after.clocks:
        raise UserInputError(
            f"times of different clocks are not compared: {names[0]} is on the {before.clocks}, {names[1]} on the "
            f"{after.clocks}",
            hint="boot both with the same --clock, and both with KVM or without",
        )
    if before.timelines and after.timelines:
        found = compare_boots(before.timelines, after.timelines, names, thresholds)
    elif before.samples and after.samples:
        left, right = (
            ComparedSide(n, 0, side.version or None, None) for n, side in zip(names, (before, after), strict=True)
        )
        found = Comparison(
            before=left,
            after=right,
            phases=(),
            items=(),
            config=(),
            warnings=(),
            threshold_share=thresholds.relative,
            threshold_us=thresholds.absolute,
        )
    else:
        raise UserInputError(
            "the two sides are of different kinds",
            hint="compare logs with logs, and records of one verb with records of it",
        )
    figures = tuple(_figures(before.samples, after.samples, thresholds))
    config = found.config or tuple(_config(before.config, after.config))
    phases = tuple(row for row in figures if row.kind == "milestone")
    items = tuple(row for row in figures if row.kind != "milestone")
    left_out = tuple(
        Warn("no-boot", f"{name} of {title} holds nothing that times a boot, and is left out")
        for side, title in ((before, names[0]), (after, names[1]))
        for name in side.left_out
    )
    return msgspec.structs.replace(
        found,
        phases=(*phases, *found.phases),
        items=(*items, *found.items),
        config=config,
        warnings=(*_unlike_machines(before, after, names), *found.warnings, *left_out),
    )


def _unlike_machines(before: Saved, after: Saved, names: tuple[str, str]) -> Iterator[Warn]:
    """Yield a warning where no machine of one side is like one of the other, by a fact that both tell."""
    differing = [
        f"{fact} {_values(before.machines[fact])} of {names[0]}, {_values(after.machines[fact])} of {names[1]}"
        for fact in before.machines
        if not before.machines[fact] & after.machines.get(fact, before.machines[fact])
    ]
    if differing:
        text = f"the sides are of different machines: {'; '.join(differing)}. What differs may be theirs"
        yield Warn("different-machines", text)


def _values(found: set[str]) -> str:
    return " or ".join(sorted(found))


def _figures(before: Samples, after: Samples, thresholds: Thresholds) -> Iterator[Row]:
    """Yield figures of records. Counts of instructions and bytes are exact, and so is virtual time: a single one a side
    is enough."""
    for key in dict.fromkeys([*before, *after]):
        kind, name, unit = key
        left, right = before.get(key, []), after.get(key, [])
        boots = (len(left), len(right))
        found = row((kind, name, 1), left, right, boots, thresholds)
        if left and right and (unit != "µs" or "virtual" in name):
            verdict = EXACT.get(exact(left, right).verdict, RowVerdict.UNDECIDED)
            found = msgspec.structs.replace(found, verdict=verdict, direction="")
        elif kind == "milestone":
            found = with_modes(found, left, right)
        yield msgspec.structs.replace(found, unit=unit)


def compare_boots(
    before: Sequence[Timeline],
    after: Sequence[Timeline],
    names: tuple[str, str],
    thresholds: Thresholds = THRESHOLDS,
) -> Comparison:
    """Compare two sides of one or more boots each."""
    warnings: list[Warn] = []
    if min(len(before), len(after)) < 2:
        warnings.append(
            Warn("single-boots", "a side is a single boot: no difference of durations can be told from chance")
        )
    elif not can_decide(len(before), len(after)):
        warnings.append(
            Warn(
                "few-boots",
                f"so few boots cannot rule chance out at 95 %, whatever they show: {least_values()} on each side can",
            )
        )
    arches = {t.kernel.arch for t in (*before, *after) if t.kernel.arch}
    if len(arches) > 1:
        warnings.append(Warn("unlike", f"the sides are of different architectures: {', '.join(sorted(arches))}"))
    phases = tuple(_phases(before, after, thresholds))
    for one in phases:
        for side, groups_of in ((names[0], one.before_modes), (names[1], one.after_modes)):
            if groups_of:
                groups = " and ".join(f"{mode.median / 1e6:.3f} s ({mode.boots} boots)" for mode in groups_of)
                warnings.append(Warn("two-modes", f"{one.name} of {side} is {groups}, mixed: its median is of neither"))
    lacking = {kind: title for kind in _KINDS for title in _lacking(kind, before, after, names)}
    warnings += [
        Warn("unlike", f"{title} has no {kind}s that are timed, so they are not compared: its files do not show them")
        for kind, title in lacking.items()
    ]
    items = [one for one in _items(before, after, thresholds) if one.kind not in lacking]
    return Comparison(
        before=_side(before, names[0]),
        after=_side(after, names[1]),
        phases=phases,
        items=tuple(items),
        config=tuple(_config(before[0].config, after[0].config)),
        warnings=tuple(warnings),
        threshold_share=thresholds.relative,
        threshold_us=thresholds.absolute,
    )


def _lacking(kind: str, before: Sequence[Timeline], after: Sequence[Timeline], names: tuple[str, str]) -> Iterator[str]:
    """Yield the side of which no file shows anything of a kind that the other one's do."""
    there = [any(key[0] == kind for key in _table(side)) for side in (before, after)]
    if any(there):
        yield from (name for name, has in zip(names, there, strict=True) if not has)


def _side(boots: Sequence[Timeline], name: str) -> ComparedSide:
    first = boots[0]
    return ComparedSide(
        name=name,
        boots=len(boots),
        version=first.kernel.version,
        command_line=first.kernel.command_line,
        phases=first.phases,
    )


def _phases(before: Sequence[Timeline], after: Sequence[Timeline], thresholds: Thresholds) -> Iterator[Row]:
    of = (len(before), len(after))
    lengths = [(str(name), _lengths(before, name), _lengths(after, name)) for name in PhaseName]
    totals = [[float(t.total_us) for t in side if t.total_us is not None] for side in (before, after)]
    if all(totals):
        lengths.append(("total", totals[0], totals[1]))
    for name, left, right in lengths:
        if left or right:
            yield with_modes(row(("phase", name, 1), left, right, of, thresholds), left, right)


def _lengths(boots: Sequence[Timeline], name: str) -> list[float]:
    found = []
    for boot in boots:
        phase = boot.phase(name)
        if phase is None or phase.start_us is None or phase.end_us is None:
            continue
        if name == PhaseName.READY:
            starts = [p.start_us for p in boot.phases if p.start_us is not None]
            found.append(float(phase.end_us - min(starts)))
        else:
            found.append(float(phase.end_us - phase.start_us))
    return found


def _table(boots: Sequence[Timeline]) -> dict[Key, list[Item]]:
    found: dict[Key, list[Item]] = defaultdict(list)
    for boot in boots:
        for call in boot.initcalls:
            if call.duration_us is not None:
                name = f"{call.name} [{call.module}]" if call.module else call.name
                found["initcall", name, call.occurrence].append(Item(call.exclusive_us or 0, call.start_us, call.path))
        for probe in boot.probes:
            if probe.exclusive_us is not None:
                found["probe", probe.name, probe.occurrence].append(
                    Item(probe.exclusive_us, probe.start_us, probe.path)
                )
        for unit in boot.units:
            if unit.duration_us is not None:
                found["unit", unit.name, 1].append(Item(unit.duration_us, unit.start_us, ""))
        cpu: dict[str, int] = defaultdict(int)
        for process in boot.processes:
            if not process.observer:
                cpu[process.name] += process.exclusive_us or 0
        for name, used in cpu.items():
            found["process", name, 1].append(Item(used, None, ""))
    return found


def _starts(boots: Sequence[Timeline]) -> dict[Key, int]:
    """When each item began, in the boot that has the most of them."""
    tables = [_table([boot]) for boot in boots]
    fullest = max(tables, key=len)
    return {key: items[0].start_us for key, items in fullest.items() if items[0].start_us is not None}


def _items(before: Sequence[Timeline], after: Sequence[Timeline], thresholds: Thresholds) -> list[Row]:
    left, right = _table(before), _table(after)
    elsewhere = moved(_starts(before), _starts(after))
    of = (len(before), len(after))
    rows = []
    for key in dict.fromkeys([*left, *right]):
        a, b = left.get(key, []), right.get(key, [])
        if a and b and max(i.duration_us for i in (*a, *b)) < WORTH_US and key not in elsewhere:
            continue
        found = row(key, [float(i.duration_us) for i in a], [float(i.duration_us) for i in b], of, thresholds)
        paths = usual_path(a), usual_path(b)
        away = key in elsewhere or (bool(a) and bool(b) and paths[0] != paths[1])
        quiet = found.verdict in (RowVerdict.SAME, RowVerdict.BELOW) and not found.direction
        rows.append(
            msgspec.structs.replace(
                found,
                verdict=RowVerdict.MOVED if away and quiet else found.verdict,
                moved=away,
                before_path=paths[0],
                after_path=paths[1],
            )
        )
    rows.sort(key=lambda r: -abs(r.change if r.change is not None else (r.before or r.after or 0.0)))
    return rows


def _config(before: dict[str, str], after: dict[str, str]) -> Iterator[ConfigChange]:
    if not before or not after:
        return
    for symbol in sorted(before.keys() | after.keys()):
        if before.get(symbol) != after.get(symbol):
            yield ConfigChange(symbol, before.get(symbol), after.get(symbol))
