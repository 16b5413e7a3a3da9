# SPDX-License-Identifier: Apache-2.0
"""Check what was read of a boot before anything of it is shown: each doubt becomes a warning."""

from __future__ import annotations

from collections.abc import Sequence

from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.timeline.durations import SLOW_CONSOLE_US, Quantised
from vmtailor.model.boots.timeline import ConsoleCost, Initcall, PhaseName, PhaseSpan, Probe, WarningCode

#: Reported and seen ends of a phase may differ so much before it is said.
TOLERANCE_US = 500_000


def check_reported(observed: Observed, given: dict[str, PhaseSpan]) -> None:
    """Warn where what systemd reported of phases contradicts itself, or the log."""
    _sum_of_parts(observed, given)
    if observed.kernel_log:
        _cross_check(observed, given)


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


def _sum_of_parts(observed: Observed, given: dict[str, PhaseSpan]) -> None:
    total = observed.printed_total_us
    parts = [p.end_us - p.start_us for p in given.values() if p.end_us is not None and p.start_us is not None]
    if total is None or sum(parts) == total:
        return
    # Each figure is printed without what is beyond its last digit.
    rounded = abs(total - sum(parts)) <= 1000 * (len(parts) + 1)
    why = "its figures are cut off after their last digit" if rounded else "a part is missing or wrong"
    observed.warn(
        WarningCode.SUM_DIFFERS,
        f"systemd's phases add up to {sum(parts) / 1e6:.3f} s, and it printed {total / 1e6:.3f} s as their total, "
        f"which counts ({why})",
    )


def _cross_check(observed: Observed, given: dict[str, PhaseSpan]) -> None:
    marks = observed.marks
    kernel = given.get(PhaseName.KERNEL)
    seen = marks.get("run-any") or marks.get("freed")
    if kernel and kernel.end_us is not None and seen and abs(seen[0] - kernel.end_us) > TOLERANCE_US:
        observed.warn(
            WarningCode.SUM_DIFFERS,
            f"systemd says the kernel took {kernel.end_us / 1e6:.3f} s, the log has {seen[1]} at {seen[0] / 1e6:.3f} s",
        )
