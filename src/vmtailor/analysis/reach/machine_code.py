# SPDX-License-Identifier: Apache-2.0
"""Read machine code by a processor family's data: the addresses that instructions name, and the constants that reach a
call.

Patterns over all code at once find the targets. Single functions, where a constant is wanted, are read instruction by
instruction with capstone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from vmtailor.analysis.reach.elf_file import LoadSegment, Numbers
from vmtailor.model.code_patterns import Half, MachineCode, Pattern, PatternPair

if TYPE_CHECKING:
    import capstone

#: Bytes of code that are looked at together.
_PIECE = 1 << 22
#: Hits of one kind in a segment.
MOST_NAMED = 1 << 22
#: Content of a register or a stack slot: a number, or the name of the register whose first value it holds.
Value = int | str


def named_by(data: bytes, segment: LoadSegment, patterns: Iterable[Pattern], unit: int) -> tuple[Numbers, Numbers]:
    """Return addresses of instructions of these patterns in a segment, and the addresses that they name. With
    instructions of one byte and more, bytes within others are found, too: only targets that make sense should be
    believed. At most `MOST_NAMED` of them, and what follows."""
    where: list[Numbers] = []
    what: list[Numbers] = []
    left = MOST_NAMED
    for start in range(0, segment.size, _PIECE):
        if left <= 0:
            break
        size = min(_PIECE + 8, segment.size - start)
        raw = np.frombuffer(data[segment.offset + start : segment.offset + start + size] + bytes(8), np.uint8)
        for one in patterns:
            places = np.flatnonzero((raw[: min(size, _PIECE) : unit] & (one.mask & 0xFF)) == one.value & 0xFF) * unit
            words = np.zeros(len(places), np.uint64)
            for byte in range(8):
                words |= raw[places + byte].astype(np.uint64) << np.uint64(8 * byte)
            hit = (words & np.uint64(one.mask)) == np.uint64(one.value)
            places, words = places[hit], words[hit]
            # The operand's sign is spread by shifting it up, and down again.
            up = np.uint64(64 - one.low - one.bits)
            operand = (words << up).view(np.int64) >> np.int64(64 - one.bits)
            address = places.astype(np.int64) + (segment.address + start)
            what.append((operand << np.int64(one.shift)) + one.base + (0 if one.absolute else address))
            where.append(address)
            left -= len(address)
    return joined(where), joined(what)


def named_by_pairs(data: bytes, segment: LoadSegment, pairs: Iterable[PatternPair]) -> tuple[Numbers, Numbers]:
    """Return addresses of the first instructions of such pairs in a segment, and the addresses that they name: with the
    nearest second one that uses its register. At most `MOST_NAMED` first ones."""
    where: list[Numbers] = []
    what: list[Numbers] = []
    words = np.frombuffer(data, "<u4", segment.size // 4, segment.offset)
    for pair in pairs:
        first = np.flatnonzero((words & pair.first.mask) == pair.first.value)[:MOST_NAMED]
        near = first.astype(np.int64) * 4 + segment.address
        near = (near & ~np.int64(pair.page)) + _operand(words[first], pair.first)
        register = words[first] >> pair.first.register & 31
        left = np.ones(len(first), np.bool_)
        for step in range(1, pair.within // 4 + 1):
            at = np.minimum(first + step, len(words) - 1)
            second = words[at]
            hit = left & ((second & pair.second.mask) == pair.second.value)
            hit &= second >> pair.second.register & 31 == register
            left &= ~hit
            where.append(first[hit].astype(np.int64) * 4 + segment.address)
            what.append(near[hit] + _operand(second[hit], pair.second))
    return joined(where), joined(what)


def joined(parts: Sequence[Numbers]) -> Numbers:
    """Return arrays one after the other; an empty one for none."""
    return np.concatenate([np.empty(0, np.int64), *parts])


def _operand(words: NDArray[np.uint32], half: Half) -> Numbers:
    found = np.zeros(len(words), np.int64)
    for part in half.parts:
        found |= (words.astype(np.int64) >> part.low & ((1 << part.bits) - 1)) << part.at
    top = max(part.at + part.bits for part in half.parts)
    return (found ^ 1 << top - 1) - (1 << top - 1) if half.signed else found


@cache
def disassembler(processor: str, mode: str) -> capstone.Cs:
    """Return the disassembler of a processor, by the library's names."""
    # Imported late: the library takes a while, and most starts find what they need in the cache.
    import capstone

    return capstone.Cs(getattr(capstone, f"CS_ARCH_{processor}"), getattr(capstone, f"CS_MODE_{mode}"))


class Tracker:
    """The values that registers hold at given instructions of a function, as far as a straight reading tells. Behind an
    instruction that leaves, nothing is known."""

    def __init__(self, code: MachineCode) -> None:
        self._code = code
        self._disassembler = disassembler(*code.capstone)
        self._names = {name: name for name in code.registers}
        self._names |= {narrow: name for name, all_names in code.registers.items() for narrow in all_names}
        #: Names that stand for all of a register, or for a half whose other half is cleared.
        self._whole = {*code.registers, *(narrow[0] for narrow in code.registers.values() if narrow)}
        self._leaves, self._calls = frozenset(code.leaves), frozenset(code.calls)
        self._reads, self._moves = frozenset(code.reads), frozenset(code.moves)

    def instructions(self, data: bytes, address: int) -> Numbers:
        """Return where the instructions of a function begin."""
        return np.fromiter((at for at, *_ in self._disassembler.disasm_lite(data, address)), np.int64)

    def states(self, data: bytes, address: int, sites: set[int]) -> Iterator[tuple[int, str, dict[str, Value]]]:
        """Yield address, word and registers before each instruction of `data` that lies at one of `sites`."""
        code = self._code
        held: dict[str, Value] = {name: name for name in code.registers}
        places: dict[str, Value] = {}
        pushed: list[Value | None] = []
        last = max(sites, default=0)
        for at, _, word, operands in self._disassembler.disasm_lite(data, address):
            if at in sites:
                yield at, word, held
            if at >= last:
                return
            if code.writes_base:
                self._forget_base(operands, held)
            if word in self._reads:
                continue
            if word in self._leaves:
                held, places, pushed = {}, {}, []
            elif word in self._calls:
                held = {name: held[name] for name in code.kept if name in held}
            elif word == code.system_call_word:
                held.pop(code.result or code.number, None)
            elif word in code.pushes:
                pushed.append(self._value(operands, held, places))
                places.clear()
            elif word in code.pops:
                self._set(operands, pushed.pop() if pushed else None, held)
                places.clear()
            else:
                self._written(word, operands, held, places)

    def _forget_base(self, operands: str, held: dict[str, Value]) -> None:
        """Forget a base register that an instruction changes: `[x0, #8]!`, `[x0], #8`."""
        inside, closed, behind = operands.partition("[")[2].partition("]")
        if closed and behind.startswith(("!", ", ")):
            self._set(inside.partition(",")[0], None, held)

    def _written(self, word: str, operands: str, held: dict[str, Value], places: dict[str, Value]) -> None:
        target, _, source = operands.partition(", ")
        if word in self._code.clears and target == source:
            self._set(target, 0, held)
        elif word not in self._moves:
            if self._names.get(target) == self._code.stack:
                places.clear()
            self._set(target, None, held)
            if word in self._code.both:
                self._set(source.partition(", ")[0], None, held)
        elif (place := self._place(target)) is not None:
            value = self._value(source, held, places) if place else None
            if value is None:
                places.pop(place, None)
            else:
                places[place] = value
        else:
            self._set(target, self._value(source, held, places), held)

    def _set(self, name: str, value: Value | None, held: dict[str, Value]) -> None:
        register = self._names.get(name)
        if register is None:
            return
        if value is None or name not in self._whole:
            held.pop(register, None)
        else:
            held[register] = value

    def _value(self, operand: str, held: dict[str, Value], places: dict[str, Value]) -> Value | None:
        register = self._names.get(operand)
        if register is not None:
            return held.get(register) if operand in self._whole else None
        place = self._place(operand)
        if place is not None:
            return places.get(place)
        try:
            return int(operand.lstrip("#"), 0) & 0xFFFFFFFFFFFFFFFF
        except ValueError:
            return None

    def _place(self, operand: str) -> str | None:
        """Return a place of the stack, as it is written; None for what is none. Empty for other memory."""
        start = operand.find("[")
        return None if start < 0 else operand[start:] if self._code.stack in operand else ""
