# SPDX-License-Identifier: Apache-2.0
"""Evidence: one observation in a trace that asks for one kernel feature."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Strength(StrEnum):
    """`demanded`: asked for by name and got. `ran`: executed, but would have been as a hook of what else is there.
    `reachable`: not seen, but a program of the image could ask for it."""

    DEMANDED = "demanded"
    RAN = "ran"
    REACHABLE = "reachable"


class EvidenceKind(StrEnum):
    SYSCALL = "syscall"
    SOCKET = "socket"  # family, type, protocol
    SOCKET_OPTION = "socket-option"
    IOCTL = "ioctl"
    FLAG = "flag"  # a flag of a system call (clone, mmap, open …)
    FILESYSTEM = "filesystem"  # mounted
    BINARY_FORMAT = "binary-format"
    PSEUDO_FILE = "pseudo-file"  # opened under /proc, /sys, /dev
    MODULE_REQUEST = "module-request"
    CREDENTIAL = "credential"  # user and group changes
    CODE = "code"  # executed source lines


@dataclass(frozen=True)
class Evidence:
    """`key` is what was asked for, such as `epoll_create1` or `AF_INET6`; `where` points into the trace (record:line);
    `count` is how often it was seen."""

    kind: EvidenceKind
    key: str
    strength: Strength
    where: str
    count: int = 1
    detail: str = ""
