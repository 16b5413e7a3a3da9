# SPDX-License-Identifier: Apache-2.0
"""Load the sides of a comparison: logs, saved boots, and runs of a fit."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vmtailor.analysis.bootlog.bootchart import MEMBERS
from vmtailor.analysis.timeline.boot_json import from_json
from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.base import notation
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import plain_files, records
from vmtailor.base.files.records import MOST_BYTES
from vmtailor.base.files.regular_files import read_regular
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.series import RECORD, BootSeries
from vmtailor.model.boots.series import RECORD as SERIES
from vmtailor.model.boots.timeline import Timeline, WarningCode
from vmtailor.model.bundle import RUN
from vmtailor.model.fit_run import FitRun
from vmtailor.model.machine import Clock


def saved_boots(path: Path) -> list[list[Path]]:
    """Return the files of each boot at a path: a folder of `vmtailor boot` (the boots of the machine as it was),
    FOLDER/VARIANT, or the folder of one boot. Boots that did not get ready are left out. Empty where the path is none
    of these."""
    if (path / "console.log").is_file() and is_within(path / "console.log", path):
        return [files_of(path, "")]
    for folder, variant in ((path, ""), (path.parent, path.name)):
        if plain_files.has(folder, RECORD) and (variant == "" or not path.is_file()):
            data = plain_files.read(folder, RECORD, MOST_BYTES)
            series = records.from_bytes(BootSeries, data, str(folder / RECORD))
            wanted = variant or series.variants[0].name
            ready = (one for one in series.entries(wanted) if one.boot.outcome is Outcome.READY)
            return [files for one in ready if (files := files_of(folder, one.folder))]
    return []


def files_of(folder: Path, name: str) -> list[Path]:
    """Return console and chart of one boot among those that a folder holds; none where its record leads out of the
    folder."""
    console, chart = folder / name / "console.log", folder / name / "bootchart"
    if not (is_within(console, folder) and console.is_file()):
        return []
    return [console, *([chart] if is_within(chart, folder) else [])]


def is_within(path: Path, folder: Path) -> bool:
    """Return whether something is there, and in the folder, wherever links lead."""
    return path.exists() and folder.resolve() in path.resolve().parents


#: kind, name, unit → the samples.
Samples = dict[tuple[str, str, str], list[float]]


@dataclass
class Saved:
    """The boots, samples and configuration that a record holds for a comparison. `clocks`: of the machine, by which its
    times were told; "" where none are. `machines`: of its machines, by the name of a fact, every value that was
    seen."""

    timelines: list[Timeline] = field(default_factory=list)
    samples: Samples = field(default_factory=dict)
    config: dict[str, str] = field(default_factory=dict)
    version: str = ""
    left_out: list[str] = field(default_factory=list)
    clocks: str = ""
    machines: dict[str, set[str]] = field(default_factory=dict)

    def is_of(self, facts: Iterable[tuple[str, str | int | None]]) -> None:
        """Note facts of one of its machines. Those that are not known are left out."""
        for name, value in facts:
            if value:
                self.machines.setdefault(name, set()).add(str(value))

    def adds(self, timeline: Timeline) -> None:
        """Add a boot, with the machine that its log tells."""
        self.timelines.append(timeline)
        kernel, machine = timeline.kernel, timeline.machine
        self.is_of(
            (
                ("processor family", kernel.arch), ("kind", machine.kind), ("model", machine.model),
                ("hypervisor", machine.hypervisor), ("processor", machine.processor), ("processors", machine.cpus),
            )
        )  # fmt: skip


def find(path: Path) -> Path | None:
    """Return the record at a path: the file itself, or the one in the folder."""
    if path.is_dir():
        return next((path / name for name in (SERIES, RUN) if plain_files.has(path, name)), None)
    return path if path.name in (SERIES, RUN) else None


def lone_run(record: Path) -> FitRun:
    """Return the record of a fit that lies in no bundle, or whose bundle does not matter. Raises UserInputError."""
    return records.load(FitRun, record)


#: Reads the record of a fit. That of a bundle has to be read with its digest, which this package cannot do.
ReadRun = Callable[[Path], FitRun]


def load_record(record: Path, read_run: ReadRun = lone_run) -> Saved:
    """Read a record. Raises UserInputError when it is damaged or of another version."""
    if record.name == SERIES:
        return _series(records.load(BootSeries, record), record.parent)
    return _run(read_run(record))


def _series(series: BootSeries, folder: Path) -> Saved:
    """Return the boots of the machine as it was given; boots that never got ready have no place in a comparison of
    times."""
    machine = series.variants[0].machine
    counted = machine.clock is Clock.INSTRUCTIONS
    saved = Saved(clocks=f"{machine.clock} clock, {machine.accelerator}")
    saved.is_of(
        (
            ("machine", machine.board), ("processor family", machine.architecture), ("CPU model", machine.cpu_model),
            ("processors", machine.cpus), ("memory", notation.mebibytes(machine.memory_bytes)),
        )
    )  # fmt: skip
    for one in series.entries("base") or series.boots:
        if one.boot.outcome is not Outcome.READY:
            continue
        for mark in one.boot.milestones:
            # On the instruction clock, the host's time is that of counting.
            if counted and mark.virtual_ns is not None:
                saved.samples.setdefault(("milestone", f"{mark.name}, virtual", "µs"), []).append(mark.virtual_ns / 1e3)
            if not counted and mark.wall_s is not None:
                saved.samples.setdefault(("milestone", mark.name, "µs"), []).append(mark.wall_s * 1e6)
            if mark.executed is not None:
                saved.samples.setdefault(("milestone", mark.name, "instructions"), []).append(float(mark.executed))
        for name, unit, count in _of_monitor(one.boot):
            saved.samples.setdefault(("monitor", name, unit), []).append(float(count))
        if files := files_of(folder, one.folder):
            saved.timelines.append(_timeline(files))  # of the machine that the record says
    return saved


def _of_monitor(boot: Boot) -> Iterator[tuple[str, str, int]]:
    """Yield the figures of a boot in the lab until it was ready: name, unit, count."""
    if boot.monitor is None or (until := boot.monitor.until("ready")) is None:
        return
    yield "exits", "", until.exits
    yield "host kernel", "instructions", until.host_kernel
    yield "monitor itself", "instructions", until.host_user
    yield "guest kernel", "instructions", until.guest_kernel
    yield "guest user", "instructions", until.guest_user
    for cause in boot.monitor.causes:
        yield f"exits, {cause.cause}", "", cause.exits


def _run(run: FitRun) -> Saved:
    config = {symbol.id: symbol.value for symbol in run.plan.symbols}
    saved = Saved(config=config, version=run.plan.kernel_version)
    said = dict(run.tailored.conditions)
    saved.is_of(
        (
            ("machine", run.plan.machine), ("processor family", run.plan.architecture),
            ("CPU model", said.get("cpu model")), ("processors", run.plan.cpus), ("memory", said.get("memory")),
        )
    )  # fmt: skip
    for name, value in _figures(run):
        unit = (
            "bytes"
            if "bytes" in name
            else ("µs" if name.endswith("_us") else "instructions" if "instructions" in name else "")
        )
        saved.samples["figure", name, unit] = [value]
    for name, instructions in run.tailored.initcalls:
        saved.samples.setdefault(("initcall", name, "instructions"), []).append(float(instructions))
    return saved


def _figures(run: FitRun) -> Iterator[tuple[str, float]]:
    for entry in dataclasses.fields(run.tailored):
        value = getattr(run.tailored, entry.name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and entry.name != "boots":
            yield entry.name, float(value)


def _timeline(files: Sequence[Path]) -> Timeline:
    """Return the timeline of one boot. A comparison shows neither hot spots nor advice."""
    return analyze(files, ranked=False)


def _load(path: Path) -> tuple[list[Timeline], list[str]]:
    """Return the boots at a path, and the names of files that hold none. A path is a log, a chart, a saved `analyze
    --json`, a folder with one boot a file or a folder, or what `boot` saved: its folder (the machine as it was), or
    FOLDER/VARIANT."""
    saved = saved_boots(path)
    if saved:
        return [_timeline(files) for files in saved], []
    if path.is_dir() and not {entry.name for entry in path.iterdir()} & MEMBERS:
        boots: list[Timeline] = []
        left_out: list[str] = []
        for entry in sorted(path.iterdir()):
            if entry.name.startswith("."):
                continue
            inner = sorted(one for one in entry.iterdir() if one.is_file()) if entry.is_dir() else []
            found = [_timeline(inner)] if inner else _load(entry)[0] if entry.is_file() else []
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
    return [_timeline([path])], []


def load_side(paths: Sequence[Path], read_run: ReadRun = lone_run) -> Saved:
    """Load all that several paths hold of one side: boots, saved series and runs, those by `read_run`. Raises
    UserInputError where times of different clocks would become one side."""
    side = Saved()
    for path in paths:
        record = find(path)
        if record is None:
            boots, left_out = _load(path)
            for boot in boots:
                side.adds(boot)
            side.left_out.extend(left_out)
            continue
        saved = load_record(record, read_run)
        side.timelines.extend(saved.timelines)
        for name, seen in saved.machines.items():
            side.machines.setdefault(name, set()).update(seen)
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


def runs_of(paths: Sequence[Path], read_run: ReadRun = lone_run) -> tuple[FitRun, ...] | None:
    """Return the runs of fit at these paths, where all are, and not all of one processor; None otherwise.

    Raises UserInputError for a record that is damaged or of another version."""
    found = [find(path) for path in paths]
    if any(one is None or one.name != RUN for one in found):
        return None
    runs = tuple(read_run(one) for one in found if one is not None)
    return runs if len({run.plan.architecture for run in runs}) > 1 else None


def side_names(before: Path, after: Path) -> tuple[str, str]:
    """Return the names of two sides: the shortest ends of their paths that differ, such as the names of their
    folders."""
    left, right = before.absolute().parts, after.absolute().parts
    for count in range(1, max(len(left), len(right)) + 1):
        if left[-count:] != right[-count:]:
            one, other = left[-count:], right[-count:]
            # A common ending says nothing: a/boots.json and b/boots.json are a and b.
            while len(one) > 1 and len(other) > 1 and one[-1] == other[-1]:
                one, other = one[:-1], other[:-1]
            return "/".join(one), "/".join(other)
    return before.name or str(before), after.name or str(after)
