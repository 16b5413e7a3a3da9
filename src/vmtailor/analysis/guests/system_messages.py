# SPDX-License-Identifier: Apache-2.0
"""Read the messages of a system's programs line by line: find those that complain, and those that equal one of another
boot."""

from __future__ import annotations

import re

from vmtailor.analysis.guests import kernel_complaints
from vmtailor.base.text import without_escapes
from vmtailor.model.boots.system_exercise import ASKED
from vmtailor.model.guest import GuestReport

#: File with the standard error of the load's steps, each after a line with its number.
STEP_ERRORS = "step-errors"
_STEP = re.compile(r"^step (\d+)$")

#: Characters of a line that count: a guest may send one without an end, and patterns look ahead in it.
MOST_CHARACTERS = 1000

#: Made up anew each time: identifiers, and whatever begins with a digit (numbers, times, versions, durations). A digit
#: that ends a word is part of its meaning: ip6tables and iptables, cgroup2 and cgroup.
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
_IDENTIFIER = re.compile(r"(?<![0-9a-f])(?=[a-f]*\d)[0-9a-f]{7,}(?![0-9A-Za-z])")
_NUMBER = re.compile(r"(?<![A-Za-z_\d])\d[\w.:+-]*")

#: A level that a line names itself, which then counts.
_LEVEL = re.compile(r"""\b(?:level|lvl|severity)"?\s*[=:]\s*"?([A-Za-z]+)""")
_HARMLESS = frozenset(("info", "informational", "notice", "debug", "trace"))
_GRAVE = ("warn", "err", "crit", "fatal", "panic", "alert", "emerg")
_COMPLAINS = re.compile(
    r"""\b(?:warn|warnings?|errors?|fatal|panic|fail(?:s|ed|ures?|ing)?|unable|cannot|can't|could\ not|couldn't
    |unsupported|no\ such|not\ (?:supported?|available|found|mounted|permitted|enabled|loaded)
    |discard(?:ed|ing)|ignor(?:ed|ing)|disabled|denied|degraded|missing)\b|\b(?:does|is|are)\ not\ support""",
    re.I | re.X,
)


def shape(line: str) -> str:
    """Return a line without what differs from boot to boot, and from kernel to kernel by its version alone."""
    for pattern in (_UUID, _IDENTIFIER, _NUMBER):
        line = pattern.sub("#", line)
    return line


def complains(line: str) -> bool:
    """Return whether a line looks like a warning: by the level that it names, or else by its words."""
    found = _LEVEL.search(line)
    level = found[1].lower() if found else ""
    if level in _HARMLESS:
        return False
    return level.startswith(_GRAVE) or bool(_COMPLAINS.search(line))


def lines(report: GuestReport, name: str) -> list[str]:
    """Return a file that the guest sent, as lines that can be shown."""
    found = (without_escapes(line[:MOST_CHARACTERS]).strip() for line in report.file(name).splitlines())
    return [line for line in found if line][: kernel_complaints.MOST_LINES]


def has(report: GuestReport, name: str) -> bool:
    """Return whether the guest sent a file: a command that does not exist sends none."""
    return any(found == name for found, _ in report.files)


def asked(report: GuestReport) -> tuple[str, ...]:
    """Return the names under which the exercise asked, as far as there were answers."""
    return tuple(name.removeprefix(ASKED) for name, _ in report.files if name.startswith(ASKED))


def complaints(report: GuestReport) -> list[str]:
    """Return the lines that look like a warning in the answers to the exercise, in sentences."""
    return [
        f"{name} says: {line}" for name in asked(report) for line in lines(report, f"{ASKED}{name}") if complains(line)
    ]


def of_steps(report: GuestReport) -> list[tuple[int, str]]:
    """Return the output of the load's commands on their standard error: number of the step, from 1, and the line."""
    found, step = [], 0
    for line in lines(report, STEP_ERRORS):
        if number := _STEP.match(line):
            step = int(number[1][:6]) + 1
        else:
            found.append((step, line))
    return found
