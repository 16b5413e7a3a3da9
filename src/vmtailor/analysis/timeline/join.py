# SPDX-License-Identifier: Apache-2.0
"""Several files of one boot on one clock: the kernel's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from vmtailor.analysis.bootlog import kernel_build
from vmtailor.analysis.bootlog.boot_record import LATE_US, RESOLVED_US, Observed
from vmtailor.analysis.bootlog.milestones import STARTUP, shift_log
from vmtailor.model.boots.timeline import DurationSource, PhaseName, PhaseSpan, Process, UnitSpan, WarningCode

#: The units that cloud-init's first stage runs in.
FIRST_STAGES = ("cloud-init-local.service", "cloud-init-main.service")

#: Facts that the first file which knows them decides, and moments and lengths, of which 0 is one.
_FIRST_NAMED = ("version", "arch", "command_line", "hypervisor", "clocksource", "config", "symbols")
_FIRST_TIMED = ("clocksource_switch_us", "charted_total_us", "printed_total_us")
#: Fields that only the first kernel log gives.
_OF_THE_LOG = (
    "kernel_log", "stamped", "coarse", "first_us", "last_us", "first_line_seen", "lines", "characters", "printed",
    "messages", "gaps", "relative", "arrived", "milliseconds", "loader",
    "clock_from_us", "clock_set_us", "login_after_us",
)  # fmt: skip

Span = TypeVar("Span", PhaseSpan, UnitSpan, Process)


def join(sources: Sequence[Observed]) -> Observed:
    """Return one Observed from all. The first file that knows a thing decides; what cannot be placed keeps its own
    zero, with a warning."""
    whole = Observed(sources[0].path if sources else "", "joined")
    _on_systemds_clock(sources)
    for source in sorted(sources, key=_trust):
        _facts(whole, source)
    zero = next((s.epoch_zero_us for s in sources if s.epoch_zero_us is not None), None)
    _best_of_cloud_init(sources)
    for source in sorted(sources, key=_trust):
        shift = _shift(source, whole, zero)
        _items(whole, source, shift)
    _units_of_log(whole)
    _named(whole)
    seen = (whole.phases, whole.initcalls, whole.probes, whole.units, whole.processes, whole.config, whole.symbols)
    if not any((*seen, whole.version, whole.stamped)):
        whole.warn(WarningCode.NOTHING_FOUND, "nothing that times a boot was found in it")
    return whole


def _on_systemds_clock(sources: Sequence[Observed]) -> None:
    """Count a log from where its late clock started, where another file has systemd's phases, which count from 0."""
    reported = [s for s in sources if any(p.source == STARTUP and p.name == PhaseName.KERNEL for p in s.phases)]
    for source in sources:
        begun = source.clock_from_us
        if begun is None and source.first_line_seen and (source.first_us or 0) > LATE_US:
            begun = source.first_us
        if begun is not None and source.kernel_log and any(one is not source for one in reported):
            source.warn(
                WarningCode.CLOCK_STARTS_LATE,
                f"the log's clock starts at {begun / 1e6:.6f} s, systemd's at 0: the log's times count from there",
            )
            shift_log(source, -begun)


def _named(whole: Observed) -> None:
    """Initcalls that the log has by address get their names, where a table of symbols is beside it."""
    if whole.symbols and not kernel_build.give_names(whole.initcalls, whole.symbols):
        whole.warn(
            WarningCode.DIFFERENT_BOOTS,
            "the table of symbols has none of the addresses by which initcalls are logged: it is another kernel's",
        )


def _best_of_cloud_init(sources: Sequence[Observed]) -> None:
    """Its commands say the same of one boot, under other names: the units of the best are kept."""
    known = [s for s in sources if s.has_stages and s.units]
    best = max(known, key=lambda s: (any(u.start_us is not None for u in s.units), s.epoch), default=None)
    for source in known:
        if source is not best:
            source.units = []
            source.relative = source.epoch = False


def _trust(source: Observed) -> int:
    """Return the key that sorts kernel logs first: their clock is the one that the others are put on."""
    return 0 if source.kernel_log else (2 if source.epoch or source.relative else 1)


def _facts(whole: Observed, source: Observed) -> None:
    if source.version and whole.version and not _same_kernel(source.version, whole.version):
        whole.warn(
            WarningCode.DIFFERENT_BOOTS,
            f"the files name different kernels: {whole.version}, and {source.version} in {source.path}",
        )
    for name in _FIRST_NAMED:
        setattr(whole, name, getattr(whole, name) or getattr(source, name))
    for name in _FIRST_TIMED:
        if getattr(whole, name) is None:
            setattr(whole, name, getattr(source, name))
    if source.kernel_log and not whole.kernel_log:
        for name in _OF_THE_LOG:
            setattr(whole, name, getattr(source, name))
        whole.rough_us |= source.rough_us


def _same_kernel(one: str, other: str) -> bool:
    """A configuration's title has the version without what was put behind it (`6.1.0`, `6.1.0-9-cloud`)."""
    return one.startswith(other) or other.startswith(one)


def _shift(source: Observed, whole: Observed, zero: int | None) -> int:
    if source.epoch:
        if zero is not None:
            return -zero
        starts = [p.start_us for p in source.phases if p.start_us is not None] + [
            u.start_us for u in source.units if u.start_us is not None
        ]
        starts += [p.start_us for p in source.processes if p.start_us is not None]
        whole.warn(
            WarningCode.CLOCK_RELATIVE,
            f"{source.format} is on the wall clock: its times count from its own first event",
        )
        return -min(starts, default=0)
    if source.relative:
        stages = source.has_stages
        first = next((u.start_us for u in whole.units if stages and u.name in FIRST_STAGES and u.start_us), None)
        if first is not None:
            return first
        userspace = next(
            (p.start_us for p in whole.phases if p.name == PhaseName.USERSPACE and p.start_us is not None), None
        )
        if userspace is not None and not stages:
            return userspace
        whole.warn(
            WarningCode.CLOCK_RELATIVE,
            f"{source.format}: times count from its own first event, not from the kernel's start",
        )
        return userspace or 0
    return 0


def _items(whole: Observed, source: Observed, shift: int) -> None:
    for warning in source.warnings:
        if warning not in whole.warnings:
            whole.warnings.append(warning)
    for name, (at, how) in source.marks.items():
        whole.mark(name, at + shift, how)
    have = {p.name for p in whole.phases}
    whole.phases.extend(_moved(p, shift) for p in source.phases if p.name not in have)
    if not whole.initcalls:
        whole.initcalls = source.initcalls
    elif source.initcalls:
        known = {(c.name, c.module) for c in whole.initcalls}
        whole.initcalls.extend(c for c in source.initcalls if (c.name, c.module) not in known)
    whole.probes = whole.probes or source.probes
    whole.samples = whole.samples or source.samples
    _merge_units(whole, [_moved(u, shift) for u in source.units])
    pids = {(p.pid, p.name) for p in whole.processes}
    whole.processes.extend(_moved(p, shift) for p in source.processes if (p.pid, p.name) not in pids or p.pid is None)


def _moved(span: Span, shift: int) -> Span:
    if not shift:
        return span
    return msgspec.structs.replace(
        span,
        start_us=None if span.start_us is None else span.start_us + shift,
        end_us=None if span.end_us is None else span.end_us + shift,
    )


def _merge_units(whole: Observed, units: Sequence[UnitSpan]) -> None:
    """One row a unit: start from whoever knows it, duration from the first, critical from the critical chain."""
    index = {unit.name: n for n, unit in enumerate(whole.units)}
    for unit in units:
        if unit.name not in index:
            index[unit.name] = len(whole.units)
            whole.units.append(unit)
            continue
        old = whole.units[index[unit.name]]
        better = unit if old.duration_us is None else old
        whole.units[index[unit.name]] = UnitSpan(
            name=unit.name,
            start_us=old.start_us if old.start_us is not None else unit.start_us,
            end_us=old.end_us if old.end_us is not None else unit.end_us,
            duration_us=better.duration_us,
            exclusive_us=None,
            duration_source=better.duration_source,
            critical=old.critical if old.critical is not None else unit.critical,
        )
    if any(u.critical for u in whole.units):
        whole.units = [u if u.critical is not None else msgspec.structs.replace(u, critical=False) for u in whole.units]


def _units_of_log(whole: Observed) -> None:
    """Units from systemd's `Starting` and `Started` lines, where nothing better names them."""
    if any(u.start_us is not None for u in whole.units):
        return
    known = {u.name: n for n, u in enumerate(whole.units)}
    for name, (up, _) in list(whole.marks.items()):
        if not name.startswith("unit-up:"):
            continue
        what = name.removeprefix("unit-up:")
        begun = whole.marks.get(f"unit-starts:{what}")
        if begun is None or up < begun[0]:
            continue
        rough = not whole.rough_us.isdisjoint((begun[0], up)) and up - begun[0] < RESOLVED_US
        took = None if rough else up - begun[0]
        source = None if rough else DurationSource.TIME_STAMPS.value
        unit = UnitSpan(
            name=what,
            start_us=begun[0],
            end_us=None if rough else up,
            duration_us=took,
            exclusive_us=None,
            duration_source=source,
        )
        if what in known:
            old = whole.units[known[what]]
            whole.units[known[what]] = msgspec.structs.replace(old, start_us=begun[0], end_us=up)
        else:
            whole.units.append(unit)
