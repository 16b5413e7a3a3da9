# SPDX-License-Identifier: Apache-2.0
"""What a system says of itself on one machine that it did not say on another: what it lost there, even though its
exercise passes."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vmtailor.analysis.guests import kernel_log
from vmtailor.model.boots.boot import Boot
from vmtailor.model.watched.system_run import SystemRun

#: The file in which the attendant sends the errors of the system's own log.
ERRORS = "errors"


def degraded(before: SystemRun, after: SystemRun, expected: Iterable[re.Pattern[str]] = ()) -> tuple[str, ...]:
    """What `after` lost, in sentences: units that newly failed, errors newly in the system's log, and complaints of
    the kernel that are new, numbers aside. `expected`: messages that a smaller machine is known for."""
    patterns = tuple(expected)
    units = new_units(before.boot, after.boot)
    complaints = new_complaints(before, after, patterns)
    errors = kernel_log.new_complaints(_errors(after), _errors(before), patterns)
    said = {_plain(text) for text in complaints}
    return (
        *(f"unit {name} failed, which it did not on the baseline" for name in units),
        *(f"the system logs an error: {text}" for text in errors if _plain(text) not in said),
        *(f"the kernel complains: {text}" for text in complaints),
    )


def new_units(before: Boot, after: Boot) -> list[str]:
    """Units that only `after` calls failed. Those of containers have names that are made up anew each time."""
    known = {kernel_log.shape(name) for name in before.failed_units}
    return [name for name in after.failed_units if kernel_log.shape(name) not in known]


def new_complaints(before: SystemRun, after: SystemRun, expected: Iterable[re.Pattern[str]] = ()) -> list[str]:
    """Warnings of the kernel that only `after` has. Warnings of programs come by the kernel's log, too, before the
    system has its own: they count as much."""
    return kernel_log.new_complaints(after.boot.kernel_warnings, before.boot.kernel_warnings, expected)


def _errors(run: SystemRun) -> list[str]:
    return [line.strip() for line in run.report.file(ERRORS).splitlines() if line.strip()][: kernel_log.MOST_LINES]


def _plain(text: str) -> str:
    """A message without who said it."""
    head, colon, rest = text.partition("]: ")
    return rest if colon and "[" in head else text
