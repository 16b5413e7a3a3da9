# SPDX-License-Identifier: Apache-2.0
"""Find what a system lost on a machine, by what it says of itself there and not on another, even if its exercise
passes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from vmtailor.analysis.guests import kernel_complaints, system_messages
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.system_exercise import ASKED
from vmtailor.model.watched.system_run import SystemRun

#: The files in which the attendant sends the errors of the system's own log, and its warnings with them.
ERRORS, WARNINGS = "errors", "warnings"


def degraded(before: SystemRun, after: SystemRun, expected: Iterable[re.Pattern[str]] = ()) -> tuple[str, ...]:
    """Return what `after` lost, in sentences. That is: units that newly failed; errors and warnings newly in the
    system's log; new complaints of the kernel, numbers aside; complaints in the system's answers to the exercise; and
    what steps newly say on their standard error. `expected`: messages that a smaller machine is known for."""
    patterns = tuple(expected)
    units = new_units(before.boot, after.boot)
    complaints = new_complaints(before, after, patterns)
    errors = tuple(kernel_complaints.new_lines(_errors(after), _errors(before), patterns))
    said = {_plain(text) for text in complaints}
    return (
        *(f"unit {name} failed, which it did not on the baseline" for name in units),
        *(f"the system logs an error: {text}" for text in errors if _plain(text) not in said),
        *_warnings(before, after, {*said, *map(_plain, errors)}, patterns),
        *(f"the kernel complains: {text}" for text in complaints),
        *_asked(before, after, patterns),
        *_of_steps(before, after, patterns),
    )


def _warnings(
    before: SystemRun, after: SystemRun, said: set[str], expected: tuple[re.Pattern[str], ...]
) -> Iterator[str]:
    """Yield warnings newly in the system's log. A baseline that was recorded without them tells nothing."""
    if not system_messages.has(before.report, WARNINGS):
        return
    known = [*system_messages.lines(before.report, WARNINGS), *map(_plain, before.boot.kernel_warnings)]
    for text in _new(system_messages.lines(after.report, WARNINGS), known, expected):
        if _plain(text) not in said:
            yield f"the system logs a warning: {text}"


def _asked(before: SystemRun, after: SystemRun, expected: tuple[re.Pattern[str], ...]) -> Iterator[str]:
    for name in system_messages.asked(before.report):
        file = f"{ASKED}{name}"
        if not system_messages.has(after.report, file) and not after.boot.failures:
            yield f"{name} says nothing any more: its program is not found"
        for text in _new(
            system_messages.lines(after.report, file), system_messages.lines(before.report, file), expected
        ):
            if system_messages.complains(text):
                yield f"{name} says: {text}"


def _of_steps(before: SystemRun, after: SystemRun, expected: tuple[re.Pattern[str], ...]) -> Iterator[str]:
    known = [text for _, text in system_messages.of_steps(before.report)]
    told = {text: number for number, text in reversed(system_messages.of_steps(after.report))}
    for text in _new([text for _, text in system_messages.of_steps(after.report)], known, expected):
        yield f"load step {told[text]} says on its standard error: {text}"


def _new(after: Iterable[str], before: Iterable[str], expected: Iterable[re.Pattern[str]]) -> Iterator[str]:
    return kernel_complaints.new_lines(after, before, expected, system_messages.shape)


def new_units(before: Boot, after: Boot) -> list[str]:
    """Return units that only `after` calls failed. Those of containers have names that are made up anew each time."""
    known = {kernel_complaints.shape(name) for name in before.failed_units}
    return [name for name in after.failed_units if kernel_complaints.shape(name) not in known]


def new_complaints(before: SystemRun, after: SystemRun, expected: Iterable[re.Pattern[str]] = ()) -> list[str]:
    """Return warnings of the kernel that only `after` has. Warnings of programs come by the kernel's log, too, before
    the system has its own: they count as much."""
    return list(kernel_complaints.new_lines(after.boot.kernel_warnings, before.boot.kernel_warnings, expected))


def _errors(run: SystemRun) -> list[str]:
    return [line.strip() for line in run.report.file(ERRORS).splitlines() if line.strip()][
        : kernel_complaints.MOST_LINES
    ]


def _plain(text: str) -> str:
    """Return a message without who said it."""
    head, colon, rest = text.partition("]: ")
    return rest if colon and "[" in head else text
