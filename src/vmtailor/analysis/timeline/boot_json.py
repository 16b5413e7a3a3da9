# SPDX-License-Identifier: Apache-2.0
"""A timeline as bytes: JSON in pieces (a long boot has a million rows), CSV, and Chrome's trace events for Perfetto."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.model.boots.timeline import Initcall, Path, Probe, Process, Timeline, UnitSpan

if TYPE_CHECKING:
    from vmtailor.base.verb_end import NextCommand

_BATCH = 5000


def json_chunks(timeline: Timeline, tries: Sequence[NextCommand] | None = None) -> Iterator[bytes]:
    """Return the document of `analyze --json`: `schema` first, then the fields in their order, and the commands that
    try its advice as `tries`. One row a line, so that it can be read."""
    encoder = msgspec.json.Encoder()
    yield b'{"schema":' + encoder.encode(Timeline.SCHEMA)
    for name in timeline.__struct_fields__:
        value = getattr(timeline, name)
        yield b",\n" + encoder.encode(name) + b":"
        if isinstance(value, (list, tuple)):
            yield from _rows(encoder, value)
        else:
            yield encoder.encode(value)
    if tries is not None:
        yield b",\n" + encoder.encode(TRIES) + b":"
        yield from _rows(encoder, [{"does": plain(one.does), "command": one.text} for one in tries])
    yield b"}\n"


#: The field with commands, which follow from the timeline and are no part of it.
TRIES = "tries"


def _rows(encoder: msgspec.json.Encoder, rows: Sequence[Any]) -> Iterator[bytes]:
    yield b"["
    for start in range(0, len(rows), _BATCH):
        lines = encoder.encode_lines(rows[start : start + _BATCH]).rstrip(b"\n").replace(b"\n", b",\n ")
        yield (b"\n " if start == 0 else b",\n ") + lines
    yield b"]"


def from_json(data: bytes, origin: str) -> Timeline:
    """Return a saved document. Raises UserInputError when it is of another schema or damaged."""
    try:
        document = msgspec.json.decode(data)
        if not isinstance(document, dict) or document.pop("schema", None) not in Timeline.READ:
            raise UserInputError(
                f"{origin} is not a timeline of this version ({Timeline.SCHEMA})",
                hint="run vmtailor analyze --json again",
            )
        document.pop(TRIES, None)
        return msgspec.convert(document, Timeline)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError) as error:
        raise UserInputError(f"{origin} is damaged: {error}", hint="run vmtailor analyze --json again") from error


COLUMNS = (
    "kind",
    "name",
    "module",
    "occurrence",
    "start_us",
    "end_us",
    "duration_us",
    "exclusive_us",
    "duration_source",
    "reported_us",
    "stamps_us",
    "returned",
    "task",
    "path",
)


def to_csv(timeline: Timeline) -> str:
    """Return every item as one row, for a spreadsheet. Cells that could be taken for formulas get a quote in front."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for phase in timeline.phases:
        took = phase.end_us - phase.start_us if phase.end_us is not None and phase.start_us is not None else None
        writer.writerow(["phase", phase.name, "", "", phase.start_us, phase.end_us, took, "", "", "", "", "", "", ""])
    for gap in timeline.gaps:
        name = _cell(gap.name)
        times = [gap.start_us, gap.end_us, gap.end_us - gap.start_us, gap.own_us]
        writer.writerow(["gap", name, "", "", *times, "time-stamps", "", "", "", "", gap.path])
    groups: tuple[tuple[str, Sequence[Any]], ...] = (
        ("initcall", timeline.initcalls),
        ("probe", timeline.probes),
        ("unit", timeline.units),
        ("process", timeline.processes),
    )
    for kind, rows in groups:
        for row in rows:
            cells = [kind, *(getattr(row, column, None) for column in COLUMNS[1:])]
            if kind == "process":
                cells[COLUMNS.index("task")] = row.pid
            writer.writerow([_cell(cell) for cell in cells])
    return out.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@"):
        return "'" + value
    return value


def trace_events(timeline: Timeline) -> bytes:
    """Return Chrome trace-event JSON. One process a kind; threads are tasks, lanes of units, or processes."""
    events: list[dict[str, Any]] = []
    for pid, name in enumerate(("phases", "kernel", "beside", "units", "processes", "silences"), 1):
        events.append({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}})
    for phase in timeline.phases:
        if phase.start_us is not None and phase.end_us is not None:
            events.append(
                _event(1, 1, phase.name, (phase.start_us, phase.end_us - phase.start_us), {"source": phase.source})
            )
    for call in timeline.initcalls:
        _add(events, call, 2 if call.path == Path.CRITICAL else 3, call.task or 1)
    lanes: list[int] = []
    for probe in timeline.probes:
        if probe.start_us is None or probe.duration_us is None:
            continue
        critical = probe.path == Path.CRITICAL
        _add(
            events,
            probe,
            2 if critical else 3,
            1 if critical else 10_000 + _lane(lanes, probe.start_us, probe.duration_us),
        )
    lanes = []
    for unit in timeline.units:
        if unit.start_us is not None and unit.duration_us is not None:
            _add(events, unit, 4, 1 + _lane(lanes, unit.start_us, unit.duration_us))
    for gap in timeline.gaps:
        around = {"before": gap.before, "after": gap.after, "exclusive_us": gap.own_us}
        events.append(_event(6, 1 if gap.silent else 2, gap.name, (gap.start_us, gap.end_us - gap.start_us), around))
    for process in timeline.processes:
        _add(events, process, 5, process.pid or 0)
    for sample in timeline.samples:
        values = {
            k: v
            for k, v in (("user", sample.user), ("system", sample.system), ("waiting", sample.waiting))
            if v is not None
        }
        if values:
            events.append({"ph": "C", "pid": 5, "tid": 0, "name": "processor", "ts": sample.at_us, "args": values})
    return msgspec.json.encode({"displayTimeUnit": "ms", "traceEvents": events})


def _lane(lanes: list[int], start_us: int, duration_us: int) -> int:
    for n, end in enumerate(lanes):
        if end <= start_us:
            lanes[n] = start_us + duration_us
            return n
    lanes.append(start_us + duration_us)
    return len(lanes) - 1


def _add(events: list[dict[str, Any]], row: Initcall | Probe | UnitSpan | Process, pid: int, tid: int) -> None:
    bar = row.bar_us if isinstance(row, Initcall) else None
    if bar is None:
        if row.start_us is None or row.duration_us is None:
            return
        bar = row.start_us, row.duration_us
    details: dict[str, Any] = {"exclusive_us": row.exclusive_us, "source": row.duration_source}
    if isinstance(row, Process) and row.waiting_us is not None:
        details["waiting_us"] = row.waiting_us
    events.append(_event(pid, tid, row.name, bar, details))


def _event(pid: int, tid: int, name: str, times: tuple[int, int], details: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "pid": pid, "tid": tid, "name": name, "ts": times[0], "dur": times[1], "args": details}
