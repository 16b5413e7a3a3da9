# SPDX-License-Identifier: Apache-2.0
"""A monitor's start as a supervisor does it (native/supervise): a command, and files that the supervisor opens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

#: The path of the run volume among a machine's disks: the supervisor makes it, in memory.
RUN_VOLUME = "/run-volume"
#: Descriptors of a monitor's: of the run volume, for writing (the next one is for reading), and of its own monitor
#: protocol, and of the console beside a virtio port; then those of files.
MEMORY = 64
CONTROL = 66
LINE = 67
FIRST_FILE = 68


class FileHandover(StrEnum):
    """The rights with which a program gets a file."""

    READ = "r"
    WRITE = "rw"
    COPY = "copy"  # a copy in memory, which it may open again


@dataclass(frozen=True)
class ProgramFile:
    """A file that a program has at the descriptor `number`; -1: the supervisor only looks whether it has changed."""

    number: int
    use: FileHandover
    path: str


@dataclass(frozen=True)
class ProgramBeside:
    """A program that runs beside a monitor, and ends with it. `argv`: the launcher with its words, without those about
    its parent, and the program with its arguments. `inherited`: descriptors of ours that it gets."""

    argv: tuple[str, ...]
    inherited: tuple[int, ...] = ()


@dataclass(frozen=True)
class SupervisedStart:
    """One start of a monitor. `argv`: the launcher (native/launch) with its words, without those about its parent, and
    the monitor with its arguments, whose standard input and output are the serial line. `programs`: files of the
    launcher and the monitor, with what they load. `inherited`: descriptors of ours that it gets. `memory`, `control`,
    `line`: its descriptors of the run volume, of QMP, and of the kernel's console, where standard input and output are
    a virtio port; 0: it has none. `command`: for people. `cpu`, `halted`: patterns of a line
    of registers that tells of a CPU, and of one that takes no interrupt any more."""

    argv: tuple[str, ...]
    command: str
    environment: Mapping[str, str] = field(default_factory=dict)
    files: tuple[ProgramFile, ...] = ()
    programs: tuple[str, ...] = ()
    inherited: tuple[int, ...] = ()
    memory: int = MEMORY
    control: int = 0
    line: int = 0
    cpu: str = ""
    halted: str = ""
