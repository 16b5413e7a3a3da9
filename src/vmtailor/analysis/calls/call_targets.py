# SPDX-License-Identifier: Apache-2.0
"""The functions that a kernel's code names as targets of its calls and jumps: those that a path never entered are the
branches that it never took. Calls through pointers name none."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from vmtailor.analysis.calls.call_shares import CallTree
from vmtailor.analysis.calls.followed_code import Names
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.reach.machine_code import disassembler
from vmtailor.base.files.elf import NoElf, identity
from vmtailor.model.architecture import Architecture

#: Bytes of one function that are read.
_MOST_BYTES = 1 << 18
_MOST_SEGMENTS = 128
_PT_LOAD = 1
_HEADER = struct.Struct("<IIQQQQQQ")


@dataclass(frozen=True, eq=False)
class KernelCode:
    """A kernel's ELF file by its virtual addresses. `segments`: address, place in the file, size."""

    data: bytes
    segments: tuple[tuple[int, int, int], ...]

    def at(self, address: int, size: int) -> bytes:
        """Return so many bytes from an address on, fewer at the end of what is loaded there."""
        for begin, offset, length in self.segments:
            if begin <= address < begin + length:
                place = offset + address - begin
                return self.data[place : min(place + size, offset + length)]
        return b""


def kernel_code(data: bytes) -> KernelCode:
    """Return the code of a kernel's file. Raises NoElf for other files."""
    told = identity(data[:64])
    if len(data) < 64 or told.bits != 64 or not told.little:
        raise NoElf
    (table,) = struct.unpack_from("<Q", data, 32)
    _, count = struct.unpack_from("<HH", data, 54)
    found = []
    end = min(table + _HEADER.size * min(count, _MOST_SEGMENTS), len(data) - _HEADER.size + 1)
    for at in range(table, end, _HEADER.size):
        kind, _, offset, address, _, size, _, _ = _HEADER.unpack_from(data, at)
        if kind == _PT_LOAD and offset < len(data):
            found.append((address, offset, size))
    return KernelCode(data, tuple(found))


@dataclass(eq=False)
class CallTargets:
    """The targets of functions by number, read from the kernel's file when they are asked for."""

    table: SymbolTable
    kernel: KernelCode
    disassemble: Callable[[bytes, int], Sequence[tuple[int, int, str, str]]]
    patched: Names
    _found: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def of(self, function: int) -> tuple[int, ...]:
        """Return the functions that the code of one calls, or jumps to, by their addresses."""
        if function not in self._found:
            self._found[function] = self._read(function)
        return self._found[function]

    def _read(self, function: int) -> tuple[int, ...]:
        if not 0 <= function < len(self.table.names):
            return ()
        start, end = (int(at) for at in self.table.starts[function : function + 2])
        code = self.kernel.at(start, min(end - start, _MOST_BYTES))
        named = {int(to, 16) for _, _, _, to in self.disassemble(code, start) if to.startswith("0x")}
        outside = np.array(sorted(to for to in named if to < 1 << 64 and not start <= to < end), np.uint64)
        numbers = [int(one) for one in self.table.index_of(outside)]
        pairs = zip(outside.tolist(), numbers, strict=True)
        return tuple(number for to, number in pairs if number >= 0 and int(self.table.starts[number]) == to)

    def never(self, tree: CallTree, node: int) -> tuple[str, ...]:
        """Return the names of the functions that a node's code names, and that this path never entered."""
        graph = tree.boot.graph
        entered = {int(graph.function[child]) for child in tree.children.get(node, [])}
        names = {self.table.names[one] for one in self.of(int(graph.function[node])) if one not in entered}
        return tuple(sorted(name for name in names if self.patched.of(name) is None))


def of_kernel(data: bytes, table: SymbolTable, architecture: Architecture) -> CallTargets | None:
    """Return the targets in a kernel's file; None where the file is packed, or the family's code is not read."""
    if architecture.code is None or architecture.following is None:
        return None
    try:
        kernel = kernel_code(data)
    except NoElf:
        return None
    following = architecture.following
    patched = Names((name, 1) for name in (*following.thunks, *following.patched))
    read = disassembler(*architecture.code.capstone)
    return CallTargets(table, kernel, lambda code, start: list(read.disasm_lite(code, start)), patched)
