# SPDX-License-Identifier: Apache-2.0
"""Read what systemd-analyze prints: `time`, `blame` and `critical-chain` as text, `plot` as JSON and as a drawing."""

from __future__ import annotations

import re

from vmtailor.analysis.bootlog.boot_record import Observed, architecture
from vmtailor.analysis.bootlog.log_lines import Content, printable
from vmtailor.analysis.bootlog.milestones import SPAN, is_whole, parse_span, read_startup
from vmtailor.model.boots.timeline import DurationSource, PhaseName, PhaseSpan, UnitSpan, WarningCode

#: A row of `blame`.
BLAME = re.compile(
    r"^\s*("
    + SPAN
    + r")\s*([^\s@+]\S*\.(?:service|mount|device|socket|swap|target|slice|timer|path|scope|automount))\s*$"
)
#: A unit of `critical-chain`.
CHAIN = re.compile(
    r"^(?:[\s│├└─●|`]|-(?!\.))*+(\S+\.(?:service|mount|device|socket|swap|target|slice|timer|path|scope|automount))"
    r"(?: @(" + SPAN + r"))?\s*+(?:\+(" + SPAN + r"))?\s*+$"
)


def read_text(content: Content) -> Observed:
    """Read any mixture of the three: people paste them into one file."""
    observed = Observed(content.path)
    chain: dict[str, UnitSpan] = {}
    begun_line = ""
    for raw in content.text.splitlines():
        line = printable(raw.rstrip(), 2000)
        if begun_line:
            line, begun_line = f"{begun_line} {line.strip()}", ""
        if "Startup finished in" in line and not is_whole(line) and len(line) < 1000:
            begun_line = line
        if read_startup(observed, line):
            continue
        blamed = BLAME.match(line)
        if blamed:
            span = parse_span(blamed[1])
            if span is not None:
                observed.units.append(
                    UnitSpan(
                        name=blamed[2],
                        start_us=None,
                        end_us=None,
                        duration_us=span,
                        exclusive_us=None,
                        duration_source=DurationSource.REPORTED,
                    )
                )
            continue
        link = CHAIN.match(line)
        if link and (link[2] or link[3]) and link[1] not in chain:
            at, took = parse_span(link[2] or ""), parse_span(link[3] or "")
            # Relative to the start of user space; the join adds that when it is known (timeline/join.py).
            end = at + took if at is not None and took is not None else None
            chain[link[1]] = UnitSpan(
                name=link[1],
                start_us=at,
                end_us=end,
                duration_us=took,
                exclusive_us=None,
                duration_source=DurationSource.REPORTED if took is not None else None,
                critical=True,
            )
    begun = next((p.start_us for p in observed.phases if p.name == PhaseName.USERSPACE), None)
    _add_chain(observed, chain, begun)
    return observed


def _add_chain(observed: Observed, chain: dict[str, UnitSpan], userspace_us: int | None) -> None:
    blamed = {unit.name for unit in observed.units}
    shift = userspace_us or 0
    units = []
    for unit in observed.units:
        link = chain.get(unit.name)
        start = link.start_us + shift if link and link.start_us is not None else None
        end = start + unit.duration_us if start is not None and unit.duration_us is not None else None
        units.append(
            UnitSpan(
                name=unit.name,
                start_us=start,
                end_us=end,
                duration_us=unit.duration_us,
                exclusive_us=None,
                duration_source=unit.duration_source,
                critical=True if link else (False if chain else None),
            )
        )
    for name, link in chain.items():
        if name not in blamed:
            start = link.start_us + shift if link.start_us is not None else None
            end = link.end_us + shift if link.end_us is not None else None
            units.append(
                UnitSpan(
                    name=name,
                    start_us=start,
                    end_us=end,
                    duration_us=link.duration_us,
                    exclusive_us=None,
                    duration_source=link.duration_source,
                    critical=True,
                )
            )
    observed.units = units
    if chain and userspace_us is None:
        observed.relative = True


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


def read_json(content: Content) -> Observed:
    """Read `plot --json`. A unit whose activation never ended has no duration."""
    observed = Observed(content.path)
    odd = 0
    for row in content.document if isinstance(content.document, list) else ():
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
            UnitSpan(
                name=printable(row["name"], 256),
                start_us=start,
                end_us=end,
                duration_us=took,
                exclusive_us=None,
                duration_source=DurationSource.REPORTED.value if took is not None else None,
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


def read_svg(content: Content) -> Observed:
    """Read the drawing: bars give times, labels names and durations. Bars are told from their class and row."""
    observed = Observed(content.path)
    text = _without_legend(content.drawing)
    for line in (_unescape(line).strip() for plain in _PLAIN.findall(text) for line in plain.splitlines()):
        read_startup(observed, line)
        host = _HOST.match(line, at) if (at := line.find("(Linux ")) >= 0 else None
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
                observed.units.append(
                    UnitSpan(
                        name="generators",
                        start_us=at,
                        end_us=at + wide_us,
                        duration_us=wide_us,
                        exclusive_us=None,
                        duration_source=DurationSource.DRAWING.value,
                    )
                )
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
        observed.units.append(
            UnitSpan(
                name=name,
                start_us=start,
                end_us=start + took,
                duration_us=took,
                exclusive_us=None,
                duration_source=source.value,
            )
        )
    if not observed.phases:
        observed.phases.extend(drawn)
    return observed


def _without_legend(text: str) -> str:
    """Return the drawing without its last part, whose bars only explain colours. It is the one without marks of
    time."""
    head, found, last = text.rpartition("<g ")
    return head if found and not _MARK.search(last) and _MARK.search(head) else text


def _scale(marks: list[tuple[float, float]]) -> tuple[float, float]:
    """Return pixels a second and the pixel of second 0, from the drawing's own time labels."""
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
