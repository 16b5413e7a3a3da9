# SPDX-License-Identifier: Apache-2.0
"""Choose between two figures of an initcall: its own report, and the difference of its time stamps.

Before the kernel switches to a real clocksource its own measurements count timer ticks; the stamps come from another,
finer clock. After that, a verbose console makes the stamps wrong: each contains the printing of the line before."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from vmtailor.analysis.bootlog.boot_record import Observed, RawCall
from vmtailor.base.notation import version_key
from vmtailor.base.text import is_number
from vmtailor.model.boots.timeline import ConsoleCost, DurationSource, Initcall, Probe, WarningCode

#: One tick in "after N usecs": HZ 100, 250, 300, 1000; up to 5.17 the kernel divided nanoseconds by
#: 1024.
TICKS_US = (10_000.0, 9765.625, 4000.0, 3906.25, 3333.333, 3255.208, 1000.0, 976.5625)
TIME_STAMPS, REPORTED = DurationSource.TIME_STAMPS.value, DurationSource.REPORTED.value
CORRECTED = DurationSource.CORRECTED.value
#: Until this version the kernel shifted nanoseconds by 10 bits (or 20) where it said microseconds (or milliseconds).
EXACT_SINCE = (5, 18)
SHIFTED, SHIFTED_TWICE = 1.024, 1.048576
#: Two ways to tell a moment differ by no more, printing apart.
SAME_MOMENT_US = 100
#: Reports from this on show whether they can be of such units.
TELLING_US = 2000
#: A `calling` line is not longer.
ONE_LINE = 160
#: A console that costs more than this for a character is written to while the boot waits.
SLOW_CONSOLE_US = 1.0


@dataclass(frozen=True)
class Quantised:
    """Up to `until_us` reported figures are whole ticks. `tick_us` is one tick, where it can be told; `calls` how
    many it concerns."""

    until_us: int
    tick_us: int | None
    calls: int


def is_ticks(value: int, tick: float) -> bool:
    """Return whether a reported figure is a whole number of ticks, as the kernel would have rounded it."""
    if value == 0:
        return True
    count = round(value / tick)
    return count > 0 and abs(value - count * tick) <= 1 + 0.001 * value


def _tick_of(values: Sequence[int]) -> float | None:
    """Return the tick that all the values are multiples of, the longest first; None when they are not, or all are 0."""
    if not any(values):
        return None
    return next((tick for tick in TICKS_US if all(is_ticks(v, tick) for v in values)), None)


def _disagree(calls: Sequence[RawCall]) -> int:
    """Return the number of calls whose report is nothing or a tick, while their stamps clearly differ from it."""
    count = 0
    for call in calls:
        if call.start_us is not None and call.end_us is not None and call.reported_us is not None:
            stamps = call.end_us - call.start_us
            count += abs(stamps - call.reported_us) >= 100 and (call.reported_us == 0 or call.reported_us >= 900)
    return count


def known_tick_us(observed: Observed) -> int | None:
    """Return the length of a tick from the configuration or from the calibration line (BogoMIPS = lpj × HZ /
    500000)."""
    ticks = observed.config.get("HZ", "")
    if is_number(ticks) and len(ticks) < 9 and int(ticks) > 0:
        return round(1_000_000 / int(ticks))
    for _, text in observed.messages[:2000]:
        if "BogoMIPS (lpj=" in text:
            head, _, tail = text.partition(" BogoMIPS (lpj=")
            digits = tail.partition(")")[0]
            try:
                hz = float(head.split()[-1]) * 500_000 / int(digits)
            except (ValueError, IndexError, ZeroDivisionError, OverflowError):
                return None
            return round(1_000_000 / hz) if 20 < hz < 2000 else None
    return None


def find_quantised(observed: Observed) -> Quantised | None:
    """Find up to where the reported figures are whole ticks; None when none are, or no stamps could replace them."""
    calls = [c for c in observed.initcalls if c.finished and c.reported_us is not None and c.end_us is not None]
    if not calls or observed.coarse:
        return None
    switch = observed.clocksource_switch_us
    if switch is not None:
        before = [c for c in calls if (c.start_us if c.start_us is not None else c.end_us or 0) <= switch]
        strict = [c.reported_us or 0 for c in before if (c.end_us or 0) < switch]
        nonzero = [v for v in strict if v]
        tick = _tick_of(strict)
        if nonzero and tick is None:
            odd = sum(1 for v in nonzero if not any(is_ticks(v, t) for t in TICKS_US))
            if odd * 5 > len(nonzero):
                return None  # this kernel's first clock is already a fine one
        if not before or (not nonzero and not _disagree(before)):
            return None
        return Quantised(switch, known_tick_us(observed) or (round(tick) if tick else None), len(before))
    return _quantised_prefix(observed, calls)


def _quantised_prefix(observed: Observed, calls: list[RawCall]) -> Quantised | None:
    """Return, without the switch's own line, the longest beginning of the log in which every report is whole ticks."""
    best = 0
    for tick in TICKS_US:
        end = next((n for n, call in enumerate(calls) if not is_ticks(call.reported_us or 0, tick)), len(calls))
        best = max(best, end)
    prefix = calls[:best]
    while prefix and not prefix[-1].reported_us and _agree(prefix[-1]):
        prefix.pop()  # a zero that is really nothing may already be of the fine clock
    ticks = sum(1 for call in prefix if call.reported_us)
    if _disagree(prefix) < 3 or (ticks < 2 and len(prefix) < 10):
        return None
    tick_seen = _tick_of([call.reported_us or 0 for call in prefix])
    return Quantised(
        prefix[-1].end_us or 0, known_tick_us(observed) or (round(tick_seen) if tick_seen else None), len(prefix)
    )


def _agree(call: RawCall) -> bool:
    return call.start_us is None or call.end_us is None or call.end_us - call.start_us < 100


def stamps_us(call: RawCall) -> int | None:
    """Return the difference of a call's stamps. Two zeros are a clock that does not run yet, not a duration."""
    if call.start_us is None or call.end_us is None or (call.start_us == 0 and call.end_us == 0):
        return None
    return call.end_us - call.start_us if call.end_us >= call.start_us else None


@dataclass(frozen=True)
class ReportedScale:
    """The scale of one log's figures: the ticks of its beginning, the microseconds in a reported one, and what a
    character costs on its console."""

    quantised: Quantised | None = None
    unit: float = 1.0
    us_per_char: float = 0.0


def unit_of(observed: Observed, quantised: Quantised | None) -> float:
    """Return the microseconds in a reported "usec". A kernel that says it is older, but whose reports would then be
    longer than their stamps, was changed by its vendor."""
    version = version_key(observed.version or "")[:2]
    if not version or version >= EXACT_SINCE:
        return 1.0
    unit = SHIFTED_TWICE if observed.milliseconds else SHIFTED
    seen = against = 0
    for call in observed.initcalls:
        by_stamps = None if observed.coarse or call.base_us is not None else stamps_us(call)
        if by_stamps is None or (call.reported_us or 0) < TELLING_US:
            continue
        if quantised is None or (call.start_us or 0) > quantised.until_us:
            seen += 1
            against += by_stamps + 10 < (call.reported_us or 0) * unit
    return 1.0 if against * 2 > seen else unit


def choose(call: RawCall, by_stamps: int | None, reading: ReportedScale) -> tuple[int | None, str | None]:
    """Return the duration to believe and its source; (None, None) where the log has none."""
    if not call.finished:
        return None, None
    begun = call.start_us if call.start_us is not None else call.end_us
    quantised = reading.quantised
    early = quantised is not None and begun is not None and begun <= quantised.until_us
    if call.reported_us is None or early:
        return (by_stamps, TIME_STAMPS) if by_stamps is not None else (None, None)
    value = call.reported_us * reading.unit
    if call.start_us is None and call.base_us is not None and call.end_us is not None:
        behind = call.end_us - call.base_us - value - ONE_LINE * reading.us_per_char
        if -SAME_MOMENT_US <= behind <= SAME_MOMENT_US:
            return None, None  # it counts from another's start, and its own is not in the log
    value = _counted(call, by_stamps, value, reading.us_per_char)
    duration = round(value)
    return duration, REPORTED if duration == call.reported_us else CORRECTED


def _counted(call: RawCall, by_stamps: int | None, value: float, us_per_char: float) -> float:
    """Return the time that a call took, derived from its report. Kernels keep one start for all calls under way
    (`initcall_calltime`): if another began in between, the report counts from there. The stamps decide which it was."""
    if call.base_us is None or by_stamps is None or call.end_us is None or call.start_us is None:
        return value
    if abs(call.end_us - call.base_us - value) >= abs(by_stamps - value):
        return value
    # Each of the two moments is behind the printing of its own line, their stamps before it.
    return max(value, min(by_stamps, value + call.base_us - call.start_us + us_per_char * call.characters))


def within_boot(
    console: ConsoleCost | None, observed: Observed, kernel_end_us: int | None, end_us: int | None
) -> ConsoleCost | None:
    """Return the cost of printing within the boot alone: lines go on to be logged as long as a machine runs."""
    if console is None or console.us_per_char is None:
        return console
    until_end, until_kernel = (
        None if at_us is None else round(console.us_per_char * observed.characters_until(at_us))
        for at_us in (end_us, kernel_end_us)
    )
    cost_us = console.cost_us if until_end is None else until_end
    return msgspec.structs.replace(console, cost_us=cost_us, kernel_us=until_kernel)


def console_cost(observed: Observed, quantised: Quantised | None, unit: float = 1.0) -> ConsoleCost | None:
    """Measure what printing cost, from calls whose stamps contain the printing of their own `calling` line and whose
    report does not."""
    ratios: list[float] = []
    for call in observed.initcalls:
        by_stamps = stamps_us(call)
        if by_stamps is None or call.reported_us is None or call.start_us is None:
            continue
        if quantised is not None and call.start_us <= quantised.until_us:
            continue
        if not 0 < call.characters <= ONE_LINE or call.base_us is not None:
            continue  # other lines were printed in between, and those are part of what it reports
        ratios.append((by_stamps - call.reported_us * unit) / call.characters)
        if len(ratios) >= 20_000:
            break
    if not observed.characters or observed.coarse:
        return None
    if len(ratios) < 10:
        return None
    per_char = max(0.0, statistics.median(ratios))
    return ConsoleCost(
        lines=observed.lines,
        characters=observed.characters,
        us_per_char=round(per_char, 3),
        cost_us=round(per_char * observed.characters),
        source="initcalls: their stamps less what they reported, over the length of the line printed between",
    )


def check_rows(
    observed: Observed,
    quantised: Quantised | None,
    console: ConsoleCost | None,
    initcalls: Sequence[Initcall],
    probes: Sequence[Probe],
) -> None:
    """Warn of what makes durations of initcalls, probes and units doubtful."""
    if quantised:
        tick = f" of {quantised.tick_us} µs" if quantised.tick_us else ""
        observed.warn(
            WarningCode.TICK_QUANTISED,
            f"up to {quantised.until_us / 1e6:.6f} s the kernel measured in timer ticks{tick}: "
            f"{quantised.calls} initcalls are timed by "
            "their time stamps instead",
        )
    early = sum(1 for p in probes if p.end_us is not None and p.duration_us is None)
    if early:
        observed.warn(
            WarningCode.PROBE_BEFORE_CLOCKSOURCE,
            f"{early} probes ended before the clocksource switch: their report is in ticks and they have no "
            f"first line, so no duration",
        )
    if console and console.us_per_char is not None and console.us_per_char >= SLOW_CONSOLE_US:
        observed.warn(
            WarningCode.CONSOLE_INFLATED,
            f"each printed character costs {console.us_per_char:.1f} µs: durations are those reported, not the "
            f"stamps'; printing took "
            f"about {(console.cost_us or 0) / 1e6:.3f} s of this boot",
        )
    open_calls = [c.name for c in initcalls if c.returned is None]
    if open_calls:
        observed.warn(
            WarningCode.UNFINISHED, f"{len(open_calls)} initcalls never returned in the log, the last: {open_calls[-1]}"
        )
    lost = sum(
        1
        for c in initcalls
        if c.returned is not None and c.task is None and c.stamps_us is None and c.end_us is not None
    )
    if lost:
        observed.warn(WarningCode.UNMATCHED_RETURN, f"{lost} initcalls lack the line where they begin")
    overlaps = [name.removeprefix("overlap:") for name in observed.marks if name.startswith("overlap:")]
    if overlaps:
        observed.warn(
            WarningCode.OVERLAPPING_PROBES,
            f"{len(overlaps)} probes reach over the end of what they began in, so ran beside it: "
            f"{', '.join(overlaps[:4])}"
            + (" …" if len(overlaps) > 4 else "")
            + "; their own time is an upper bound (boot with printk caller information to know)",
        )
    if sum(1 for unit in observed.units if unit.start_us is None and unit.duration_us) > 1:
        observed.warn(
            WarningCode.UNITS_OVERLAP,
            "units start side by side and their starts are not known: their durations do not add up "
            "(systemd-analyze plot "
            "--json knows the starts)",
        )
    early_stamps = {
        c.end_us for c in initcalls[:400] if c.end_us is not None and quantised and c.end_us < quantised.until_us
    }
    if len(early_stamps) >= 3 and all(stamp % 1000 == 0 for stamp in early_stamps):
        observed.warn(
            WarningCode.TICK_STAMPS,
            "the early time stamps are whole ticks too: nothing in this log is finer before the switch",
        )
    put_off = sum(1 for p in probes if p.deferred)
    if put_off:
        observed.warn(WarningCode.PROBES_DEFERRED, f"{put_off} probes were put off to be tried again")
