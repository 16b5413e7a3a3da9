# SPDX-License-Identifier: Apache-2.0
"""System calls seen in a guest, and those that a bundle's container was refused while it was used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

#: Calls that give the number of a new process, or thread.
FORKS = frozenset({"clone", "clone3", "fork", "vfork"})


@dataclass(frozen=True)
class SyscallEvent:
    """One call. `args` are as the tracer printed them; `result` is a number or None (never returned);
    `error` is the errno's name or empty; `seconds` is the time inside; `line` its line in the raw trace."""

    line: int
    pid: int
    task: str
    name: str
    args: tuple[str, ...]
    result: int | None
    error: str
    seconds: float
    phase: str = ""  # start-up, settle, load, stop


@dataclass(frozen=True)
class CallSummary:
    """All calls of one name by one task. Times in seconds. `constant_args` are (index, value) that never changed."""

    task: str
    name: str
    count: int
    errors: tuple[tuple[str, int], ...]
    min_s: float
    mean_s: float
    max_s: float
    constant_args: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class FailedCall:
    """A call that failed, by what matters to tell one from another: name, its deciding arguments, and the error."""

    SCHEMA: ClassVar[str] = "vmtailor/failed-call/1"

    name: str
    arguments: str
    error: str
    count: int = 1


@dataclass(frozen=True)
class Absence:
    """A call that fails newly and is no failure: what it looks for is not there, and such programs do without.
    `id` is the row of data/harmless that says so, with its `reason`."""

    SCHEMA: ClassVar[str] = "vmtailor/absence/1"

    call: FailedCall
    id: str
    reason: str


@dataclass(frozen=True)
class ObservedCall:
    """A kind of call that failed. `args` are as the tracer printed them, of the first such call; `arguments` are those
    that decide what is asked for (paths, flags, families). `error` is the errno's name. `task` is the program that
    called, or its process where the kernel does not tell names. `path`: the file that is named, or empty."""

    name: str
    args: tuple[str, ...]
    arguments: str
    error: str
    count: int
    task: str
    path: str = ""


@dataclass(frozen=True)
class ObservedRun:
    """The refused calls, most often first. Image and kernel name the machine (`kernel_sha256`: of the kernel's file).
    `untold`: refused calls of further kinds, for which there was no room. `whole`: the last counts have come; otherwise
    the machine was ended before, and calls may have been refused more often."""

    SCHEMA: ClassVar[str] = "vmtailor/observed/1"

    image_reference: str
    image_digest: str
    kernel_version: str
    kernel_sha256: str
    calls: tuple[ObservedCall, ...]
    untold: int = 0
    whole: bool = True
