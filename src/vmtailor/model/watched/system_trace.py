# SPDX-License-Identifier: Apache-2.0
"""The observations of a system with an init of its own while it started on its own kernel."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from vmtailor.base.files.records import Older
from vmtailor.model.boots.boot import Boot
from vmtailor.model.machine import Machine, with_machine
from vmtailor.model.syscalls import FailedCall
from vmtailor.model.trace import FileUse, LoadedModule


@dataclass(frozen=True)
class SeenDevice:
    """A device of the machine: its folder below /sys, and the name by which a module is asked for (modalias)."""

    path: str
    alias: str


class LoadedFor(StrEnum):
    """The reasons to load a module."""

    DEVICE = "a device that is there"
    REQUEST = "a request of the kernel, on behalf of a program"
    NAME = "a program that asked for it by name"
    PERHAPS = "a program that asked for it by name, and does without"  # modprobe -q, or PID 1 itself
    DEPENDENCY = "another module"
    ROOT = "the way into the root"  # loaded by the initial RAM disk
    WATCHING = "our tracer"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class ModuleLoad:
    """A module that came to be loaded. `path`: in the kernel's tree, without ending. `what`: the alias, the device's
    path, the module that depends on it. `task`: on whose behalf; empty where that is not known. `line` of the log."""

    module: str
    path: str
    reason: LoadedFor
    what: str
    task: str
    line: int


@dataclass(frozen=True)
class KernelProgram:
    """A program that the kernel itself started, outside all descendants of PID 1 (modprobe, request-key, a core dump's
    reader), and how often."""

    path: str
    count: int
    line: int


@dataclass(frozen=True)
class LogFigures:
    """Figures of the tracer's log. `skipped`: lines that were not understood. `whole`: it was read to its end."""

    lines: int
    calls: int
    processes: int
    skipped: int
    never_returned: int
    bytes: int
    guest_seconds: float
    whole: bool = True


# vmtailor/system-trace/1: with vmtailor/machine/2.
@dataclass(frozen=True)
class SystemTrace:
    """A boot with every system call of PID 1 and all its descendants seen. `requests_file`: the log, beside the record.
    `boot` may have failed: what was seen until then is kept. `plain_seconds`: host seconds that the same machine took
    without the tracer. `events`: whether the kernel told of its own programs and of what it asked modules for."""

    SCHEMA: ClassVar[str] = "vmtailor/system-trace/2"
    OLDER: ClassVar[Older] = {"vmtailor/system-trace/1": with_machine}

    subject: str
    machine: Machine
    boot: Boot
    plain_seconds: float
    requests_file: str
    figures: LogFigures
    events: bool
    devices: tuple[SeenDevice, ...]
    modules: tuple[LoadedModule, ...]
    loads: tuple[ModuleLoad, ...]
    kernel_programs: tuple[KernelProgram, ...]
    failed_calls: tuple[FailedCall, ...]
    files: tuple[FileUse, ...]
