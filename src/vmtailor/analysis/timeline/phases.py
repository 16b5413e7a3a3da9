# SPDX-License-Identifier: Apache-2.0
"""The stretches of a boot, each with how its start and end were found, and as they are drawn to scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from vmtailor.analysis.bootlog.boot_record import LATE_US, RESOLVED_US, Observed
from vmtailor.analysis.bootlog.cloud_init import BOOT as CLOUD_INIT_BOOT
from vmtailor.analysis.bootlog.milestones import TARGETS
from vmtailor.model.boots.timeline import PhaseName, PhaseSpan, WarningCode

Marks = dict[str, tuple[int, str]]

#: Difference between reported and seen end of a phase above which a warning is given.
TOLERANCE_US = 500_000


def phases_of(observed: Observed) -> list[PhaseSpan]:
    """Return the phases of one boot, from what systemd reported where it did, from the log's marks elsewhere. Adds
    warnings."""
    marks = observed.marks
    given = {p.name: p for p in observed.phases}
    # What cloud-init takes for the kernel's end is the start of user space, behind an initial RAM disk: a log knows
    # better, where it shows it.
    kernel = given.get(PhaseName.KERNEL)
    if kernel is not None and kernel.source == CLOUD_INIT_BOOT and _shows_the_end(observed, marks):
        del given[PhaseName.KERNEL]
    found: list[PhaseSpan] = []
    reported = any(p.source.startswith("systemd") for p in observed.phases)
    if PhaseName.KERNEL in given:
        found = sorted(given.values(), key=lambda p: (p.start_us is None, p.start_us or 0))
    else:
        kernel = _kernel(observed, marks)
        if kernel:
            found.append(kernel)
        found.extend(given.values())
        if kernel and not given:
            found.extend(_after_kernel(observed, marks, kernel))
    if not any(p.name in (PhaseName.FIRMWARE, PhaseName.LOADER) for p in found):
        found = _before_kernel(marks, found) + found
    if observed.loader and not observed.kernel_seen and observed.first_us is not None:
        observed.warn(WarningCode.PHASE_OPEN, _no_kernel(observed))
        found.append(
            PhaseSpan(PhaseName.LOADER, observed.first_us, None, "start: its first line; its end is not known")
        )
    if reported:
        _check_reported(observed, given)
    if not any(p.name == PhaseName.READY for p in found):
        found.extend(_ready(observed, marks, found))
    return [_resolved(observed, phase) for phase in found]


def _no_kernel(observed: Observed) -> str:
    """Return what was looked for of the kernel behind a loader's lines, and not found."""
    return (
        "no line of the kernel was found after the loader's: neither 'Linux version', 'Booting Linux' or a command "
        f"line nor an initcall, 'Freeing unused kernel' or 'Run … as init process' ({observed.lines} lines were read; "
        "if the kernel's are among them, their prefix is not known)"
    )


def _shows_the_end(observed: Observed, marks: Marks) -> bool:
    """Return whether a log has the whole of the kernel's phase."""
    return bool(observed.kernel_log and observed.first_us is not None and _kernel_end(marks, 0))


def _resolved(observed: Observed, phase: PhaseSpan) -> PhaseSpan:
    """Return a phase without its end where that is known to the second, and the phase is not much longer."""
    start, end = phase.start_us, phase.end_us
    if start is None or end is None or phase.name == PhaseName.READY or end - start >= RESOLVED_US:
        return phase
    if phase in observed.phases or observed.rough_us.isdisjoint((start, end)):
        return phase
    why = f"{phase.source}; its end is not resolved: the stamps have whole seconds"
    return msgspec.structs.replace(phase, end_us=None, source=why)


def _kernel(observed: Observed, marks: Marks) -> PhaseSpan | None:
    if not observed.kernel_log or observed.first_us is None or observed.last_us is None:
        return None
    if (observed.loader or observed.relative) and not observed.kernel_seen:
        return None
    if observed.arrived and not observed.kernel_lines:
        return None  # a container's journal: the kernel is the host's
    if observed.arrived:
        return PhaseSpan(PhaseName.KERNEL, None, None, "its lines carry the time at which the journal read them")
    first = observed.first_us
    start: int | None
    start, how = 0, "the kernel clock's zero"
    if not observed.first_line_seen:
        start, how = None, f"not in the log, which begins at {first / 1e6:.6f} s"
        observed.warn(
            WarningCode.FIRST_LINES_LOST,
            f"the kernel's first lines are missing: the log begins at {first / 1e6:.6f} s, and when the kernel began "
            f"is unknown",
        )
    elif observed.clock_from_us is not None:
        start, how = observed.clock_from_us, "the first stamp of the clock that then ran"
        observed.warn(
            WarningCode.CLOCK_STARTS_LATE,
            f"the clock was set from {(observed.clock_set_us or 0) / 1e6:.6f} s to "
            f"{observed.clock_from_us / 1e6:.6f} s while the kernel began: times count from there, and what was "
            "before is not timed",
        )
    elif first > LATE_US:
        start, how = first, "the kernel's first line"
        observed.warn(
            WarningCode.CLOCK_STARTS_LATE,
            f"the clock starts at {first / 1e6:.6f} s: it was running before the kernel, so times count from "
            f"its first line",
        )
    elif marks.get("kernel-first-line", (0, ""))[0] > 0:
        start, how = marks["kernel-first-line"]
    handed = marks.get("kernel-handed-over")
    begun = first if start is None else start
    if handed and handed[0] < begun:
        how += f"; handed over at {handed[0] / 1e6:.6f} s"
    end = _kernel_end(marks, begun)
    if end is None:
        if "panic" not in marks:
            observed.warn(
                WarningCode.KERNEL_END_UNKNOWN,
                "the kernel phase is open: neither 'Run … as init process' nor 'Freeing unused kernel' nor systemd's "
                "first line was found in the log",
            )
        return PhaseSpan(PhaseName.KERNEL, start, None, f"start: {how}; its end is not in the log")
    return PhaseSpan(PhaseName.KERNEL, start, end[0], f"start: {how}; end: {end[1]}")


def _kernel_end(marks: Marks, start: int) -> tuple[int, str] | None:
    candidates = [
        marks[name] for name in ("run-any", "freed", "systemd-first") if name in marks and marks[name][0] >= start
    ]
    if candidates:
        return candidates[0]
    if "panic" in marks and marks["panic"][0] >= start:
        return marks["panic"][0], f"the crash: {marks['panic'][1]}"
    return None


def _after_kernel(observed: Observed, marks: Marks, kernel: PhaseSpan) -> list[PhaseSpan]:
    begin = kernel.end_us
    if begin is None or ("run-any" not in marks and "freed" not in marks and "systemd-first" not in marks):
        return []
    spans: list[PhaseSpan] = []
    in_initrd = "run-initrd" in marks or "systemd-initrd" in marks
    if in_initrd:
        over = _initrd_end(marks, begin)
        how = marks.get("run-initrd", marks.get("systemd-initrd", (0, "")))[1]
        if over is None:
            observed.warn(
                WarningCode.PHASE_OPEN,
                "init ran from the initial RAM disk, and no sign that it was left was found: neither 'Switching root', "
                "'Starting Switch Root', another init, nor a second service manager",
            )
            return [PhaseSpan(PhaseName.INITRD, begin, None, f"start: {how}; its end is not in the log")]
        spans.append(PhaseSpan(PhaseName.INITRD, begin, over[0], f"start: {how}; end: {over[1]}"))
        begin = over[0]
    how = (
        marks.get("run-init", marks.get("systemd", marks.get("freed", (0, ""))))[1]
        if not in_initrd
        else "end of the initial RAM disk"
    )
    ends = [marks[name] for name in ("finished", "login") if name in marks and marks[name][0] >= begin]
    end = next(iter(ends), None) or _target(marks, begin)
    if end is None:
        observed.warn(WarningCode.PHASE_OPEN, _not_over(observed))
        spans.append(PhaseSpan(PhaseName.USERSPACE, begin, None, f"start: {how}; its end is not in the log"))
    else:
        spans.append(PhaseSpan(PhaseName.USERSPACE, begin, end[0], f"start: {how}; end: {end[1]}"))
    return spans


def _not_over(observed: Observed) -> str:
    """Return what was looked for of the end of user space, and not found, and what stands there without a stamp."""
    login = ""
    if observed.login_after_us is not None:
        login = f"; a login prompt without a stamp comes after {observed.login_after_us / 1e6:.6f} s"
    return (
        "user space is open: neither systemd's 'Startup finished' nor a login prompt with a stamp nor a target for "
        f"several users was found in the log{login}"
    )


def _initrd_end(marks: Marks, begin: int) -> tuple[int, str] | None:
    if "systemd-initrd" in marks:
        second = "systemd" if marks.get("systemd-first", (0,))[0] != marks.get("systemd", (0,))[0] else ""
    else:
        second = "systemd-line" if "systemd-first" in marks else ""
    for name in ("switch-root", "run-init", "switch-root-after", second):
        if name in marks and marks[name][0] > begin:
            return marks[name]
    return None


def _before_kernel(marks: Marks, found: list[PhaseSpan]) -> list[PhaseSpan]:
    if not found:
        return []
    handed = marks.get("kernel-handed-over")
    end, how = 0, "the kernel clock's zero"
    if found[0].start_us is not None:
        end, how = found[0].start_us, "the kernel's first line"
    if handed and handed[0] < end:
        end, how = handed
    loader, firmware, capture = marks.get("loader"), marks.get("firmware"), marks.get("capture")
    spans = []
    if firmware and firmware[0] < end:
        until = loader if loader and loader[0] > firmware[0] else (end, how)
        spans.append(PhaseSpan(PhaseName.FIRMWARE, firmware[0], until[0], f"start: {firmware[1]}; end: {until[1]}"))
    elif loader and capture and capture[0] < loader[0]:
        spans.append(PhaseSpan(PhaseName.FIRMWARE, capture[0], loader[0], f"start: {capture[1]}; end: {loader[1]}"))
    if loader and loader[0] < end:
        spans.append(PhaseSpan(PhaseName.LOADER, loader[0], end, f"start: {loader[1]}; end: {how}"))
    return spans


def _target(marks: Marks, begin: int) -> tuple[int, str] | None:
    """When the first of the targets for several users was reached after `begin`."""
    found = [(marks[f"unit-up:{name}"][0], name) for name in TARGETS if f"unit-up:{name}" in marks]
    late = sorted(entry for entry in found if entry[0] >= begin)
    return (late[0][0], f"'Reached target {late[0][1]}'") if late else None


def _ready(observed: Observed, marks: Marks, found: list[PhaseSpan]) -> list[PhaseSpan]:
    targets = [
        marks[f"target:{name}"]
        for name in ("graphical.target", "multi-user.target", "default.target")
        if f"target:{name}" in marks
    ]
    mark = marks.get("login") or (targets[0] if targets else None)
    if mark is None:
        mark = next((marks[n] for n in marks if n.startswith("target:")), None)
    if mark is None:
        ends = [p for p in found if p.name == PhaseName.USERSPACE and p.end_us is not None and "systemd" in p.source]
        if ends and ends[-1].end_us is not None:
            mark = (_finished(observed, ends[-1].end_us), "systemd's 'Startup finished'")
        else:
            mark = _target(marks, 0) or marks.get("cloud-init-finished")
    if mark is None:
        return []
    return [PhaseSpan(PhaseName.READY, mark[0], mark[0], mark[1])]


def _finished(observed: Observed, end_us: int) -> int:
    """When systemd had finished: by the total that it printed, which counts from the firmware's start."""
    if observed.printed_total_us is None:
        return end_us
    return observed.printed_total_us + min((p.start_us or 0 for p in observed.phases), default=0)


def printed_total(observed: Observed, phases: list[PhaseSpan]) -> int | None:
    """Return the total that systemd printed, where its phases are all there are."""
    starts = [p.start_us for p in phases if p.start_us is not None]
    first = min((p.start_us for p in observed.phases if p.start_us is not None), default=None)
    return observed.printed_total_us if first is not None and starts and min(starts) == first else None


def _check_reported(observed: Observed, given: dict[str, PhaseSpan]) -> None:
    """Warn where what systemd reported of phases contradicts itself, or the log."""
    _sum_of_parts(observed, given)
    if observed.kernel_log:
        _cross_check(observed, given)


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


@dataclass(frozen=True)
class StripPart:
    """One phase of a strip. `at_us`: since the strip's begin; `x` and `width`: in percent of it. `is_open`: its end is
    not in the files."""

    name: str
    at_us: int
    us: int
    x: float
    width: float
    source: str
    is_open: bool


def phase_strip(phases: Sequence[PhaseSpan], shown_end_us: int | None = None, scale_us: int = 0) -> list[StripPart]:
    """Return the phases that have a length. An open one lasts to `shown_end_us`, where the files' boot ends; without
    that it is left out. The strip is as long as they are, or `scale_us`."""
    spans = [
        (phase, phase.start_us, end)
        for phase in phases
        if phase.start_us is not None
        and (end := shown_end_us if phase.end_us is None else phase.end_us) is not None
        and end > phase.start_us
    ]
    first = min((start for _, start, _ in spans), default=0)
    scale = scale_us or max((end for _, _, end in spans), default=0) - first
    return [
        StripPart(
            name=phase.name,
            at_us=start - first,
            us=end - start,
            x=100 * (start - first) / scale,
            width=100 * (end - start) / scale,
            source=phase.source,
            is_open=phase.end_us is None,
        )
        for phase, start, end in spans
    ]
