# SPDX-License-Identifier: Apache-2.0
"""What a bundle's container was refused while it was used: seen in a run, beside what its exercise showed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


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
    """What was refused, most often first. Image and kernel say which machine it was seen in (`kernel_sha256`: of the
    kernel's file). `untold`: refused calls of further kinds, for which there was no room. `whole`: the last counts
    have come; otherwise the machine was ended before, and calls may have been refused more often."""

    SCHEMA: ClassVar[str] = "vmtailor/observed/1"

    image_reference: str
    image_digest: str
    kernel_version: str
    kernel_sha256: str
    calls: tuple[ObservedCall, ...]
    untold: int = 0
    whole: bool = True
