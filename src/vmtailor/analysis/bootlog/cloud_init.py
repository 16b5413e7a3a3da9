# SPDX-License-Identifier: Apache-2.0
"""`cloud-init analyze`: show, blame and boot as text, dump as JSON. Stages become units named `cloud-init:STAGE`."""

from __future__ import annotations

import datetime
import re

from vmtailor.analysis.bootlog.clean import printable
from vmtailor.analysis.bootlog.observed import Observed
from vmtailor.model.boots.timeline import DurationSource, PhaseName, PhaseSpan, Unit, WarningCode

_STAGE = re.compile(r"Starting stage: (\S{1,100})")
_FINISHED = re.compile(r"Finished stage: \((\S{1,100})\) (\d{1,7}\.\d{1,9}) seconds")
_EVENT = re.compile(r"^[|` >-]+(.{1,200}?) @(\d{1,7}\.\d{1,9})s \+(\d{1,7}\.\d{1,9})s\s*$")
_BLAME = re.compile(r"^\s*(\d{1,7}\.\d{1,9})s \(([^()\s]{1,200})\)\s*$")
_BOOT = re.compile(
    r"^\s*(Kernel Started at|Kernel ended boot at|Cloud-init activated by systemd at"
    r"|Cloud-init start|Cloud-init activated at): "
    r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"
)
_RECORD = re.compile(r"-- Boot Record (\d+) --")


def recognise(text: str) -> bool:
    """Whether it is text of `cloud-init analyze`."""
    return (
        (
            "-- Boot Record" in text
            and ("Starting stage:" in text or any(_BLAME.match(line) for line in text.splitlines()[:400]))
        )
        or "-- Most Recent Boot Record --" in text
        or ("Kernel Started at:" in text and "Cloud-init" in text)
    )


def is_dump(document: object) -> bool:
    """Whether decoded JSON is that of `cloud-init analyze dump`."""
    return (
        isinstance(document, list) and bool(document) and isinstance(document[0], dict)
        and {"event_type", "timestamp"} <= set(document[0])
    )  # fmt: skip


def read_text(path: str, text: str) -> Observed:
    """Read show, blame or boot. Of several boot records the last counts."""
    observed = Observed(path, "cloud-init analyze", relative=True)
    records = _RECORD.split(text)
    if len(records) > 3:
        observed.warn(WarningCode.SEVERAL_BOOTS, f"{len(records) // 2} boot records; this is the last")
    body = records[-1] if len(records) > 1 else text
    _boot(observed, text)
    stage = ""
    for raw in body.splitlines():
        line = printable(raw, 1000)
        begun, finished, event, blamed = (
            _STAGE.search(line),
            _FINISHED.search(line),
            _EVENT.match(line),
            _BLAME.match(line),
        )
        if begun:
            stage = begun[1]
        elif finished:
            observed.units.append(
                Unit(f"cloud-init:{finished[1]}", None, None, _us(finished[2]), None, DurationSource.REPORTED.value)
            )
            stage = ""
        elif event:
            # The text says that `@` is when the event was over, but cloud-init prints when it began (util:
            # event_record).
            start, took = _us(event[2]), _us(event[3])
            name = f"cloud-init:{stage}/{event[1].strip()}" if stage else f"cloud-init:{event[1].strip()}"
            observed.units.append(Unit(name, start, start + took, took, None, DurationSource.REPORTED.value))
        elif blamed:
            observed.units.append(
                Unit(f"cloud-init:{blamed[2]}", None, None, _us(blamed[1]), None, DurationSource.REPORTED.value)
            )
    if not any(u.start_us is not None for u in observed.units) and not observed.phases:
        observed.relative = False
    return observed


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
    observed.phases.append(PhaseSpan(PhaseName.KERNEL, 0, over - kernel, "cloud-init analyze boot"))
    for name in ("Cloud-init activated by systemd at", "Cloud-init activated at"):
        if name in moments and moments[name] >= over:
            observed.mark("cloud-init-activated", moments[name] - kernel, name)


def read_dump(path: str, rows: list[object]) -> Observed:
    """Read `dump`: pairs of start and finish events with wall-clock stamps."""
    observed = Observed(path, "cloud-init analyze dump", epoch=True)
    begun: dict[str, int] = {}
    odd = 0
    for row in rows:
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
                Unit(
                    f"cloud-init:{printable(name, 200)}",
                    start,
                    start + took,
                    took,
                    None,
                    DurationSource.TIME_STAMPS.value,
                )
            )
    for name, start in begun.items():
        observed.units.append(Unit(f"cloud-init:{printable(name, 200)}", start, None, None, None, None))
    if odd:
        observed.warn(WarningCode.DAMAGED_LINES, f"{odd} rows of the dump could not be read")
    return observed
