# SPDX-License-Identifier: Apache-2.0
"""What systemd-analyze prints as text: `time`, `blame` and `critical-chain`."""

from __future__ import annotations

import re

from vmtailor.analysis.bootlog.clean import printable
from vmtailor.analysis.bootlog.observed import Observed
from vmtailor.model.boots.timeline import DurationSource, PhaseName, PhaseSpan, Unit

_UNITS_US = {
    "y": 31_557_600_000_000,
    "year": 31_557_600_000_000,
    "month": 2_629_800_000_000,
    "w": 604_800_000_000,
    "week": 604_800_000_000,
    "d": 86_400_000_000,
    "day": 86_400_000_000,
    "h": 3_600_000_000,
    "min": 60_000_000,
    "s": 1_000_000,
    "ms": 1000,
    "us": 1,
    "μs": 1,
    "µs": 1,
    "ns": 0.001,
}
_PART = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?(years?|months?|weeks?|days?|min|ms|us|μs|µs|ns|[ywdhs])(?![a-zA-Zµμ])")
_SPAN = r"(?:\d+(?:\.\d+)?(?:years?|months?|weeks?|days?|min|ms|us|μs|µs|ns|[ywdhs])(?: |(?=\W|$)))+"
_STARTUP = re.compile(r"Startup finished in (.+?)(?:(?:= ?| = )(.*))?$")
_TOTAL = re.compile(r" = (" + _SPAN + r")")
_SAID_ALONE = re.compile(r"[^\w\[]{0,20}Startup finished in ")
_TERM = re.compile(r"(" + _SPAN + r")\s*\((firmware|loader|kernel|initrd|userspace)\)")
_REACHED = re.compile(r"(\S+\.target) reached after (" + _SPAN + r")\s*in userspace")
_BLAME = re.compile(
    r"^\s*("
    + _SPAN
    + r")\s*([^\s@+]\S*\.(?:service|mount|device|socket|swap|target|slice|timer|path|scope|automount))\s*$"
)
_CHAIN = re.compile(
    r"^[\s│├└─●|`-]*(\S+\.(?:service|mount|device|socket|swap|target|slice|timer|path|scope|automount))"
    r"(?: @(" + _SPAN + r"))?\s*(?:\+(" + _SPAN + r"))?\s*$"
)
#: Longer spans are no boot's: 30 years.
MOST_US = 1_000_000_000_000_000
#: How the source of what that line says is named.
STARTUP = "systemd: 'Startup finished'"
_ORDER = (PhaseName.FIRMWARE, PhaseName.LOADER, PhaseName.KERNEL, PhaseName.INITRD, PhaseName.USERSPACE)


def parse_span(text: str) -> int | None:
    """systemd's time span (`1min 9.6s`, `882ms`) in microseconds, or None."""
    total, end = 0, 0
    text = text.strip()
    for part in _PART.finditer(text):
        if text[end : part.start()].strip():
            return None
        end = part.end()
        scale = _UNITS_US[part[3].rstrip("s") if len(part[3]) > 2 and part[3].endswith("s") else part[3]]
        fraction = int(part[2]) * scale / 10 ** len(part[2]) if part[2] else 0
        total += round(int(part[1]) * scale + fraction)
    return total if end and end == len(text) and total < MOST_US else None


def parse_startup_line(text: str) -> list[PhaseSpan]:
    """`Startup finished in 2.093s (kernel) + … (userspace) = …` as phases, kernel at 0. Empty when it is not one."""
    match = _STARTUP.search(text.strip())
    if not match:
        return []
    found = {name: parse_span(span) for span, name in _TERM.findall(match[1])}
    spans = {name: us for name, us in found.items() if us is not None}
    at = -spans.get("firmware", 0) - spans.get("loader", 0)
    phases: list[PhaseSpan] = []
    for name in _ORDER:
        if name in spans:
            phases.append(PhaseSpan(str(name), at, at + spans[name], STARTUP))
            at += spans[name]
    return phases


def is_whole(line: str) -> bool:
    """Whether a `Startup finished` line has its total: mail programs wrap it."""
    return "(" not in line or " = " in line


def read_startup(observed: Observed, line: str) -> bool:
    """Take one of the two lines of `systemd-analyze time`, wherever it is printed. False when it is neither."""
    if "Startup finished in" in line:
        phases = parse_startup_line(line)
        have = [p for p in observed.phases if p.source == STARTUP]
        # The same line again, now with the rest of it, says more.
        if not observed.phases or (have and len(phases) > len(have) == len(observed.phases)):
            observed.phases[:] = phases
            observed.printed_total_us = None
        if phases and observed.printed_total_us is None and phases == observed.phases:
            total = _TOTAL.search(line)
            observed.printed_total_us = parse_span(total[1]) if total else None
        return True
    reached = _REACHED.search(line)
    if not reached:
        return False
    after = parse_span(reached[2])
    begun = next((p.start_us for p in observed.phases if p.name == PhaseName.USERSPACE), None)
    if after is not None and begun is not None:
        observed.mark(f"target:{reached[1]}", begun + after, f"{reached[1]} reached (systemd-analyze)")
    return True


def recognise(text: str) -> str | None:
    """Which of the three it is, by content."""
    if any(_CHAIN.match(line) and "@" in line for line in text.splitlines()[:400]):
        return "systemd-analyze critical-chain"
    # Behind the name of a program it is a line of a journal, which holds more than this.
    if any(_SAID_ALONE.match(line) and parse_startup_line(line) for line in text.splitlines()):
        return "systemd-analyze time"
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and sum(1 for line in lines if _BLAME.match(line)) * 2 > len(lines):
        return "systemd-analyze blame"
    return None


def read(path: str, text: str) -> Observed:
    """Read any mixture of the three: people paste them into one file."""
    kind = recognise(text) or "systemd-analyze"
    observed = Observed(path, kind)
    chain: dict[str, Unit] = {}
    begun_line = ""
    for raw in text.splitlines():
        line = printable(raw.rstrip(), 2000)
        if begun_line:
            line, begun_line = f"{begun_line} {line.strip()}", ""
        if "Startup finished in" in line and not is_whole(line) and len(line) < 1000:
            begun_line = line
        if read_startup(observed, line):
            continue
        blamed = _BLAME.match(line)
        if blamed:
            span = parse_span(blamed[1])
            if span is not None:
                observed.units.append(Unit(blamed[2], None, None, span, None, DurationSource.REPORTED))
            continue
        link = _CHAIN.match(line)
        if link and (link[2] or link[3]) and link[1] not in chain:
            at, took = parse_span(link[2] or ""), parse_span(link[3] or "")
            # Relative to the start of user space; the join adds that when it is known (timeline.py).
            end = at + took if at is not None and took is not None else None
            chain[link[1]] = Unit(
                link[1], at, end, took, None, DurationSource.REPORTED if took is not None else None, True
            )
    begun = next((p.start_us for p in observed.phases if p.name == PhaseName.USERSPACE), None)
    _add_chain(observed, chain, begun)
    return observed


def _add_chain(observed: Observed, chain: dict[str, Unit], userspace_us: int | None) -> None:
    blamed = {unit.name for unit in observed.units}
    shift = userspace_us or 0
    units = []
    for unit in observed.units:
        link = chain.get(unit.name)
        start = link.start_us + shift if link and link.start_us is not None else None
        end = start + unit.duration_us if start is not None and unit.duration_us is not None else None
        units.append(
            Unit(
                unit.name,
                start,
                end,
                unit.duration_us,
                None,
                unit.duration_source,
                True if link else (False if chain else None),
            )
        )
    for name, link in chain.items():
        if name not in blamed:
            start = link.start_us + shift if link.start_us is not None else None
            end = link.end_us + shift if link.end_us is not None else None
            units.append(Unit(name, start, end, link.duration_us, None, link.duration_source, True))
    observed.units = units
    if chain and userspace_us is None:
        observed.relative = True
