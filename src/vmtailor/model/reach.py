# SPDX-License-Identifier: Apache-2.0
"""Reach: what the image's programs could ask the kernel for, read from the image without running it; and what of that a
kernel lacks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from vmtailor.model.evidence import EvidenceKind


class Nearness(StrEnum):
    """The nearness of an image's file to what was seen. It was opened in the trace; or it is led to by an opened one
    (needed by it, run by it, loadable into it); or it is merely in the image."""

    OPENED = "opened"
    LED_TO = "led to"
    IN_IMAGE = "in the image"


#: The nearest first.
NEARNESS = tuple(Nearness)


@dataclass(frozen=True)
class Ask:
    """One thing that a file of the image could ask the kernel for.

    `key` names it as the field does: a system call (`flock`), a family (`AF_INET6`), a path (`/proc/self/status`), a
    binary format (`#!`, `ELF32`), a credential (`setuid`, `file capabilities`). `call` is the system call that takes
    it, `argument` the word of the call's arguments that is told by the code (`F_SETLK`); both empty where there is
    none; of `ELF32` the `argument` is `MACHINE:FLAGS`, as the program's header has them. `by` is what in the file
    says so: an imported symbol, an address of code, a string."""

    kind: EvidenceKind
    key: str
    call: str = ""
    argument: str = ""
    by: str = ""


@dataclass(frozen=True)
class ReachedFile:
    """A file of the image and what it could ask for. `via`: the file that led to it, and how; empty for one that was
    opened, or merely is there."""

    path: str
    nearness: Nearness
    asks: tuple[Ask, ...]
    via: str = ""


@dataclass(frozen=True)
class NotRead:
    """A file that could not be read to its end, and why, in words."""

    path: str
    why: str


@dataclass(frozen=True)
class Reach:
    """The requests that an image could make, by file: the nearest files first, then by path. `files` and `bytes` were
    read."""

    SCHEMA: ClassVar[str] = "vmtailor/reach/1"

    files: tuple[ReachedFile, ...]
    not_read: tuple[NotRead, ...] = ()
    bytes_read: int = 0


@dataclass(frozen=True)
class Lack:
    """A symbol that a kernel has not, and what the image could ask for that needs it. `symbol` is the one to keep,
    `symbols` all that the asks need and are not there. `keys` are system calls, families, paths, the nearest first;
    `files` those that ask, the nearest first. Both are cut short: `more_keys` and `more_files` are not named.
    `to_init` is what the symbols cost the baseline on its way to init, in instructions; None where none of them ran."""

    symbol: str
    symbols: tuple[str, ...]
    nearness: Nearness
    keys: tuple[str, ...]
    files: tuple[str, ...]
    text: str
    more_keys: int = 0
    more_files: int = 0
    to_init: int | None = None
