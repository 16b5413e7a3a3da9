# SPDX-License-Identifier: Apache-2.0
"""Choose the remedies of the catalogue that fit a boot, and the saving to expect: only what lies on its critical path
counts."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import msgspec

from vmtailor.analysis.bootlog.milestones import parse_span
from vmtailor.analysis.bootlog.silences import named_within, without_inner
from vmtailor.analysis.changes.change_catalogue import SPOKEN, KnownChange, Match, Way, catalogue, in_range, is_for
from vmtailor.model.boots.timeline import (
    STAGES,
    GapSpan,
    Hotspot,
    Path,
    PhaseName,
    Remedy,
    Timeline,
    UnitSpan,
)

#: Items shorter than this are not worth a remedy.
WORTH_US = 200
#: Only the longest initcalls are looked at, at most this many; a kernel has less than half of it.
MOST_ROWS = 5000
#: Signs named for one remedy, at most.
MOST_SEEN = 8

#: With this a boot ends. After a fault it may go on.
PANIC = "Kernel panic - not syncing"
_CALL_LINES = ("initcall ", "calling ", "probe of ")

Messages = Sequence[tuple[int | None, str]]


@dataclass
class _Found:
    """The lines that speak for one remedy. `critical_us` counts towards the saving, `beside_us` does not. `hears`
    decides by the sign (`KIND NAME`) whether the remedy may speak of it; `signs` has those that it does."""

    hears: Callable[[str], bool] = field(default=lambda _: True)
    seen: list[str] = field(default_factory=list)
    signs: dict[str, None] = field(default_factory=dict)
    critical_us: int = 0
    beside_us: int = 0
    timed: bool = False
    silent_us: int = 0
    gaps: set[int] = field(default_factory=set)

    def add_gap(self, sign: str, gap: GapSpan) -> None:
        """Add a silence once, whatever signs it is of. A silence that the boot may not have waited for has no
        figure."""
        if gap.start_us not in self.gaps:
            name = f"{gap.title}, after '{gap.before[:60]}'" if gap.title else f"silence after '{gap.before[:70]}'"
            us = gap.own_us if gap.path == Path.CRITICAL else None
            if self.add(sign, name, us):
                self.gaps.add(gap.start_us)
                self.silent_us += us or 0
        elif self.hears(sign):
            self.signs[sign] = None

    def add(self, sign: str, what: str, us: int | None = None, path: str = Path.CRITICAL) -> bool:
        """Add an item by its sign. False where the remedy may not speak of it."""
        if not self.hears(sign):
            return False
        self.signs[sign] = None
        self.seen.append(what)
        if us is not None:
            self.timed = True
            if path == Path.BESIDE:
                self.beside_us += us
            else:
                self.critical_us += us
        return True


class _Facts:
    """The timeline's rows by what a match looks at, long ones only."""

    def __init__(self, timeline: Timeline, messages: Messages) -> None:
        self.timeline = timeline
        self.messages = messages
        long = [c for c in timeline.initcalls if (c.duration_us or 0) >= WORTH_US]
        self.initcalls = heapq.nlargest(MOST_ROWS, long, key=lambda c: c.duration_us or 0)
        self.probes = [p for p in timeline.probes if (p.duration_us or 0) >= WORTH_US]
        # An item within an initcall or a probe has its figure there.
        self.gaps = [gap for gap in without_inner(timeline.gaps) if gap.own_us >= WORTH_US]
        self.machine, self.arch = timeline.machine, timeline.kernel.arch


def advise(timeline: Timeline, messages: Messages) -> Timeline:
    """Return the timeline with the remedies that fit it, the largest saving first, and their ids at the hot spots they
    concern."""
    if any(text.startswith(PANIC) for _, text in messages):
        return timeline  # what ended it is to be mended: no figure of it is one of a boot
    facts = _Facts(timeline, messages)
    remedies: list[Remedy] = []
    applied: list[tuple[KnownChange, _Found]] = []
    for entry in catalogue():
        if not is_for(entry, facts.arch) or not entry.audience.reaches(facts.machine, facts.arch):
            continue
        if any(_look(facts, match, _Found()) for match in entry.unless):
            continue
        found = _Found(_ears(facts, entry))
        for match in entry.matches:
            _look(facts, match, found)
        if found.seen:
            remedy = _remedy(facts, entry, found)
            remedies.append(remedy)
            if remedy.applies:
                applied.append((entry, found))
    remedies.sort(key=lambda r: (not r.applies, -(r.saving_us or 0), r.saving_us is None, r.id))
    spots = tuple(
        msgspec.structs.replace(spot, advice=_concerned(spot, applied, timeline.gaps)) for spot in timeline.hotspots
    )
    return msgspec.structs.replace(timeline, advice=tuple(remedies), hotspots=spots)


def _remedy(facts: _Facts, entry: KnownChange, found: _Found) -> Remedy:
    version = facts.timeline.kernel.version
    applies = in_range(version, entry.from_version, entry.until_version)
    saving = _saving(facts, entry, found) if applies else None
    why, confidence = entry.costs, entry.confidence
    if not applies:
        why = entry.gone or f"it needs kernel {entry.from_version} or later"
    elif found.beside_us and not found.critical_us:
        why, confidence = f"{why}; here it runs beside the boot, so leaving it out gains little", "low"
    elif entry.judged_on:
        why = f"{why}; judge it on the {entry.judged_on}"
    steps = tuple(
        f"{SPOKEN[s.kind]}: {s.what}"
        for s in entry.ways
        if in_range(version, s.from_version, s.until_version) and _is_way(facts, s, found)
    )
    seen = tuple(dict.fromkeys(found.seen))[:MOST_SEEN]
    return Remedy(entry.id, entry.title, applies, saving, confidence, why, steps, entry.risk, seen, entry.published)


def _ears(facts: _Facts, entry: KnownChange) -> Callable[[str], bool]:
    return lambda sign: entry.audience.hears(sign, facts.machine, facts.arch)


def _is_way(facts: _Facts, way: Way, found: _Found) -> bool:
    """Return whether a way is one for this machine and for a sign that was found."""
    return not way.needs or any(
        one.met(facts.machine, facts.arch) and any(one.of_sign(sign) for sign in found.signs) for one in way.needs
    )


def _saving(facts: _Facts, entry: KnownChange, found: _Found) -> int | None:
    console = facts.timeline.console
    if entry.saving in ("console", "printing"):
        costs = [us for us in (console.cost_us if console else None, found.critical_us or None) if us is not None]
        return _bounded(facts, max(costs, default=None))
    if entry.saving == "silence":
        return _bounded(facts, found.silent_us or None)
    if entry.saving in ("none", "phase-part", "phase-over"):
        return None
    return _bounded(facts, found.critical_us if found.timed else None)


def _bounded(facts: _Facts, us: int | None) -> int | None:
    """Bound a saving by the length of the boot that the files show."""
    shown = facts.timeline.shown_us
    return us if us is None or shown is None else min(us, shown)


def _look(facts: _Facts, match: Match, found: _Found) -> bool:
    """Add what matches to `found`. True when anything did."""
    before = len(found.seen)
    _LOOKS[match.kind](facts, match, found)
    return len(found.seen) > before


def _initcalls(facts: _Facts, match: Match, found: _Found) -> None:
    for call in facts.initcalls:
        if (call.duration_us or 0) >= match.min_us and match.pattern.fullmatch(call.name):
            found.add(f"initcall {call.name}", f"initcall {call.name}", call.exclusive_us, call.path)


def _probes(facts: _Facts, match: Match, found: _Found) -> None:
    for probe in facts.probes:
        own = probe.exclusive_us or 0
        if own >= max(match.min_us, WORTH_US) and match.pattern.fullmatch(probe.device):
            found.add(f"probe {probe.device}", f"probe {probe.device}", own, probe.path)


def _absent(facts: _Facts, match: Match, found: _Found) -> None:
    for probe in facts.probes:
        own = probe.exclusive_us or 0
        if own >= match.min_us and abs(probe.returned or 0) == 19 and match.pattern.fullmatch(probe.device):
            found.add(f"probe {probe.device}", f"probe {probe.device} returned {probe.returned}", own, probe.path)


def _deferrals(facts: _Facts, match: Match, found: _Found) -> None:
    for row in facts.timeline.deferrals:
        if row.spent_us >= match.min_us:
            what = f"probe {row.device} put off {row.times} times"
            if found.add(f"deferral {row.device}", what, row.spent_us - row.beside_us):
                found.beside_us += row.beside_us


def _modules(facts: _Facts, match: Match, found: _Found) -> None:
    for module in facts.timeline.modules:
        if (module.duration_us or 0) >= match.min_us and match.pattern.fullmatch(module.name):
            found.add(f"module {module.name}", f"module {module.name}", module.duration_us, Path.BESIDE)


def _units(facts: _Facts, match: Match, found: _Found) -> None:
    services = any(u.name.startswith("cloud-") and u.duration_us for u in facts.timeline.units if ":" not in u.name)
    for unit in facts.timeline.units:
        if (unit.duration_us or 0) >= max(match.min_us, WORTH_US) and match.pattern.fullmatch(unit.name):
            own = unit.path_us if unit.critical else unit.exclusive_us
            if unit.name.startswith(STAGES) and services:
                own = None  # it ran within one of them, whose time counts
            path = Path.BESIDE if unit.critical is False else Path.CRITICAL
            if (match.beside or path == Path.CRITICAL) and _begins_in(facts, match.phase, unit):
                found.add(f"unit {unit.name}", f"unit {unit.name}", own, path)


def _begins_in(facts: _Facts, name: str, unit: UnitSpan) -> bool:
    """Return whether a unit begins in a phase; true where no phase is asked for."""
    if not name:
        return True
    phase = facts.timeline.phase(name)
    if phase is None or phase.start_us is None or phase.end_us is None or unit.start_us is None:
        return False
    return phase.start_us <= unit.start_us < phase.end_us


def _gaps(facts: _Facts, match: Match, found: _Found) -> None:
    """Return the candidates among silences by the message before. An initcall's or a probe's line says nothing of what
    follows: it was over."""
    for gap in facts.gaps:
        if not gap.silent or gap.own_us < max(match.min_us, WORTH_US) or gap.before.startswith(_CALL_LINES):
            continue
        if match.pattern.search(gap.before) and _ends_with(match, gap):
            found.add_gap(f"gap {gap.before}", gap)


def _ends_with(match: Match, gap: GapSpan) -> bool:
    return match.to is None or match.to.search(gap.after) is not None


def _silences(facts: _Facts, match: Match, found: _Found) -> None:
    """Return the candidates among silences and stretches by their kind (data/boot_gaps.toml); `min_us` is the least of
    all of them together."""
    gaps = [g for g in facts.gaps if g.kind and match.pattern.fullmatch(g.kind) and _ends_with(match, g)]
    if sum(gap.own_us for gap in gaps) >= max(match.min_us, WORTH_US):
        for gap in gaps:
            found.add_gap(f"silence {gap.kind}: {gap.before}", gap)


def _messages(facts: _Facts, match: Match, found: _Found) -> None:
    for _, text in facts.messages:
        if match.pattern.search(text) and found.add(f"message {text}", f"message '{text[:80]}'"):
            return


def _told(facts: _Facts, match: Match, found: _Found) -> None:
    """Add what messages say that something took which the boot waited for."""
    for _, text in facts.messages:
        said = match.pattern.search(text)
        took = parse_span(said[1].strip()) if said else None
        if took is not None:
            found.add(f"told {text}", f"message '{text[:80]}'", took)


def _late(facts: _Facts, match: Match, found: _Found) -> None:
    """Late since the kernel began: some count from their firmware's start."""
    kernel = next((p for p in facts.timeline.phases if p.name == PhaseName.KERNEL), None)
    began_us = (kernel.start_us if kernel is not None else None) or 0
    for at_us, text in facts.messages:
        if match.pattern.search(text):
            if at_us is not None and at_us - began_us >= match.min_us:
                found.add(f"message {text}", f"message '{text[:80]}' at {at_us / 1e6:.3f} s")
            return


def _span(facts: _Facts, match: Match, found: _Found) -> None:
    begun: tuple[int, str] | None = None
    for at_us, text in facts.messages:
        if at_us is None:
            continue
        if begun is None:
            if match.pattern.search(text):
                begun = (at_us, text)
        elif match.to is not None and match.to.search(text):
            us = at_us - begun[0]
            if us >= max(match.min_us, WORTH_US) and begun[0] not in found.gaps:
                # A test or a wait of another kind within it is credited to that.
                us -= named_within(facts.timeline.gaps, begun[0], at_us) if us else 0
                found.add(f"span {begun[1]}", f"from '{begun[1][:60]}' to '{text[:60]}'", max(0, us))
            return


def _config(facts: _Facts, match: Match, found: _Found) -> None:
    for symbol, value in facts.timeline.config.items():
        if match.pattern.fullmatch(symbol) and (match.value is None or match.value.fullmatch(value)):
            found.add(f"config {symbol}={value}", f"CONFIG_{symbol}={value}")


def _config_unset(facts: _Facts, match: Match, found: _Found) -> None:
    config = facts.timeline.config
    if config and not any(match.pattern.fullmatch(symbol) for symbol in config):
        found.add(f"config-unset {match.pattern.pattern}", f"CONFIG_{match.pattern.pattern} is not set")


def _command_line(facts: _Facts, match: Match, found: _Found) -> None:
    if match.pattern.search(facts.timeline.kernel.command_line or ""):
        found.add(f"command-line {facts.timeline.kernel.command_line}", "command line")


def _arch(facts: _Facts, match: Match, found: _Found) -> None:
    if facts.timeline.kernel.arch and match.pattern.fullmatch(facts.timeline.kernel.arch):
        found.add(f"arch {facts.timeline.kernel.arch}", "architecture")


def _phase(facts: _Facts, match: Match, found: _Found) -> None:
    phase = facts.timeline.phase(match.pattern.pattern)
    if phase is None:
        return
    took = phase.end_us - phase.start_us if phase.end_us is not None and phase.start_us is not None else None
    if match.kind == "phase" or (took is not None and took >= match.min_us):
        found.add(f"phase {phase.name}", f"phase {phase.name}", took)


def _console(facts: _Facts, match: Match, found: _Found) -> None:
    if any(spot.kind == "console" for spot in facts.timeline.hotspots):
        found.add("console", "console-inflated figures")


def _waiting(facts: _Facts, match: Match, found: _Found) -> None:
    samples, total = facts.timeline.samples, 0.0
    for before, sample in pairwise(samples):
        total += (sample.waiting or 0.0) * (sample.at_us - before.at_us)
    if total >= match.min_us:
        found.add("waiting", f"the processors waited for disks during {total / 1e6:.1f} s")


_LOOKS = {
    "initcall": _initcalls,
    "probe": _probes,
    "absent-probe": _absent,
    "deferral": _deferrals,
    "module": _modules,
    "unit": _units,
    "gap": _gaps,
    "silence": _silences,
    "message": _messages,
    "told": _told,
    "late-message": _late,
    "span": _span,
    "config": _config,
    "config-unset": _config_unset,
    "command-line": _command_line,
    "arch": _arch,
    "phase": _phase,
    "phase-length": _phase,
    "console": _console,
    "waiting": _waiting,
}

#: Kinds of match that point at a kind of hot spot.
_SPOTS = {
    "initcall": "initcall",
    "probe": "probe",
    "absent-probe": "probe",
    "unit": "unit",
    "gap": "gap",
    "silence": "gap",
    "console": "console",
}


def _concerned(
    spot: Hotspot, entries: Sequence[tuple[KnownChange, _Found]], gaps: Sequence[GapSpan]
) -> tuple[str, ...]:
    name = spot.name.partition(" [")[0] if spot.kind == "initcall" else spot.name
    mine = [g for g in gaps if spot.name == g.name] if spot.kind == "gap" else []
    signs = {f"{spot.kind} {name}"}
    signs |= {sign for g in mine for sign in (f"gap {g.before}", f"silence {g.kind}: {g.before}")}
    ids = []
    for entry, found in entries:
        # The console's spot is of no name of its own, and a sign that was found but not heard is no advice.
        if spot.kind != "console" and not signs & found.signs.keys():
            continue
        for match in entry.matches:
            if _SPOTS.get(match.kind) != spot.kind or (spot.duration_us or spot.exclusive_us) < match.min_us:
                continue
            if match.kind != "absent-probe" and match.pattern.pattern != ".*" and _points_at(match, name, mine):
                ids.append(entry.id)
                break
    return tuple(ids)


def _points_at(match: Match, name: str, gaps: Sequence[GapSpan]) -> bool:
    if match.kind == "silence":
        return any(gap.kind and match.pattern.fullmatch(gap.kind) for gap in gaps)
    if match.kind == "gap":
        return any(not g.before.startswith(_CALL_LINES) and match.pattern.search(g.before) for g in gaps)
    return (match.pattern.search(name) if match.kind == "console" else match.pattern.fullmatch(name)) is not None
