# SPDX-License-Identifier: Apache-2.0
"""Two sides of boots: each phase and each item gone, new, faster, slower, moved, the same, or not to be told."""

from __future__ import annotations

import bisect
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vmtailor.analysis.bootlog.bootchart import MEMBERS
from vmtailor.analysis.compare.compare_saved import Samples, Saved, find
from vmtailor.analysis.compare.compare_saved import load as load_saved
from vmtailor.analysis.compare.saved_boots import saved_boots
from vmtailor.analysis.statistics.stats import Difference, Thresholds, can_decide, exact, least_values
from vmtailor.analysis.statistics.stats import compare as judge
from vmtailor.analysis.timeline.analyze import analyze
from vmtailor.analysis.timeline.boot_json import from_json
from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.comparison import ComparedSide, Comparison, ConfigChange, Row, RowVerdict
from vmtailor.model.boots.timeline import PhaseName, Timeline, Warn
from vmtailor.model.verdict import Verdict

#: A difference below a millisecond or a twentieth is of no interest, of items and of phases.
THRESHOLDS = Thresholds(relative=0.05, absolute=1000.0)
#: Items that never reach this are left out of the comparison, unless they are gone or new.
WORTH_US = 100

Key = tuple[str, str, int]

_VERDICTS = {Verdict.BETTER: RowVerdict.FASTER, Verdict.WORSE: RowVerdict.SLOWER, Verdict.SAME: RowVerdict.SAME}


@dataclass(frozen=True)
class _Item:
    duration_us: int
    start_us: int | None
    path: str


def load(path: Path) -> list[Timeline]:
    """The boots at a path: a log, a chart, a saved `analyze --json`, a folder with one boot a file, or what `boot`
    saved: its folder (the machine as it was), or FOLDER/VARIANT."""
    saved = saved_boots(path)
    if saved:
        return [analyze(files) for files in saved]
    if path.is_dir() and not {entry.name for entry in path.iterdir()} & MEMBERS:
        boots = [
            boot
            for entry in sorted(path.iterdir())
            if entry.is_file() and not entry.name.startswith(".")
            for boot in load(entry)
        ]
        if not boots:
            raise UserInputError(f"{path} holds no boots", hint="give a log, or a folder with one log a boot")
        return boots
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(4096).lstrip()
        if head.startswith(b"{") and b'"vmtailor/timeline/' in head[:200]:
            return [from_json(path.read_bytes(), str(path))]
    return [analyze([path])]


def load_side(paths: Sequence[Path]) -> Saved:
    """All that several paths hold of one side: boots, saved series and runs."""
    side = Saved()
    for path in paths:
        record = find(path)
        if record is None:
            side.timelines.extend(load(path))
            continue
        saved = load_saved(record)
        side.timelines.extend(saved.timelines)
        side.config = side.config or saved.config
        side.version = side.version or saved.version
        for key, values in saved.samples.items():
            side.samples.setdefault(key, []).extend(values)
    return side


def compare_sides(before: Saved, after: Saved, names: tuple[str, str]) -> Comparison:
    """Compare two sides. Raises UserInputError when they have nothing in common to compare."""
    if before.timelines and after.timelines:
        found = compare_boots(before.timelines, after.timelines, names)
    elif before.samples and after.samples:
        left, right = (
            ComparedSide(n, 0, side.version or None, None) for n, side in zip(names, (before, after), strict=True)
        )
        found = Comparison(left, right, (), (), (), ())
    else:
        raise UserInputError(
            "the two sides are of different kinds",
            hint="compare logs with logs, and records of one verb with records of it",
        )
    figures = tuple(_figures(before.samples, after.samples))
    config = found.config or tuple(_config(before.config, after.config))
    phases = tuple(row for row in figures if row.kind == "milestone")
    items = tuple(row for row in figures if row.kind != "milestone")
    return msgspec.structs.replace(found, phases=(*phases, *found.phases), items=(*items, *found.items), config=config)


def _figures(before: Samples, after: Samples) -> Iterator[Row]:
    """Figures of records. Counts of instructions and bytes are exact, and so is virtual time: a single one a side is
    enough."""
    for key in dict.fromkeys([*before, *after]):
        kind, name, unit = key
        left, right = before.get(key, []), after.get(key, [])
        row = _row((kind, name, 1), left, right, (len(left), len(right)))
        if left and right and (unit != "µs" or "virtual" in name):
            verdict = _VERDICTS.get(exact(left, right).verdict, RowVerdict.UNDECIDED)
            row = msgspec.structs.replace(row, verdict=verdict, direction="")
        yield msgspec.structs.replace(row, unit=unit)


def compare_boots(before: Sequence[Timeline], after: Sequence[Timeline], names: tuple[str, str]) -> Comparison:
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
    return Comparison(
        _side(before, names[0]),
        _side(after, names[1]),
        tuple(_phases(before, after)),
        tuple(_items(before, after)),
        tuple(_config(before[0].config, after[0].config)),
        tuple(warnings),
    )


def _side(boots: Sequence[Timeline], name: str) -> ComparedSide:
    first = boots[0]
    return ComparedSide(name, len(boots), first.kernel.version, first.kernel.command_line, first.phases)


def _phases(before: Sequence[Timeline], after: Sequence[Timeline]) -> Iterator[Row]:
    for name in PhaseName:
        left, right = _lengths(before, name), _lengths(after, name)
        if left or right:
            yield _row(("phase", str(name), 1), left, right, (len(left), len(right)))
    left = [float(t.total_us) for t in before if t.total_us is not None]
    right = [float(t.total_us) for t in after if t.total_us is not None]
    if left and right:
        yield _row(("phase", "total", 1), left, right, (len(left), len(right)))


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


def _table(boots: Sequence[Timeline]) -> dict[Key, list[_Item]]:
    found: dict[Key, list[_Item]] = defaultdict(list)
    for boot in boots:
        for call in boot.initcalls:
            if call.duration_us is not None:
                name = f"{call.name} [{call.module}]" if call.module else call.name
                found["initcall", name, call.occurrence].append(_Item(call.exclusive_us or 0, call.start_us, call.path))
        for probe in boot.probes:
            if probe.exclusive_us is not None:
                found["probe", probe.name, probe.occurrence].append(
                    _Item(probe.exclusive_us, probe.start_us, probe.path)
                )
        for unit in boot.units:
            if unit.duration_us is not None:
                found["unit", unit.name, 1].append(_Item(unit.duration_us, unit.start_us, ""))
        cpu: dict[str, int] = defaultdict(int)
        for process in boot.processes:
            if not process.observer:
                cpu[process.name] += process.exclusive_us or 0
        for name, used in cpu.items():
            found["process", name, 1].append(_Item(used, None, ""))
    return found


def _items(before: Sequence[Timeline], after: Sequence[Timeline]) -> list[Row]:
    left, right = _table(before), _table(after)
    moved = _moved(left, right)
    rows = []
    for key in dict.fromkeys([*left, *right]):
        a, b = left.get(key, []), right.get(key, [])
        if a and b and max(i.duration_us for i in (*a, *b)) < WORTH_US and key not in moved:
            continue
        boots = (len(a), len(b))
        row = _row(key, [float(i.duration_us) for i in a], [float(i.duration_us) for i in b], boots)
        paths = a[0].path if a else "", b[0].path if b else ""
        away = key in moved or (bool(a) and bool(b) and paths[0] != paths[1])
        verdict = RowVerdict.MOVED if away and row.verdict == RowVerdict.SAME else row.verdict
        rows.append(
            Row(
                row.kind,
                row.name,
                row.occurrence,
                row.before,
                row.after,
                row.change,
                row.low,
                row.high,
                row.p,
                verdict,
                row.direction,
                away,
                boots,
                *paths,
            )
        )
    rows.sort(key=lambda r: -abs(r.change if r.change is not None else (r.before or r.after or 0.0)))
    return rows


def _row(key: Key, left: list[float], right: list[float], boots: tuple[int, int]) -> Row:
    kind, name, occurrence = key
    if not left or not right:
        verdict = RowVerdict.NEW if not left else RowVerdict.GONE
        us = statistics.median(left or right)
        return Row(
            kind,
            name,
            occurrence,
            us if left else None,
            us if right else None,
            us if not left else -us,
            None,
            None,
            None,
            verdict,
            boots=boots,
        )
    found: Difference = judge(left, right, THRESHOLDS)
    change = _VERDICTS.get(found.verdict, RowVerdict.UNDECIDED)
    if found.low is None and abs(found.change) < THRESHOLDS.least(found.before):
        change = RowVerdict.SAME  # too little to matter, whatever the spread
    direction = "" if change != RowVerdict.UNDECIDED else (RowVerdict.FASTER if found.change < 0 else RowVerdict.SLOWER)
    return Row(
        kind,
        name,
        occurrence,
        found.before,
        found.after,
        found.change,
        found.low,
        found.high,
        found.p,
        change,
        direction,
        False,
        boots,
    )


def _moved(left: dict[Key, list[_Item]], right: dict[Key, list[_Item]]) -> set[Key]:
    """Items of both sides that are not in the longest run of items in the same order: what was taken out and put
    elsewhere."""
    order = [
        (key, a[0].start_us, right[key][0].start_us)
        for key, a in left.items()
        if key in right and key[0] in ("initcall", "unit")
    ]
    known = [(key, a, b) for key, a, b in order if a is not None and b is not None]
    known.sort(key=lambda entry: (entry[1], entry[2]))
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


def _config(before: dict[str, str], after: dict[str, str]) -> Iterator[ConfigChange]:
    if not before or not after:
        return
    for symbol in sorted(before.keys() | after.keys()):
        if before.get(symbol) != after.get(symbol):
            yield ConfigChange(symbol, before.get(symbol), after.get(symbol))
