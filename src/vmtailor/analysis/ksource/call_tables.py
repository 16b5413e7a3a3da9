# SPDX-License-Identifier: Apache-2.0
"""Tables of system calls in a kernel's source: number, name and entry of each, for one architecture's ABIs.

Trees have them in two forms: `*.tbl` (number, ABI, name, entry; most architectures since 6.11), and unistd.h, where
`#define __NR_name number` is followed by `__SYSCALL(__NR_name, sys_entry)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from vmtailor.analysis.ksource.make_values import Reader
from vmtailor.model.architecture import CallTable

_NUMBER = re.compile(r"^[ \t]*#[ \t]*define[ \t]+__NR(?:3264)?_(\w+)[ \t]+(\d+)[ \t]*(?:/\*.*)?$", re.M)
_ENTRY = re.compile(r"^[ \t]*__(?:SYSCALL|SC_COMP|SC_3264)\(\s*__NR(?:3264)?_(\w+)\s*,\s*sys_(\w+)", re.M)


@dataclass(frozen=True)
class Call:
    """A system call. `entry`: the function in the kernel, without sys_; empty for a number that has none."""

    number: int
    name: str
    entry: str


def of_table(text: str, abis: Iterable[str]) -> tuple[Call, ...]:
    """The calls of a `*.tbl`, of these ABIs."""
    wanted, found = set(abis), []
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and words[0].isdigit() and words[1] in wanted:
            entry = words[3].removeprefix("sys_") if len(words) > 3 and not words[3].startswith(("#", "-")) else ""
            found.append(Call(int(words[0]), words[2], entry))
    return tuple(found)


def of_header(text: str) -> tuple[Call, ...]:
    """The calls of a unistd.h."""
    entries = dict(_ENTRY.findall(text))
    return tuple(Call(int(number), name, entries.get(name, "")) for name, number in _NUMBER.findall(text))


def read_table(read: Reader, tables: Iterable[CallTable]) -> tuple[Call, ...]:
    """The calls of the first table that a tree has; none where it has none."""
    for table in tables:
        text = read(table.file)
        if text is not None:
            return of_table(text, table.abis) if table.file.endswith(".tbl") else of_header(text)
    return ()
