# SPDX-License-Identifier: Apache-2.0
"""ftrace's initcall events: `initcall_level`, `initcall_start`, `initcall_finish`, each with the trace clock's
stamp."""

from __future__ import annotations

import re

from vmtailor.analysis.bootlog.boot_record import Observed, RawCall
from vmtailor.analysis.bootlog.log_lines import Cleaner, Content, decode
from vmtailor.analysis.bootlog.stamps import micros
from vmtailor.model.boots.timeline import WarningCode

#: `  swapper/0-1     [000] .....     0.123456: initcall_start: func=foo_init+0x0/0x10`
_EVENT = re.compile(
    rb"\s*(\S.{0,30}?)-(\d{1,10})\s+(?:\([ \d-]+\)\s+)?\[\d+\]\s+(?:\S{4,6}\s+)?"
    rb"(\d{1,9})\.(\d{1,9}): (initcall_(?:level|start|finish)): (.*)"
)
_FUNC = re.compile(rb"func=([\w.$]+)(?:\+0x[0-9a-f]+/0x[0-9a-f]+)?(?: \[([\w.-]+)\])?(?: ret=(-?\d{1,10}))?")
_LEVEL = re.compile(rb"level=(\w{1,30})")


def read(content: Content) -> Observed:
    """Read the text of a trace. Other events in it are passed over."""
    observed = Observed(content.path)
    waiting: dict[tuple[str, str | None], list[RawCall]] = {}
    level: str | None = None
    for line in Cleaner(content.sample).lines(content.stream()):
        match = _EVENT.match(line)
        if not match:
            if line.startswith(b"CPU:") and b"LOST" in line:
                observed.warn(WarningCode.MESSAGES_DROPPED, f"the trace lost events: {decode(line, 60)}")
            continue
        at = micros(match[3], match[4])
        observed.first_us = at if observed.first_us is None else observed.first_us
        observed.last_us = at
        kind, rest = match[5], match[6]
        if kind == b"initcall_level":
            found = _LEVEL.match(rest)
            level = decode(found[1], 30) if found else level
            continue
        func = _FUNC.match(rest)
        if not func:
            continue
        name, module = decode(func[1], 200), decode(func[2], 60) if func[2] else None
        if kind == b"initcall_start":
            call = RawCall(
                name=name,
                module=module,
                start_us=at,
                end_us=None,
                reported_us=None,
                returned=None,
                task=int(match[2]),
                level=level,
                asynchronous=False,
                finished=False,
            )
            observed.initcalls.append(call)
            waiting.setdefault((name, module), []).append(call)
            continue
        opened = waiting.get((name, module))
        if opened:
            call = opened.pop()
        else:
            call = RawCall(
                name=name,
                module=module,
                start_us=None,
                end_us=None,
                reported_us=None,
                returned=None,
                task=int(match[2]),
                level=level,
                asynchronous=False,
                finished=True,
            )
            observed.initcalls.append(call)
        call.end_us, call.finished = at, True
        call.returned = int(func[3]) if func[3] else None
    return observed
