# SPDX-License-Identifier: Apache-2.0
"""Make the record of a boot from what a system that an attendant drove left behind, with its errors and its own
words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from vmtailor.analysis.cost import plugin_counts
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.guests import boots, kernel_complaints, system_messages
from vmtailor.analysis.guests.boots import why_wrong, wrong_steps
from vmtailor.analysis.timeline import bootmarks
from vmtailor.model.architecture import named
from vmtailor.model.boots.boot import Boot, ContainerRun, Milestone, Outcome
from vmtailor.model.boots.counters import Counters
from vmtailor.model.boots.ending import Ending, Gathered
from vmtailor.model.boots.system_exercise import SystemExercise, SystemReadyKind
from vmtailor.model.guest import GuestReport

#: The file in which the attendant sends what systemd says of failed units.
FAILED_UNITS = "failed-units"
#: Sent in place of the kernel's log if the kernel has none.
SILENT = "no-kernel-log"
#: The file in which it sends its units with what each needs.
UNITS = "units"
_UNIT = re.compile(r"^(?:[●×*] )?(\S+\.[a-z]+)\s+\S+\s+failed\b")
#: A kernel says this when it was asked to end, whatever its console shows.
_FAREWELL = re.compile(r"reboot: (?:Restarting system|Power down|System halted)")
_PANICKED = "the kernel panicked"
#: Units and messages that are kept.
_MOST = 500


def boot_of(
    gathered: Gathered,
    exercise: SystemExercise,
    lost: str,
    outside: Sequence[str] = (),
    *,
    shut_down: bool = True,
    table: SymbolTable | None = None,
) -> Boot:
    """Return the record of one boot. `lost`: why it was given up, or ""; `outside`: the errors that steps from outside
    found. `shut_down`: the whole exercise was asked of it, not only to get ready. `table`: names the functions that
    were counted."""
    found = (*failures(gathered, exercise, lost, shut_down=shut_down), *outside)
    report = gathered.report
    return replace(
        boots.bare_boot(gathered, _outcome(report, found, lost), _milestones(gathered), table),
        failures=found,
        cpu_s=gathered.cpu_s,
        container=ContainerRun(answers_right=not found, requests=boots.requests(report)),
        kernel_warnings=tuple(kernel_complaints.complaints(report.file("kernel-log")))[:_MOST],
        failed_units=failed_units(report),
    )


def failures(gathered: Gathered, exercise: SystemExercise, lost: str, *, shut_down: bool = True) -> tuple[str, ...]:
    """Return what the exercise asked for and did not get, in sentences; empty when the system works."""
    report, found = gathered.report, [lost] if lost else []
    if gathered.end.ending is Ending.DIED:
        found.append(f"{gathered.end.monitor} ended with status {gathered.end.returncode}")
    if report.fatal is not None:
        found.append(f"the attendant gave up: {report.fatal.text}")
    if not report.marks and not lost:
        found.append("the machine ended before the system was started")
    found += [note.text for note in report.notes if "ended without a shutdown" in note.text]
    if report.marks:
        found += [] if lost else _unready(report, exercise)
    if report.marks and shut_down:
        found += wrong_steps(report, exercise.inside())
        shutdown = report.mark("stop") is not None
        if shutdown and not lost and not found and not (_is_silent(report) or _said_farewell(gathered)):
            found.append("it did not shut down: the machine ended without a word of its kernel")
        if not shutdown and not lost and not found:
            found.append("the machine ended by itself during the exercise")
    return tuple(dict.fromkeys(found))


def _unready(report: GuestReport, exercise: SystemExercise) -> list[str]:
    if report.mark("ready") is not None:
        return []
    ready, result = exercise.ready, report.ready
    if result is None and report.mark("stop") is None:
        return ["the machine ended by itself before its system was ready: it was switched off, or started again"]
    what = {SystemReadyKind.UNIT: f"unit {ready.unit}", SystemReadyKind.LOG: f"the line {ready.pattern}"}.get(
        ready.kind, str(ready.kind)
    )
    why = why_wrong(result, ready.step)
    return [f"the system did not become ready ({what}) within {ready.timeout_s:g} s{why}"]


def _is_silent(report: GuestReport) -> bool:
    """Return whether the kernel was compiled without messages. Then it is enough that it ended by itself when asked
    to."""
    return system_messages.has(report, SILENT)


def _said_farewell(gathered: Gathered) -> bool:
    return any(_FAREWELL.search(line) for _, line in gathered.lines[-50:])


def _outcome(report: GuestReport, found: Sequence[str], lost: str) -> Outcome:
    if not found:
        return Outcome.READY
    if lost.startswith(_PANICKED):
        return Outcome.PANIC
    if report.mark("ready") is not None:
        return Outcome.WRONG
    return Outcome.TIMEOUT if lost.startswith("it was not done") or report.mark("stop") else Outcome.STOPPED


def _milestones(gathered: Gathered) -> tuple[Milestone, ...]:
    lines = bootmarks.lines_of(gathered.lines)
    found = {one.name: one for one in bootmarks.milestones(lines)}
    for mark in gathered.report.marks:
        name = "attendant" if mark.name == "init" else mark.name
        wall_s = mark.host_s - gathered.started_s
        found[name] = Milestone(
            name=name, executed=None, virtual_ns=mark.monotonic_ns, wall_s=wall_s, source="mark of the attendant"
        )
        if mark.name == "init":
            found.setdefault("init", replace(found[name], name="init"))
    if gathered.counters is not None:
        found |= _counted(gathered.counters, gathered)
    return tuple(sorted(found.values(), key=lambda m: m.wall_s or 0.0))


def _counted(counters: Counters, gathered: Gathered) -> dict[str, Milestone]:
    """Return the marks that the plugin met, counted from reset on. `init` is the system's own, executed on its real
    root."""
    found = {one.name: one for one in plugin_counts.milestones(counters)}
    emulator = named(counters.architecture).emulator
    for name, one in found.items():
        mark = gathered.report.mark(name)
        if mark is not None:
            wall_s = mark.host_s - gathered.started_s
            virtual_ns = boots.of_counter(mark.cycles, one.executed, emulator)
            found[name] = replace(one, virtual_ns=virtual_ns, wall_s=wall_s, source="mark of the attendant")
        else:
            # Before the kernel runs nothing waits: virtual time is that of what was executed.
            begin = name == plugin_counts.KERNEL_MARK and one.executed is not None
            since_ns = boots.of_executed(one.executed or 0, emulator) if begin else None
            found[name] = replace(one, virtual_ns=since_ns, source="the plugin's mark")
    return found


def failed_units(report: GuestReport) -> tuple[str, ...]:
    """Return units that systemd calls failed after the exercise; empty for other inits."""
    rows = (_UNIT.match(line) for line in report.file(FAILED_UNITS).splitlines())
    return tuple(dict.fromkeys(row[1] for row in rows if row))[:_MOST]
