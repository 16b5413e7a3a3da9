# SPDX-License-Identifier: Apache-2.0
"""The functions that a kernel's code names as targets of its calls and jumps: those that a path never entered are the
branches that it never took. Calls through pointers name none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from vmtailor.analysis.calls.call_shares import CallTree
from vmtailor.analysis.calls.followed_code import Names
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.reach.elf_file import ElfFile
from vmtailor.analysis.reach.machine_code import disassembler
from vmtailor.base.files.elf import NoElf
from vmtailor.model.architecture import Architecture

#: Bytes of one function that are read.
_MOST_BYTES = 1 << 18


@dataclass(eq=False)
class CallTargets:
    """The targets of functions by number, read from the kernel's file when they are asked for."""

    table: SymbolTable
    kernel: ElfFile
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
        at = self.kernel.offset_of(start)
        if at is None:
            return ()
        code = self.kernel.data[at : at + min(end - start, _MOST_BYTES)]
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
        kernel = ElfFile(data)
    except NoElf:
        return None
    following = architecture.following
    patched = Names((name, 1) for name in (*following.thunks, *following.patched))
    read = disassembler(*architecture.code.capstone)
    return CallTargets(table, kernel, lambda code, start: list(read.disasm_lite(code, start)), patched)
