# SPDX-License-Identifier: Apache-2.0
"""Families of errors. Each says what happened, in what, and what to do next; only `cli` turns one into an exit code."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit codes of every verb (docs/reference/cli.md)."""

    DONE = 0
    NO = 1
    USER_INPUT = 2
    HOST = 3
    BUILD = 4
    GUEST = 5
    BUG = 70
    RUN = 125
    INTERRUPTED = 130


class VmtailorError(Exception):
    """Base of all errors meant for a person. `hint` is the next step to take; `details` is evidence, shown below it."""

    exit_code: ClassVar[ExitCode] = ExitCode.BUG

    def __init__(self, message: str, *, hint: str = "", details: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details = details


class AnswerNo(VmtailorError):
    """The question was answered, and the answer is no: a gate, a verification."""

    exit_code = ExitCode.NO


class UserInputError(VmtailorError):
    """The user's input is wrong: an image, an exercise, an option."""

    exit_code = ExitCode.USER_INPUT


class HostError(VmtailorError):
    """The host lacks something: a tool, disk space, a free port, a package."""

    exit_code = ExitCode.HOST


class NotStarted(HostError):
    """The monitor refused a machine: a device, an option, or memory without room for the kernel and what goes with
    it."""


class BuildError(VmtailorError):
    """A kernel, a configuration or a file system could not be built."""

    exit_code = ExitCode.BUILD


class GuestError(VmtailorError):
    """A guest failed: it crashed, hung, or its workload did. `details` carries the console's tail."""

    exit_code = ExitCode.GUEST
