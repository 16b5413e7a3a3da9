# SPDX-License-Identifier: Apache-2.0
"""The guest's own words on the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

#: Step number of the ready check among results.
READY_STEP = -1


@dataclass(frozen=True)
class GuestMark:
    """A moment of a boot. `cycles`: the guest's time stamp counter (virtual ns under the instruction clock);
    `monotonic_ns` and `realtime_ns`: its clocks; `host_s`: the host's monotonic clock when the mark was heard."""

    name: str
    cycles: int
    monotonic_ns: int
    realtime_ns: int
    host_s: float = 0.0


@dataclass(frozen=True)
class GuestNote:
    """Something init noticed. `symbol` is the kernel configuration symbol that would help, or empty."""

    symbol: str
    text: str


@dataclass(frozen=True)
class Answer:
    """One answer: of an HTTP request (`status`) or a command (`exit_code`). -1: no such figure. `head` is the start of
    the body or output; `error` says why there was no answer."""

    status: int = -1
    exit_code: int = -1
    length: int = 0
    sha256: str = ""
    head: str = ""
    error: str = ""


@dataclass(frozen=True)
class StepResult:
    """One step of the exercise (READY_STEP: the ready check). `done` answers were judged, `right` of them were right;
    `same`: all had the first one's body and status; `virtual_ns`: time it took in the guest; `why`: the first fault."""

    step: int
    kind: str
    done: int
    right: int
    same: bool
    virtual_ns: int
    first: Answer = Answer()
    wrong: Answer | None = None
    why: str = ""

    @property
    def ok(self) -> bool:
        return self.done > 0 and self.done == self.right


@dataclass(frozen=True)
class GuestReport:
    """All that a guest said in one boot. `exit_code` is the container's (128 + signal when killed), None when it never
    ended; `exit_reason` is why it could not be executed; `fatal` why init gave up. `files`: name and text (modules,
    module-sections, kernel-log). `console` is what was no frame: the kernel's own words. `damaged`, `lost`: frames.
    `stdout_sha256`: of all that was printed, in hexadecimal, though `stdout` be cut."""

    SCHEMA: ClassVar[str] = "vmtailor/guest-report/1"

    marks: tuple[GuestMark, ...] = ()
    notes: tuple[GuestNote, ...] = ()
    fatal: GuestNote | None = None
    exit_code: int | None = None
    signal: int = 0
    exit_reason: str = ""
    results: tuple[StepResult, ...] = ()
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False
    files: tuple[tuple[str, str], ...] = ()
    console: str = ""
    damaged: int = 0
    lost: int = 0
    stdout_sha256: str = ""

    def mark(self, name: str) -> GuestMark | None:
        """Return the first mark of a name, or None."""
        return next((mark for mark in self.marks if mark.name == name), None)

    def file(self, name: str) -> str:
        """Return the text of a file the guest sent, or an empty string."""
        return next((text for found, text in self.files if found == name), "")

    @property
    def ready(self) -> StepResult | None:
        return next((result for result in self.results if result.step == READY_STEP), None)
