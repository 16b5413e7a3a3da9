# SPDX-License-Identifier: Apache-2.0
"""Two sides of boots: each phase and each item gone, new, faster, slower, moved, the same, or not to be told."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from vmtailor.analysis.bootlog.bootchart import MEMBERS
from vmtailor.analysis.compare.compare_saved import Samples, Saved, find
from vmtailor.analysis.compare.compare_saved import load as load_saved
from vmtailor.analysis.compare.rows import EXACT, THRESHOLDS, Item, Key, moved, row, usual_path, with_modes
from vmtailor.analysis.compare.saved_boots import saved_boots
from vmtailor.analysis.statistics.significance import Thresholds, can_decide, exact, least_values
from vmtailor.analysis.timeline.analyze import analyze
from vmtailor.analysis.timeline.boot_json import from_json
from vmtailor.base.errors import UserInputError
from vmtailor.base.files.records import MOST_BYTES
from vmtailor.base.files.regular_files import read_regular
from vmtailor.model.boots.comparison import ComparedSide, Comparison, ConfigChange, Row, RowVerdict
from vmtailor.model.boots.timeline import PhaseName, Timeline, Warn, WarningCode

#: Items that never reach this are left out of the comparison, unless they are gone or new.
WORTH_US = 100


def _load(path: Path) -> tuple[list[Timeline], list[str]]:
    """The boots at a path, and the names of files that hold none. A path is a log, a chart, a saved `analyze --json`, a
    folder with one boot a file or a folder, or what `boot` saved: its folder (the machine as it was), or
    FOLDER/VARIANT."""
    saved = saved_boots(path)
    if saved:
        return [analyze(files) for files in saved], []
    if path.is_dir() and not {entry.name for entry in path.iterdir()} & MEMBERS:
        boots: list[Timeline] = []
        left_out: list[str] = []
        for entry in sorted(path.iterdir()):
            if entry.name.startswith("."):
                continue
            inner = sorted(one for one in entry.iterdir() if one.is_file()) if entry.is_dir() else []
            found = [analyze(inner)] if inner else _load(entry)[0] if entry.is_file() else []
            timed = [boot for boot in found if not any(w.code == WarningCode.NOTHING_FOUND for w in boot.warnings)]
            boots.extend(timed)
            left_out += [] if timed else [entry.name]
        if not boots:
            raise UserInputError(f"{path} holds no boots", hint="give a log, or a folder with one log a boot")
        return boots, left_out
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(4096).lstrip()
        if head.startswith(b"{") and b'"vmtailor/timeline/' in head[:200]:
            return [from_json(read_regular(path, "the timeline", MOST_BYTES), str(path))], []
    return [analyze([path])], []


def load_side(paths: Sequence[Path]) -> Saved:
    """All that several paths hold of one side: boots, saved series and runs. Raises UserInputError where times of
    different clocks would become one side."""
    side = Saved()
    for path in paths:
        record = find(path)
        if record is None:
            boots, left_out = _load(path)
            side.timelines.extend(boots)
            side.left_out.extend(left_out)
            continue
        saved = load_saved(record)
        side.timelines.extend(saved.timelines)
        side.config = side.config or saved.config
        side.version = side.version or saved.version
        if side.clocks and saved.clocks not in ("", side.clocks):
            raise UserInputError(
                f"one side's boots are of different clocks: {side.clocks}, and {saved.clocks} in {path}",
                hint="name them apart",
            )
        side.clocks = side.clocks or saved.clocks
        for key, values in saved.samples.items():
            side.samples.setdefault(key, []).extend(values)
    return side


def side_names(before: Path, after: Path) -> tuple[str, str]:
    """What two sides are called: the shortest ends of their paths that differ, such as the names of their folders."""
    left, right = before.absolute().parts, after.absolute().parts
    for count in range(1, max(len(left), len(right)) + 1):
        if left[-count:] != right[-count:]:
            one, other = left[-count:], right[-count:]
            # What both end in says nothing: a/boots.json and b/boots.json are a and b.
            while len(one) > 1 and len(other) > 1 and one[-1] == other[-1]:
                one, other = one[:-1], other[:-1]
            return "/".join(one), "/".join(other)
    return before.name or str(before), after.name or str(after)


#: What boots consist of, as rows name it.
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
        found = Comparison(left, right, (), (), (), (), thresholds.relative, thresholds.absolute)
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
        warnings=(*found.warnings, *left_out),
    )


def _figures(before: Samples, after: Samples, thresholds: Thresholds) -> Iterator[Row]:
    """Figures of records. Counts of instructions and bytes are exact, and so is virtual time: a single one a side is
    enough."""
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
        for side, modes in ((names[0], one.before_modes), (names[1], one.after_modes)):
            if modes:
                groups = " and ".join(f"{mode.median / 1e6:.3f} s ({mode.boots} boots)" for mode in modes)
                warnings.append(Warn("two-modes", f"{one.name} of {side} is {groups}, mixed: its median is of neither"))
    lacking = {kind: title for kind in _KINDS for title in _lacking(kind, before, after, names)}
    warnings += [
        Warn("unlike", f"{title} has no {kind}s that are timed, so they are not compared: its files do not show them")
        for kind, title in lacking.items()
    ]
    items = [one for one in _items(before, after, thresholds) if one.kind not in lacking]
    return Comparison(
        _side(before, names[0]),
        _side(after, names[1]),
        phases,
        tuple(items),
        tuple(_config(before[0].config, after[0].config)),
        tuple(warnings),
        thresholds.relative,
        thresholds.absolute,
    )


def _lacking(kind: str, before: Sequence[Timeline], after: Sequence[Timeline], names: tuple[str, str]) -> Iterator[str]:
    """The side of which no file shows anything of a kind that the other one's do."""
    there = [any(key[0] == kind for key in _table(side)) for side in (before, after)]
    if any(there):
        yield from (name for name, has in zip(names, there, strict=True) if not has)


def _side(boots: Sequence[Timeline], name: str) -> ComparedSide:
    first = boots[0]
    return ComparedSide(name, len(boots), first.kernel.version, first.kernel.command_line, first.phases)


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
