# SPDX-License-Identifier: Apache-2.0
"""What the tests of boot logs share: text in, timeline out."""

from __future__ import annotations

from pathlib import Path

from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.model.boots.timeline import Initcall, Probe, Timeline, UnitSpan

DATA = Path(__file__).resolve().parents[2] / "data" / "boot"


def timeline_of(folder: Path, *texts: str | bytes) -> Timeline:
    """The timeline of one boot whose files hold these texts."""
    paths = []
    for n, text in enumerate(texts):
        path = folder / f"file-{n}"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        paths.append(path)
    return analyze(paths)


def call(timeline: Timeline, name: str, occurrence: int = 1) -> Initcall:
    """The one initcall of that name and occurrence."""
    (found,) = [c for c in timeline.initcalls if c.name == name and c.occurrence == occurrence]
    return found


def probe(timeline: Timeline, device: str, occurrence: int = 1) -> Probe:
    """The one probe of that device and occurrence."""
    (found,) = [p for p in timeline.probes if p.device == device and p.occurrence == occurrence]
    return found


def unit(timeline: Timeline, name: str) -> UnitSpan:
    """The one unit of that name."""
    (found,) = [u for u in timeline.units if u.name == name]
    return found


def codes(timeline: Timeline) -> set[str]:
    """The codes of its warnings."""
    return {w.code for w in timeline.warnings}


def times(timeline: Timeline) -> dict[str, tuple[int | None, int | None]]:
    """Phase → start and end."""
    return {str(p.name): (p.start_us, p.end_us) for p in timeline.phases}
