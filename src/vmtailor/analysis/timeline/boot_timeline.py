# SPDX-License-Identifier: Apache-2.0
"""Build the timeline of one boot from its files: read, joined on one clock, nested, shared out, ranked, advised."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path as FilePath

from vmtailor.analysis.bootlog.boot_record import RESOLVED_US, Observed
from vmtailor.analysis.bootlog.formats import read_path
from vmtailor.analysis.bootlog.log_lines import printable
from vmtailor.analysis.bootlog.machine_facts import identify, warn_of
from vmtailor.analysis.bootlog.silences import gaps_of, shown_end
from vmtailor.analysis.changes.advice import advise
from vmtailor.analysis.timeline.durations import (
    Quantised,
    ReportedScale,
    check_rows,
    choose,
    console_cost,
    find_quantised,
    stamps_us,
    unit_of,
    within_boot,
)
from vmtailor.analysis.timeline.hotspots import rank
from vmtailor.analysis.timeline.join import join
from vmtailor.analysis.timeline.origins import with_origins
from vmtailor.analysis.timeline.own_time import MAIN, Span, critical_path, nest, own_time
from vmtailor.analysis.timeline.phases import phases_of, printed_total
from vmtailor.analysis.timeline.sanity import checked_gaps, checked_phases, checked_units
from vmtailor.analysis.timeline.told_ready import ended_at, ready_at
from vmtailor.analysis.timeline.unit_holes import holes_of
from vmtailor.base import manual
from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.timeline import (
    Deferral,
    DurationSource,
    Initcall,
    KernelInfo,
    Module,
    Path,
    PhaseName,
    PhaseSpan,
    Probe,
    SourceFile,
    Timeline,
)


def analyze(
    paths: Sequence[FilePath], boot: int = 0, *, needs_log: bool = False, ranked: bool = True, ready: str | None = None
) -> Timeline:
    """Return the timeline of one boot from its files. `boot` chooses among several in one log: 1 the first, 0 the last.
    `ready`: the unit, or the pattern of a message, with which the boot ends; None: what the files tell of it.

    Raises UserInputError for files that cannot be read, where nothing is `ready`, and, with `needs_log`, where none of
    them is a log or a chart. What cannot be understood becomes a warning in the timeline. `ranked`: it has hot spots
    and advice, for a reader."""
    enabled = gc.isenabled()
    gc.disable()  # a long log makes a million rows that live to the end: looking for cycles among them doubles the time
    try:
        sources = [source for path in paths for source in read_path(path, boot)]
        if needs_log and sources and not any(source.is_log for source in sources):
            what = ", ".join(f"{source.path} ({source.format})" for source in sources[:4])
            raise UserInputError(
                f"no log and no chart of a boot: {printable(what)}",
                hint=f"{manual.command('boot-formats')} lists what can be read",
            )
        messages = [message for source in sources for message in source.messages]
        timeline = build(sources, ready)
        return with_origins(advise(rank(timeline), messages), messages) if ranked else timeline
    finally:
        if enabled:
            gc.enable()


CRITICAL, BESIDE = Path.CRITICAL.value, Path.BESIDE.value

#: -517 is EPROBE_DEFER; probe functions print it with either sign.
DEFERRED = (517, -517)
#: Return values of a probe that bound: 0, and 1 up to kernel 5.x.
BOUND = (0, 1)


def build(sources: Sequence[Observed], ready: str | None = None) -> Timeline:
    """Return the timeline of one boot from everything that was read about it, before it is ranked and advised. `ready`:
    as in `analyze`."""
    observed = join(sources)
    quantised = find_quantised(observed)
    phases = checked_phases(observed, phases_of(observed))
    if ready is not None:
        phases = ended_at(observed, phases, ready_at(observed, ready))
    checked_units(observed, phases)
    unit = unit_of(observed, quantised)
    console = console_cost(observed, quantised, unit)
    reading = ReportedScale(quantised, unit, (console.us_per_char or 0.0) if console else 0.0)
    initcalls, probes = _rows(observed, reading)
    end_us = shown_end(observed, phases)
    units = critical_path(own_time(observed.units), end_us)
    kernel = next((p for p in phases if p.name == PhaseName.KERNEL), None)
    kernel_us = (
        kernel.end_us - kernel.start_us
        if kernel and kernel.end_us is not None and kernel.start_us is not None
        else None
    )
    console = within_boot(console, observed, kernel.end_us if kernel else None, end_us)
    check_rows(observed, quantised, console, initcalls, probes)
    gaps = gaps_of(observed, phases, (initcalls, probes), units, end_us)
    gaps = checked_gaps(observed, phases, [*gaps, *holes_of(observed, phases, units)])
    found = identify(observed)
    warn_of(observed, found)
    return Timeline(
        kernel=KernelInfo(
            version=observed.version,
            arch=found.arch,
            command_line=observed.command_line,
            hypervisor=observed.hypervisor,
            clocksource=observed.clocksource,
            clocksource_switch_us=observed.clocksource_switch_us,
            tick_us=quantised.tick_us if quantised else None,
        ),
        phases=tuple(phases),
        initcalls=initcalls,
        probes=probes,
        units=units,
        processes=sorted(observed.processes, key=lambda p: (p.start_us is None, p.start_us or 0, p.pid or 0)),
        warnings=tuple(observed.warnings),
        kernel_us=kernel_us,
        total_us=_total(observed, phases) if ready is None else _shown(phases, end_us),
        deferrals=_deferrals(probes),
        modules=_modules(initcalls),
        console=console,
        samples=tuple(observed.samples),
        files=tuple(SourceFile(s.path, s.format) for s in sources),
        config=observed.config,
        machine=found.machine,
        gaps=tuple(sorted(gaps, key=lambda gap: (gap.start_us, gap.start_us - gap.end_us))),
        shown_us=_shown(phases, end_us),
        shown_end_us=end_us,
        last_us=observed.last_us,
    )


_ORDER = [name.value for name in PhaseName]
#: Phases with which a boot is over.
LAST = (PhaseName.USERSPACE, PhaseName.READY)


def _total(observed: Observed, phases: Sequence[PhaseSpan]) -> int | None:
    """Return the time from the first phase's start to the end of user space: systemd's own figure, else that of the
    phases. None when either is unknown: a kernel's log is not a whole boot."""
    printed = printed_total(observed, list(phases))
    if printed is not None:
        return printed
    if not observed.kernel_log and observed.charted_total_us is not None:
        return observed.charted_total_us
    begun = min(phases, key=lambda p: _ORDER.index(p.name), default=None)
    ends = [p.end_us for p in phases if p.name in LAST]
    over = [e for e in ends if e is not None]
    if begun is None or begun.start_us is None or not ends or len(over) < len(ends):
        return None
    total = max(over) - begun.start_us
    rough = not observed.rough_us.isdisjoint((begun.start_us, max(over)))
    return None if rough and total < RESOLVED_US else total


def _shown(phases: Sequence[PhaseSpan], end_us: int | None) -> int | None:
    """Return the time from the first phase's start to the end of the boot, as far as the files show."""
    starts = [p.start_us for p in phases if p.start_us is not None]
    return end_us - min(starts) if starts and end_us is not None and end_us > min(starts) else None


def _rows(observed: Observed, reading: ReportedScale) -> tuple[list[Initcall], list[Probe]]:
    """Return the rows of initcalls and probes. Empties `observed.initcalls` on the way: a long log does not fit
    twice."""
    spans: list[Span | None] = []
    quantised = reading.quantised
    for call in observed.initcalls:
        duration, _ = choose(call, None if observed.coarse else stamps_us(call), reading)
        begun = call.start_us
        if begun is None and call.end_us is not None and duration is not None:
            begun = call.end_us - duration
        known = begun is not None and call.end_us is not None and duration is not None
        spans.append(
            Span(start_us=begun or 0, end_us=call.end_us or 0, duration_us=duration or 0, task=call.task, probe=False)
            if known
            else None
        )
    for probe in observed.probes:
        early = quantised is not None and probe.end_us is not None and probe.end_us <= quantised.until_us
        if probe.end_us is None or early:
            spans.append(None)
        else:
            task = int(probe.caller[1:]) if probe.caller and probe.caller.startswith("T") else None
            spans.append(
                Span(
                    start_us=probe.end_us - probe.reported_us,
                    end_us=probe.end_us,
                    duration_us=probe.reported_us,
                    task=task,
                    probe=True,
                )
            )
    nest(spans)
    count = len(observed.initcalls)
    probes = _probes(observed, spans[count:], quantised)
    del spans[count:]
    return _initcalls(observed, reading, spans), probes


def _initcalls(observed: Observed, reading: ReportedScale, spans: list[Span | None]) -> list[Initcall]:
    seen: dict[str | tuple[str, str], int] = {}
    rows = []
    calls = observed.initcalls
    calls.reverse()
    spans.reverse()
    while calls:
        call, span = calls.pop(), spans.pop()
        by_stamps = None if observed.coarse else stamps_us(call)
        duration, source = choose(call, by_stamps, reading)
        key = (call.name, call.module) if call.module else call.name
        seen[key] = number = seen.get(key, 0) + 1
        beside = (call.task not in (None, 0, MAIN)) or call.asynchronous or (span is not None and span.beside)
        start = call.start_us
        if start is None and call.end_us is not None and source != DurationSource.TIME_STAMPS and duration is not None:
            start = call.end_us - duration
        rows.append(
            Initcall(
                name=call.name,
                module=call.module,
                occurrence=number,
                start_us=start,
                duration_us=duration,
                exclusive_us=span.exclusive_us if span else duration,
                duration_source=source,
                reported_us=call.reported_us,
                returned=call.returned,
                end_us=call.end_us,
                stamps_us=by_stamps,
                level=call.level,
                task=call.task,
                path=BESIDE if beside else CRITICAL,
                asynchronous=call.asynchronous,
            )
        )
    return rows


def _probes(observed: Observed, spans: Sequence[Span | None], quantised: Quantised | None) -> list[Probe]:
    seen: dict[str, int] = defaultdict(int)
    rows = []
    for probe, span in zip(observed.probes, spans, strict=True):
        seen[probe.device] = number = seen[probe.device] + 1
        path = Path.UNKNOWN
        if span is not None and span.beside:
            path = Path.BESIDE
        elif span is not None and (span.inner or span.task == MAIN):
            path = Path.CRITICAL
        # Without a stamp the report is all there is; before the clocksource switch it is a tick count, so nothing is.
        told = span is not None or (probe.end_us is None and quantised is None)
        rows.append(
            Probe(
                name=probe.device,
                device=probe.device,
                module=None,
                occurrence=number,
                start_us=span.start_us if span else None,
                duration_us=(span.duration_us if span else probe.reported_us) if told else None,
                exclusive_us=span.exclusive_us if span else None,
                duration_source=DurationSource.REPORTED.value if told else None,
                reported_us=probe.reported_us,
                returned=probe.returned,
                end_us=probe.end_us,
                path=path.value,
                deferred=probe.returned in DEFERRED,
            )
        )
        if span is not None and span.overlaps:
            observed.marks.setdefault(f"overlap:{probe.device}", (span.start_us, ""))
    return rows


def _deferrals(probes: Sequence[Probe]) -> tuple[Deferral, ...]:
    waiting: dict[str, list[Probe]] = defaultdict(list)
    bound: dict[str, int | None] = {}
    for probe in probes:
        if probe.deferred:
            waiting[probe.device].append(probe)
        elif probe.device in waiting and probe.returned in BOUND:
            bound.setdefault(probe.device, probe.end_us)
    rows = [
        Deferral(
            device=device,
            times=len(tries),
            spent_us=sum(p.duration_us or 0 for p in tries),
            first_us=tries[0].end_us,
            bound_us=bound.get(device),
            beside_us=sum(p.duration_us or 0 for p in tries if p.path == BESIDE),
        )
        for device, tries in waiting.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.spent_us))


def _modules(initcalls: Sequence[Initcall]) -> tuple[Module, ...]:
    loaded: dict[str, list[Initcall]] = defaultdict(list)
    for call in initcalls:
        if call.module:
            loaded[call.module].append(call)
    return tuple(
        Module(
            name,
            calls[0].start_us,
            sum(c.duration_us or 0 for c in calls) if any(c.duration_us is not None for c in calls) else None,
        )
        for name, calls in loaded.items()
    )
