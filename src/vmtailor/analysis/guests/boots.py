# SPDX-License-Identifier: Apache-2.0
"""The record of a boot from all that a driven guest left behind, and the guest's errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from vmtailor.analysis.cost import plugin_counts
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.guests import kernel_complaints, load_faults, load_records
from vmtailor.analysis.guests.varying_output import Output
from vmtailor.base import wrong_answers
from vmtailor.base.natives import Natives
from vmtailor.model.architecture import Emulator, named, presumed_name
from vmtailor.model.boots.boot import Boot, ContainerRun, Milestone, Outcome
from vmtailor.model.boots.counters import CodeMark
from vmtailor.model.boots.ending import Ending, Gathered
from vmtailor.model.exercise import Exercise, Expect, ReadyKind, Step, StepKind
from vmtailor.model.guest import READY_STEP, Answer, GuestReport, StepResult

#: Share of a counter's round by which it may seem to be behind what was executed: an access that faults counts twice.
_SLACK = 100


def of_executed(executed: int, emulator: Emulator) -> int:
    """Return the nanoseconds in which so many instructions are executed, when nothing waits."""
    return executed << emulator.pace


def of_counter(counted_ns: int, executed: int | None, emulator: Emulator) -> int:
    """Return nanoseconds since reset, by a counter that may have begun anew ahead of the kernel. They are at least the
    time of what was executed until then; where that is not known, the counter's value."""
    if executed is None or not emulator.round_ns:
        return counted_ns
    lost_ns = of_executed(executed, emulator) - emulator.round_ns // _SLACK - counted_ns
    return counted_ns + max(0, -(-lost_ns // emulator.round_ns)) * emulator.round_ns


#: Init's note about a limit that it stretched (native/init/exercise/exercise.c).
_MADE_LONGER = re.compile(r"not ready within \d{1,12} ms, made (\d{1,12}) ms")
#: Said of a program that goes on where nobody said what it is for.
_WAS_TO_END = (
    "the image has neither a health check nor an exposed TCP port, so the program was expected to end. "
    "If it is to go on, say with --exercise FILE when it is ready"
)
#: Lines of the console that an error shows.
TAIL_LINES = 25


def marks(table: SymbolTable, natives: Natives) -> tuple[CodeMark, ...]:
    """Return the milestones that the plugin marks: the kernel's, by its symbol table, and our init's."""
    return marks_at(table, natives.marks())


def marks_at(table: SymbolTable, addresses: Mapping[str, int]) -> tuple[CodeMark, ...]:
    """Return the milestones for an init whose marks lie at these addresses."""
    return (*plugin_counts.kernel_marks(table), *(CodeMark(name, at) for name, at in addresses.items()))


def make_boot(gathered: Gathered, exercise: Exercise | None, table: SymbolTable | None = None) -> Boot:
    """Return the record of one boot, judged by its exercise where there is one. A counted boot has exact milestones and
    phases, and with the kernel's table the cost of each function."""
    report = gathered.report
    found = failures(gathered, exercise) if exercise is not None else ()
    milestones = _milestones(gathered)
    boot = bare_boot(gathered, _outcome(gathered.end.ending, milestones, bool(found)), milestones, table)
    container = ContainerRun(
        exit_code=report.exit_code,
        answers_right=not found if exercise is not None else None,
        requests=requests(report),
        loads=load_records.of_exercise(report.file("load"), exercise),
        stdout=report.stdout,
        stderr=report.stderr,
    )
    return replace(boot, failures=found, container=container, console=report.console)


def bare_boot(
    gathered: Gathered, outcome: Outcome, milestones: tuple[Milestone, ...], table: SymbolTable | None
) -> Boot:
    """Return the record of a boot without what its guest did: its end, its milestones, and its costs as they were
    counted."""
    counters = gathered.counters
    return Boot(
        outcome=outcome,
        milestones=milestones,
        seconds=gathered.end.seconds,
        command=gathered.end.command,
        phases=plugin_counts.phases(counters) if counters is not None else (),
        functions=plugin_counts.functions(counters, table) if counters is not None and table is not None else (),
        instructions=to_init(milestones),
    )


def requests(report: GuestReport) -> int:
    """Return how many times the steps of an exercise were done."""
    return sum(result.done for result in report.results if result.step != READY_STEP)


def _outcome(ending: Ending, milestones: Sequence[Milestone], wrong: bool) -> Outcome:
    if not wrong:
        return Outcome.READY
    if ending is Ending.PANIC:
        return Outcome.PANIC
    if any(milestone.name == "ready" for milestone in milestones):
        return Outcome.WRONG
    return Outcome.TIMEOUT if ending is Ending.DEADLINE else Outcome.STOPPED


def _milestones(gathered: Gathered) -> tuple[Milestone, ...]:
    """Return the plugin's marks and init's messages in the order of time."""
    counters = gathered.counters
    found = {m.name: m for m in plugin_counts.milestones(counters)} if counters is not None else {}
    emulator = named(counters.architecture if counters is not None else presumed_name()).emulator
    found = {name: replace(m, source="the plugin's mark") for name, m in found.items()}
    kernel = found.get(plugin_counts.KERNEL_MARK)
    # Before the kernel runs nothing waits: virtual time is that of what was executed.
    if kernel is not None and kernel.executed is not None:
        found[kernel.name] = replace(kernel, virtual_ns=of_executed(kernel.executed, emulator))
    for mark in gathered.report.marks:
        known = found.get(mark.name, Milestone(mark.name))
        if known.virtual_ns is None:
            wall_s = mark.host_s - gathered.started_s
            virtual_ns = of_counter(mark.cycles, known.executed, emulator)
            found[mark.name] = replace(known, virtual_ns=virtual_ns, wall_s=wall_s, source="mark of our init")
    return tuple(sorted(found.values(), key=lambda m: (m.wall_s or 0.0, m.executed or 0)))


def to_init(milestones: Sequence[Milestone]) -> int | None:
    """Return instructions from kernel entry to init."""
    executed = {m.name: m.executed for m in milestones}
    begin, end = executed.get(plugin_counts.KERNEL_MARK), executed.get("init")
    return None if begin is None or end is None else end - begin


def failures(gathered: Gathered, exercise: Exercise) -> tuple[str, ...]:
    """Return what the exercise asked for and did not get, in sentences; empty when the container works."""
    report, found = gathered.report, []
    if gathered.end.ending is not Ending.EXITED:
        found.append(
            {
                Ending.PANIC: "the guest's kernel panicked",
                Ending.DEADLINE: f"the guest was not done after {gathered.end.seconds:.0f} s",
                Ending.DIED: f"{gathered.end.monitor} ended with status {gathered.end.returncode}",
            }[gathered.end.ending]
        )
    if report.fatal is not None:
        needs = f" (kernel symbol {report.fatal.symbol})" if report.fatal.symbol else ""
        found.append(f"init gave up: {report.fatal.text}{needs}")
    if report.exit_reason:
        found.append(report.exit_reason)
    found += _unready(report, exercise)
    found += wrong_steps(report, exercise)
    if exercise.ready.kind is ReadyKind.EXIT or exercise.expect != Expect():
        found += _wrong_end(report, exercise.expect)
    return tuple(dict.fromkeys(found))


def _unready(report: GuestReport, exercise: Exercise) -> list[str]:
    if exercise.ready.kind is ReadyKind.EXIT:
        if report.ready is not None and not report.ready.ok:  # what it ended with then was our signal
            found = f"the program did not end within {exercise.ready.timeout_s:g} s{_stretched(report)}"
            return [f"{found}; {_WAS_TO_END}" if exercise.derived else found]
        return [] if report.exit_code is not None else ["the program did not run to its end"]
    result = report.ready
    if result is not None and result.ok:
        return []
    ended = f"; it ended with exit code {report.exit_code}" if report.exit_code is not None else ""
    why = why_wrong(result, exercise.ready.step)
    return [f"the container did not become ready within {exercise.ready.timeout_s:g} s{_stretched(report)}{why}{ended}"]


def _stretched(report: GuestReport) -> str:
    """Return what init made of the limit, where its machine is slow."""
    found = (_MADE_LONGER.search(note.text) for note in report.notes)
    longest = next((int(match[1]) / 1000 for match in found if match), None)
    return "" if longest is None else f" (made {longest:.0f} s, since this machine is slow)"


def wrong_steps(report: GuestReport, exercise: Exercise) -> list[str]:
    """Return steps of the load that were not answered right, in sentences."""
    by_number = {result.step: result for result in report.results}
    loads = {load.step: load for load in load_records.parse(report.file("load"))}
    found: list[str] = []
    for number, step in enumerate(exercise.guest_steps, 1):
        result = by_number.get(number - 1)
        if result is None:
            if report.ready is not None and report.ready.ok:
                found.append(f"load step {number} ({step.title}) was not done")
        elif step.load is not None and (number - 1 in loads or result.ok):
            found += filter(None, [load_faults.told(step, number - 1, loads)])
        elif not result.ok or result.done < step.repeat:
            found.append(
                f"load step {number} ({step.title}): {result.right} of {step.repeat} right{why_wrong(result, step)}"
            )
    return found


def why_wrong(result: StepResult | None, step: Step | None) -> str:
    """Return the end of a sentence about a step: its first fault, and how the wrong answer began; empty where nothing
    is known."""
    if result is None or not result.why:
        return ""
    wrong = result.wrong
    # Of a command that failed, init tells the last words itself.
    if wrong is None or wrong.error or step is None or step.kind is StepKind.TCP or result.why.startswith("exit "):
        return f": {result.why}"
    expect, what = step.expect, "body" if step.kind is StepKind.HTTP else "output"
    if expect.contains is not None and result.why.startswith("does not contain"):
        return f": {wrong_answers.lacks(what, expect.contains, wrong.head)}"
    if expect.stdout is not None and expect.sha256 is None and "with SHA-256" in result.why:
        return f": expected the {what} {wrong_answers.quoted(expect.stdout)}; {wrong_answers.began(what, wrong.head)}"
    return f": {result.why}; {wrong_answers.began(what, wrong.head)}"


def _wrong_end(report: GuestReport, expect: Expect) -> list[str]:
    found = []
    if expect.exit_code is not None and report.exit_code is not None and report.exit_code != expect.exit_code:
        found.append(f"the exit code is {report.exit_code}, expected {expect.exit_code}")
    if expect.stdout is not None and report.stdout != expect.stdout:
        found.append(wrong_answers.unlike("output", expect.stdout, report.stdout))
    if expect.contains is not None and expect.contains not in report.stdout:
        found.append(wrong_answers.lacks("output", expect.contains, report.stdout))
    if expect.sha256 is not None and report.stdout_sha256 != expect.sha256.lower():
        digest = f"the output has SHA-256 {report.stdout_sha256[:12] or 'none'}…, not {expect.sha256[:12]}…"
        found.append(f"{digest}; {wrong_answers.began('output', report.stdout)}")
    return found


def differences(one: GuestReport, other: GuestReport, exercise: Exercise, again: str | None = None) -> tuple[str, ...]:
    """Return the answers of the tailored machine (`other`) that differ from the baseline's (`one`), unless the exercise
    says what is right. `again`: the output of another run on the baseline. What differs between those two says
    nothing."""
    found = []
    printed = Output(one.stdout, one.stdout if again is None else again)
    if one.exit_code != other.exit_code:
        found.append(f"the exit code is {other.exit_code}, on the baseline {one.exit_code}")
    if exercise.ready.kind is ReadyKind.EXIT and not printed.allows(other.stdout):
        found.append(wrong_answers.differs("output", one.stdout, other.stdout))
    theirs = {result.step: result for result in other.results}
    for result in one.results:
        answer = theirs.get(result.step)
        if answer is None or not result.done or not answer.done:
            continue  # a failure of its own
        before, after = result.first, answer.first
        if (before.status, before.exit_code) != (after.status, after.exit_code):
            found.append(
                f"step {result.step + 1}: answered with {_answered(after)}, on the baseline {_answered(before)}"
            )
        elif result.kind == StepKind.HTTP and result.done > 1 and result.same and before.sha256 != after.sha256:
            bodies = f"{wrong_answers.began('body', after.head)}, on the baseline {wrong_answers.quoted(before.head)}"
            found.append(f"step {result.step + 1}: the body differs from the baseline's: {bodies}")
    return tuple(found)


def _answered(answer: Answer) -> str:
    return f"status {answer.status}" if answer.status >= 0 else f"exit status {answer.exit_code}"


def kernel_words(report: GuestReport) -> str:
    """Return the kernel's own words: what came on the console, then the log that init sent."""
    return report.console + report.file("kernel-log")


def complaints(gathered: Gathered, architecture: str) -> list[str]:
    """Return the complaints of the guest's kernel."""
    console = kernel_complaints.behind_firmware(gathered.report.console, named(architecture).log.firmware_end)
    return kernel_complaints.complaints(gathered.report.file("kernel-log"), console)


def evidence(gathered: Gathered, found: Sequence[str]) -> str:
    """Return the evidence for an error: what failed, the last words of container and kernel, and the command to see it
    again."""
    report = gathered.report
    parts = list(found)
    for title, text in (("standard output", report.stdout), ("standard error", report.stderr)):
        if text.strip():
            parts += [f"--- {title}:", *text.strip().splitlines()[-TAIL_LINES:]]
    console = (report.console.strip() or report.file("kernel-log").strip()).splitlines()[-TAIL_LINES:]
    parts += ["--- console:", *console] if console else []
    parts += [f"--- machine, ended after {gathered.end.seconds:.1f} s:", gathered.end.stderr, gathered.end.command]
    return "\n".join(part for part in parts if part)
