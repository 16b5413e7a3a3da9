# SPDX-License-Identifier: Apache-2.0
"""systemd-bootchart's drawing: processes as bars, initcalls as bars, their names and processor time as labels."""

from __future__ import annotations

import re

from vmtailor.analysis.bootlog.clean import printable
from vmtailor.analysis.bootlog.milestones import architecture
from vmtailor.analysis.bootlog.observed import Observed, RawCall
from vmtailor.model.boots.timeline import DurationSource, PhaseName, PhaseSpan, Process

_N = r"(-?\d{1,9}(?:\.\d{1,6})?)"
_SCALE = re.compile(rf'<!-- x="{_N}" y="{_N}" -->')
_LOG_START = re.compile(r"Log start time: (\d{1,6}\.\d{1,6})s")
_IDLE = re.compile(r"Idle time: (\d{1,6}(?:\.\d{1,6})?)(ms|s)<")
_SYSTEM = re.compile(r">System: Linux (\S+) .*? (\S+)</text>")
_OPTIONS = re.compile(r">Boot options: ([^<]{1,4096})</text>")
_COMMENT = re.compile(r"<!-- (.{0,200}?) \[(\d{1,10})\] ppid=(\d{1,10}) runtime=(\d{1,12}\.\d{1,6})ms -->")
_BAR = re.compile(rf'<rect class="(ps|krnl)" x="{_N}" y="{_N}" width="{_N}" height="{_N}"')
_INITCALL = re.compile(rf'<text x="{_N}" y="{_N}">([\w.$]{{1,200}}) <tspan class="run">{_N}(ms|s)</tspan>')


def recognise(sample: str) -> bool:
    """Whether an SVG is systemd-bootchart's."""
    return "bootchart SVG file" in sample[:6000] or "Bootchart for" in sample[:12000]


def read(path: str, text: str) -> Observed:
    """Read the drawing. Times are as exact as its pixels; processor times are those written in it."""
    observed = Observed(path, "systemd-bootchart (SVG)")
    scale_match = _SCALE.search(text)
    scale = float(scale_match[1]) if scale_match and float(scale_match[1]) > 0.001 else 100.0
    start_match, system, options = _LOG_START.search(text), _SYSTEM.search(text), _OPTIONS.search(text)
    zero = round(float(start_match[1]) * 1e6) if start_match else 0
    if system:
        observed.version, observed.arch = system[1], architecture(system[2])
    if options:
        observed.command_line = printable(options[1].strip(), 4096)
    last = _processes(observed, text, scale, zero)
    _initcalls(observed, text)
    idle = _IDLE.search(text)
    if idle:
        end = zero + round(float(idle[1]) * (1e3 if idle[2] == "ms" else 1e6))
        observed.phases.append(
            PhaseSpan(PhaseName.USERSPACE, zero, end, "log start to the moment the chart calls idle")
        )
    elif last is not None:
        observed.phases.append(
            PhaseSpan(PhaseName.USERSPACE, zero, last, "first and last sample; the chart saw no idle moment")
        )
    return observed


def _processes(observed: Observed, text: str, scale: float, zero: int) -> int | None:
    """A comment names each process; where it was not filtered out, its bar follows before the next comment."""
    comments = list(_COMMENT.finditer(text))
    last: int | None = None
    for n, comment in enumerate(comments):
        end = comments[n + 1].start() if n + 1 < len(comments) else len(text)
        bar = _BAR.search(text, comment.end(), min(end, comment.end() + 4000))
        cpu = round(float(comment[4]) * 1000)
        start = stop = None
        if bar and bar[1] == "ps":
            start = zero + round(float(bar[2]) / scale * 1e6)
            stop = start + round(float(bar[4]) / scale * 1e6)
            last = max(last or stop, stop)
        name = printable(comment[1], 120)
        observed.processes.append(
            Process(
                name, int(comment[2]), int(comment[3]), start, stop, stop - start if start is not None and stop is not
                None else None,
                cpu, DurationSource.DRAWING.value if start is not None else None, "bootchart" in name,
            )
        )  # fmt: skip
    return last


def _initcalls(observed: Observed, text: str) -> None:
    """Initcalls longer than the chart cared about; where they stand is only drawn relative to the chart, so only
    their length is taken."""
    for _, _, name, figure, unit in _INITCALL.findall(text):
        took = round(float(figure) * (1e3 if unit == "ms" else 1e6))
        observed.initcalls.append(RawCall(printable(name, 200), None, None, None, took, 0, None, None, False, True))
