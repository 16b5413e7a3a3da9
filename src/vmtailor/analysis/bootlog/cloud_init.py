# SPDX-License-Identifier: Apache-2.0
"""`cloud-init analyze`: show, blame and boot as text, dump as JSON. Stages become units named `cloud-init:STAGE`."""

from __future__ import annotations

import datetime
import re

from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.log_lines import Content, printable
from vmtailor.model.boots.timeline import DurationSource, PhaseName, PhaseSpan, UnitSpan, WarningCode

_STAGE = re.compile(r"Starting stage: (\S{1,100})")
_FINISHED = re.compile(r"Finished stage: \((\S{1,100})\) (\d{1,7}\.\d{1,9}) seconds")
_EVENT = re.compile(r"^[|` >-]++(.{1,200}?) @(\d{1,7}\.\d{1,9})s \+(\d{1,7}\.\d{1,9})s\s*$")
#: A row of `blame`.
BLAME = re.compile(r"^\s*(\d{1,7}\.\d{1,9})s \(([^()\s]{1,200})\)\s*$")
_BOOT = re.compile(
    r"^\s*(Kernel Started at|Kernel ended boot at|Cloud-init activated by systemd at"
    r"|Cloud-init start|Cloud-init activated at): "
    r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
)
#: Named source of the kernel's phase that `boot` gives.
BOOT = "cloud-init analyze boot"
#: Items that begin this early are in the first stage, at whose start the times are 0.
_FIRST_US = 1_000_000
_RECORD = re.compile(r"-- Boot Record (\d+) --")


def read_text(content: Content) -> Observed:
    """Read show, blame or boot. Of several boot records the last counts."""
    text = content.text
    observed = Observed(content.path, relative=True, has_stages=True)
    records = _RECORD.split(text)
    # Outputs of several commands, one behind the other, have the same records twice.
    numbers = list(dict.fromkeys(records[1::2]))
    if len(numbers) > 1:
        observed.warn(WarningCode.SEVERAL_BOOTS, f"{len(numbers)} boot records; this is the last")
    bodies = [body for number, body in zip(records[1::2], records[2::2], strict=False) if number == numbers[-1]]
    _boot(observed, text)
    shown: list[UnitSpan] = []
    blamed_rows: list[UnitSpan] = []
    for body in bodies or [text]:
        stages, rows = _stages(body)
        shown.extend(stages)
        blamed_rows.extend(rows)
    observed.units.extend(shown or blamed_rows)  # what `blame` says is in `show`, with its start
    if not any(u.start_us is not None for u in observed.units) and not observed.phases:
        observed.relative = False
    return observed


def _stages(body: str) -> tuple[list[UnitSpan], list[UnitSpan]]:
    """Return the units of one record: stages with what ran in them, and the rows of `blame`."""
    units: list[UnitSpan] = []
    blamed_rows: list[UnitSpan] = []
    inside: list[UnitSpan] = []
    stage, first = "", True
    for raw in body.splitlines():
        line = printable(raw, 1000)
        begun, finished, event, blamed = (
            _STAGE.search(line),
            _FINISHED.search(line),
            _EVENT.match(line),
            BLAME.match(line),
        )
        if begun:
            stage, inside = begun[1], []
        elif finished:
            units.extend((_around(finished[1], _us(finished[2]), inside, first), *inside))
            stage, inside, first = "", [], False
        elif event:
            # The text says that `@` is when the event was over, but cloud-init prints when it began (util:
            # event_record).
            start, took = _us(event[2]), _us(event[3])
            name = f"cloud-init:{stage}/{event[1].strip()}" if stage else f"cloud-init:{event[1].strip()}"
            (inside if stage else units).append(
                UnitSpan(
                    name=name,
                    start_us=start,
                    end_us=start + took,
                    duration_us=took,
                    exclusive_us=None,
                    duration_source=DurationSource.REPORTED.value,
                )
            )
        elif blamed:
            name = f"cloud-init:{blamed[2]}"
            blamed_rows.append(
                UnitSpan(
                    name=name,
                    start_us=None,
                    end_us=None,
                    duration_us=_us(blamed[1]),
                    exclusive_us=None,
                    duration_source=DurationSource.REPORTED.value,
                )
            )
    units.extend(inside)  # of a stage that did not finish
    return units, blamed_rows


def _around(stage: str, took_us: int, inside: list[UnitSpan], first: bool) -> UnitSpan:
    """Return a stage around what ran in it. Its start is not printed: the first of a boot is where the times count
    from, the others begin with what they do first, as far as that holds all of it. Its own time is what is left of
    it."""
    starts = [u.start_us for u in inside if u.start_us is not None]
    ends = [u.end_us for u in inside if u.end_us is not None]
    start = None
    if starts:
        begin = 0 if first and min(starts) < _FIRST_US and max(ends) <= took_us else min(starts)
        start = max(0, min(begin, max(ends) - took_us)) if max(ends) - begin > took_us else begin
    own = max(0, took_us - sum(u.duration_us or 0 for u in inside))
    end = None if start is None else start + took_us
    return UnitSpan(
        name=f"cloud-init:{stage}",
        start_us=start,
        end_us=end,
        duration_us=took_us,
        exclusive_us=own,
        duration_source=DurationSource.REPORTED.value,
    )


def _us(text: str) -> int:
    whole, _, fraction = text.partition(".")
    return int(whole) * 1_000_000 + int(fraction[:6].ljust(6, "0"))


def _boot(observed: Observed, text: str) -> None:
    moments: dict[str, int] = {}
    for line in text.splitlines():
        match = _BOOT.match(line)
        if match:
            try:
                day = datetime.date.fromisoformat(match[2]).toordinal() - 719_163
            except ValueError:
                continue
            seconds = day * 86_400 + int(match[3]) * 3600 + int(match[4]) * 60 + int(match[5])
            moments[match[1]] = seconds * 1_000_000 + int((match[6] or "0").ljust(6, "0"))
    kernel, over = moments.get("Kernel Started at"), moments.get("Kernel ended boot at")
    if kernel is None or over is None or over < kernel:
        return
    observed.relative, observed.epoch_zero_us = False, kernel
    observed.phases.append(PhaseSpan(PhaseName.KERNEL, 0, over - kernel, BOOT))
    for name in ("Cloud-init activated by systemd at", "Cloud-init activated at"):
        if name in moments and moments[name] >= over:
            observed.mark("cloud-init-activated", moments[name] - kernel, name)


def read_dump(content: Content) -> Observed:
    """Read `dump`: pairs of start and finish events with wall-clock stamps."""
    observed = Observed(content.path, epoch=True, has_stages=True)
    begun: dict[str, int] = {}
    odd = 0
    for row in content.document if isinstance(content.document, list) else ():
        if not isinstance(row, dict):
            odd += 1
            continue
        name, kind, at = row.get("name"), row.get("event_type"), row.get("timestamp")
        if not isinstance(name, str) or isinstance(at, bool) or not isinstance(at, (int, float)) or not 0 <= at < 1e11:
            odd += 1
            continue
        moment = round(at * 1_000_000)
        if kind == "start":
            if name in begun and name == "init-local":
                observed.warn(WarningCode.SEVERAL_BOOTS, "the dump holds several boots; this is the last")
                observed.units.clear()
                begun.clear()
            begun[name] = moment
        elif kind == "finish" and name in begun:
            start = begun.pop(name)
            took = max(0, moment - start)
            observed.units.append(
                UnitSpan(
                    name=f"cloud-init:{printable(name, 200)}",
                    start_us=start,
                    end_us=start + took,
                    duration_us=took,
                    exclusive_us=None,
                    duration_source=DurationSource.TIME_STAMPS.value,
                )
            )
    for name, start in begun.items():
        observed.units.append(
            UnitSpan(
                name=f"cloud-init:{printable(name, 200)}",
                start_us=start,
                end_us=None,
                duration_us=None,
                exclusive_us=None,
                duration_source=None,
            )
        )
    if odd:
        observed.warn(WarningCode.DAMAGED_LINES, f"{odd} rows of the dump could not be read")
    return observed
