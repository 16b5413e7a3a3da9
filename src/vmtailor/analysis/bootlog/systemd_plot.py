# SPDX-License-Identifier: Apache-2.0
"""`systemd-analyze plot`: its JSON (microseconds) and its drawing (100 pixels a second, read back to a hundredth of a
pixel)."""

from __future__ import annotations

import re

from vmtailor.analysis.bootlog.clean import printable
from vmtailor.analysis.bootlog.milestones import architecture
from vmtailor.analysis.bootlog.observed import Observed
from vmtailor.analysis.bootlog.systemd_text import parse_span, read_startup
from vmtailor.base.notation import decoded_json
from vmtailor.model.boots.timeline import DurationSource, PhaseSpan, Unit, WarningCode

#: Pixels a second, unless the drawing's own labels say otherwise.
PIXELS = 100.0
_NUMBER = r"(-?\d{1,9}(?:\.\d{1,6})?)"
_MARK = re.compile(r'class="sec\d*"')  # "security" is the class of a bar
_SECOND = re.compile(rf'<text class="sec" x="{_NUMBER}"[^>]*>(-?\d+\.\d+)s</text>')
_RECT = re.compile(rf'<rect class="(\w[\w-]*)" x="{_NUMBER}" y="{_NUMBER}" width="{_NUMBER}" height="{_NUMBER}"')
_LABEL = re.compile(rf'<text class="(?:left|right)" x="{_NUMBER}" y="{_NUMBER}">([^<]{{1,400}})</text>')
_PLAIN = re.compile(r'<text x="20(?:\.0+)?" y="\d+(?:\.0+)?">([^<]{1,1000})</text>')
_NAMED = re.compile(r"^(.*?)(?: \(([^()]*)\))?$")
_HOST = re.compile(r"\(Linux (\S+) .*\) ([\w-]+)(?: (\S+))?\s*$")
_PHASES = ("firmware", "loader", "kernel", "initrd")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&quot;", '"'), ("&apos;", "'"), ("&amp;", "&"))


def is_plot_json(document: object) -> bool:
    """Whether decoded JSON is that of `plot --json`."""
    return (
        isinstance(document, list) and bool(document) and isinstance(document[0], dict)
        and {"name", "activating", "activated"} <= set(document[0])
    )  # fmt: skip


def read_json(path: str, rows: list[object]) -> Observed:
    """Read `plot --json`. A unit whose activation never ended has no duration."""
    observed = Observed(path, "systemd-analyze plot (JSON)")
    odd = 0
    for row in rows:
        if not isinstance(row, dict) or not isinstance(row.get("name"), str):
            odd += 1
            continue
        start, end, took = (_micros(row.get(key)) for key in ("activating", "activated", "time"))
        start = start or None
        if start is not None and (end is None or end < start):
            end = start + took if took else None
        if took is None and start is not None and end is not None:
            took = end - start
        observed.units.append(
            Unit(
                printable(row["name"], 256),
                start,
                end,
                took,
                None,
                DurationSource.REPORTED.value if took is not None else None,
            )
        )
    if odd:
        observed.warn(WarningCode.DAMAGED_LINES, f"{odd} rows of the plot could not be read")
    return observed


def _micros(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return int(value) if 0 <= value < 1 << 60 else None
    if isinstance(value, str):
        return parse_span(value)
    return None


def is_plot_svg(sample: str) -> bool:
    """Whether an SVG is systemd-analyze's."""
    return "systemd-analyze" in sample[:4000] or "rect.activating" in sample


def read_svg(path: str, text: str) -> Observed:
    """Read the drawing: bars give times, labels names and durations. Bars are told from their class and row."""
    observed = Observed(path, "systemd-analyze plot (SVG)")
    text = _without_legend(text)
    for line in (_unescape(line).strip() for plain in _PLAIN.findall(text) for line in plain.splitlines()):
        read_startup(observed, line)
        host = _HOST.search(line)
        if host:
            observed.version, observed.arch = host[1], architecture(host[2])
            observed.hypervisor = host[3] if host[3] and host[3] != "none" else None
    marks = [(float(x), float(seconds)) for x, seconds in _SECOND.findall(text)[:2000]]
    scale, zero = _scale(marks)
    bars: dict[float, dict[str, tuple[float, float]]] = {}
    for kind, x, y, width, _ in _RECT.findall(text):
        bars.setdefault(float(y), {})[kind] = (float(x), float(width))
    drawn: list[PhaseSpan] = []
    for _, y, label in _LABEL.findall(text):
        row = bars.get(round((float(y) - 14.0), 3))
        if row is None:
            continue
        named = _NAMED.match(_unescape(label))
        name = printable(named[1] if named else label, 256)
        if (name in _PHASES and name in row) or (name in ("systemd", "userspace") and "active" in row):
            x, width = row.get(name, row.get("active", (0.0, 0.0)))
            phase = "userspace" if name in ("systemd", "userspace") else name
            begin = (x - zero) / scale
            if "generators" in row:
                left, wide = row["generators"]
                at, wide_us = round((left - zero) / scale * 1e6), round(wide / scale * 1e6)
                observed.units.append(Unit("generators", at, at + wide_us, wide_us, None, DurationSource.DRAWING.value))
            drawn.append(
                PhaseSpan(phase, round(begin * 1e6), round((begin + width / scale) * 1e6), "systemd: drawing of plot")
            )
            continue
        if "activating" not in row:
            continue
        x, width = row["activating"]
        start = round((x - zero) / scale * 1e6)
        took = parse_span(named[2]) if named and named[2] else None
        source = DurationSource.REPORTED if took is not None else DurationSource.DRAWING
        took = took if took is not None else round(width / scale * 1e6)
        observed.units.append(Unit(name, start, start + took, took, None, source.value))
    if not observed.phases:
        observed.phases.extend(drawn)
    return observed


def _without_legend(text: str) -> str:
    """The drawing without its last part, whose bars only explain colours. It is the one without marks of time."""
    head, found, last = text.rpartition("<g ")
    return head if found and not _MARK.search(last) and _MARK.search(head) else text


def _scale(marks: list[tuple[float, float]]) -> tuple[float, float]:
    """Pixels a second and the pixel of second 0, from the drawing's own time labels."""
    for x, seconds in reversed(marks):
        first_x, first_s = marks[0]
        if seconds != first_s and x > first_x:
            scale = (x - first_x) / (seconds - first_s)
            if scale > 0.01:
                return scale, first_x - first_s * scale
    return PIXELS, 0.0


def _unescape(text: str) -> str:
    for entity, char in _ENTITIES:
        text = text.replace(entity, char)
    return text


def decode_cut(data: bytes) -> object:
    """JSON whose end was lost: a list of objects, or one of them in an object, as far as its elements go. None when
    it is not that."""
    whole = data[: data.rfind(b"}") + 1]
    start = data.lstrip()[:1]
    for _ in range(2):
        if not whole or start not in (b"[", b"{"):
            return None
        document = decoded_json(whole + (b"]" if start == b"[" else b"]}"))
        if document is not None:
            return document
        whole = whole[: whole.rfind(b"}", 0, len(whole) - 1) + 1]
    return None
