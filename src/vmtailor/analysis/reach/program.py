# SPDX-License-Identifier: Apache-2.0
"""The code of one ELF file as functions: which leads to which, to which system calls, and with which constants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vmtailor.analysis.reach.elf_file import ElfFile, Numbers
from vmtailor.analysis.reach.machine_code import MOST_NAMED, Tracker, Value, joined, named_by, named_by_pairs
from vmtailor.model.code_patterns import MachineCode

#: One function's code that is read instruction by instruction, and all of one file's.
_LONGEST = 1 << 16
_MOST_READ = 24 << 20
#: Pointers of a table that is named by its address.
_TABLE = 128
#: Instructions of one kind that are looked at.
_MOST_SITES = 1 << 20
#: Bytes from the begin of a stub to its jump.
_STUB = 8
#: Depth to which calls may be wrapped.
_WRAPPED = 6

NDArrayBool = NDArray[np.bool_]
#: Address of code, and what is called there.
Sites = list[tuple[int, str]]


class Program:
    """`functions`: where they begin, sorted. A function reaches up to the next one."""

    def __init__(self, elf: ElfFile, code: MachineCode) -> None:
        self.elf = elf
        self.code = code
        self._tracker = Tracker(code)
        self._left = _MOST_READ
        #: True if there was more code than is read.
        self.cut = False

    # ---- pointers that the loader fills in

    @cached_property
    def _slots(self) -> dict[int, str | int]:
        """Return address of a pointer → the symbol's name, or the address in this file that it gets."""
        elf, found = self.elf, dict[int, str | int]()
        table = elf.relocations
        names = elf.symbol_names
        symbols = elf.dynamic_symbols
        rows = zip(table["slot"].tolist(), table["symbol"].tolist(), table["addend"].tolist(), strict=True)
        for slot, symbol, addend in rows:
            if 0 < symbol < len(names):
                own = int(symbols["value"][symbol]) if symbols["section"][symbol] else 0
                found[slot] = own or names[symbol]
            elif addend > 0:
                found[slot] = addend
        packed = elf.relative_slots
        found.update(zip(packed.tolist(), elf.words_at(packed).tolist(), strict=True))
        return found

    @cached_property
    def _pointers(self) -> tuple[Numbers, Numbers]:
        """Return addresses of pointers to functions of this file, sorted, and the functions' indices."""
        rows = [(slot, value) for slot, value in self._slots.items() if isinstance(value, int)]
        slots = np.asarray([slot for slot, _ in rows], np.int64)
        values = np.asarray([value for _, value in rows], np.int64)
        if self.elf.fixed:
            for one in (one for one in self.elf.segments if not one.executable):
                first = -one.address % 8
                count = max(0, one.size - first) // 8
                words = (
                    np.frombuffer(self.elf.data, "<i8", count, one.offset + first) if count else np.empty(0, np.int64)
                )
                hit = np.flatnonzero(np.isin(words, self.functions))
                slots = np.concatenate([slots, hit * 8 + one.address + first])
                values = np.concatenate([values, words[hit]])
        index = self._index(values)
        order = np.flatnonzero((index >= 0) & (values == self.functions[np.maximum(index, 0)]))
        order = order[np.argsort(slots[order], kind="stable")]
        return slots[order], index[order]

    # ---- functions

    def _named_by(self, which: str) -> tuple[Numbers, Numbers]:
        found = [named_by(self.elf.data, one, getattr(self.code, which), self.code.unit) for one in self.elf.code]
        if pairs := getattr(self.code, f"paired_{which}", ()):
            found += [named_by_pairs(self.elf.data, one, pairs) for one in self.elf.code]
        self.cut |= any(len(where) >= MOST_NAMED for where, _ in found)
        return joined([where for where, _ in found]), joined([what for _, what in found])

    def _code_named_by(self, which: str) -> tuple[Numbers, Numbers]:
        where, what = self._named_by(which)
        inside = self._is_code(what)
        return where[inside], what[inside]

    @cached_property
    def _calls(self) -> tuple[Numbers, Numbers]:
        return self._code_named_by("direct_calls")

    @cached_property
    def _jumps(self) -> tuple[Numbers, Numbers]:
        return self._code_named_by("jumps")

    @cached_property
    def _uses(self) -> tuple[Numbers, Numbers]:
        """Return instructions that use a pointer which the loader fills in."""
        where, what = self._named_by("slots")
        known = np.isin(what, np.fromiter(self._slots, np.int64, len(self._slots)))
        return where[known], what[known]

    @cached_property
    def _references(self) -> tuple[Numbers, Numbers]:
        return self._real(*self._named_by("references"))

    def _is_code(self, addresses: Numbers) -> NDArrayBool:
        inside = np.zeros(len(addresses), np.bool_)
        for one in self.elf.code:
            inside |= (addresses >= one.address) & (addresses < one.address + one.size)
        return inside

    @cached_property
    def functions(self) -> Numbers:
        elf = self.elf
        framed = elf.frame_starts
        exported = [address for all_of in elf.exports.values() for address in all_of]
        parts = [framed, elf.static_functions, np.asarray([*exported, *elf.begun_by_itself], np.int64)]
        if len(framed) < 2:
            parts.append(_distinct(self._calls[1])[:_MOST_SITES])
        # Each stub that jumps through a pointer is a function of its own: what is called right before such a jump.
        where, _ = self._uses
        called = _distinct(np.concatenate([self._calls[1], self._jumps[1]]))
        parts.append(called[np.isin(called, np.concatenate([where - back for back in range(_STUB)]))])
        found = _distinct(np.concatenate(parts))
        return found[self._is_code(found)]

    def _index(self, addresses: Numbers) -> Numbers:
        """Return the functions that addresses lie in; -1 for none."""
        return np.searchsorted(self.functions, addresses, "right") - 1

    def _end(self, index: int) -> int:
        start = int(self.functions[index])
        last = next(
            (one.address + one.size for one in self.elf.code if one.address <= start < one.address + one.size), start
        )
        return min(last, int(self.functions[index + 1])) if index + 1 < len(self.functions) else last

    @cached_property
    def _instructions(self) -> Numbers:
        """Return the addresses of instructions, read from the begin of each function, sorted; empty when there is too
        much code."""
        if sum(one.size for one in self.elf.code) > _MOST_READ:
            return np.empty(0, np.int64)
        parts = []
        for index in range(len(self.functions)):
            start = int(self.functions[index])
            offset = self.elf.offset_of(start)
            if offset is not None:
                parts.append(
                    self._tracker.instructions(self.elf.data[offset : offset + self._end(index) - start], start)
                )
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _real(self, where: Numbers, what: Numbers) -> tuple[Numbers, Numbers]:
        """Return the matches of patterns that are instructions, and not the middle of another."""
        begins = self._instructions
        if not len(begins):
            return where, what
        real = begins[np.minimum(np.searchsorted(begins, where), len(begins) - 1)] == where
        return where[real], what[real]

    @cached_property
    def edges(self) -> tuple[dict[int, set[int]], dict[int, set[str]]]:
        """Return function → functions that it leads to; function → names of others' functions that it leads to."""
        inner: dict[int, set[int]] = defaultdict(set)
        outer: dict[int, set[str]] = defaultdict(set)
        for sites in (self._real(*self._calls), self._real(*self._jumps)):
            self.cut |= len(sites[0]) > _MOST_SITES
            sources, targets = (self._index(side[:_MOST_SITES]) for side in sites)
            for source, target in _pairs(sources, targets):
                inner[source].add(target)
        where, what = self._real(*self._uses)
        for source, slot in zip(self._index(where).tolist(), what.tolist(), strict=True):
            value = self._slots[slot]
            if isinstance(value, str):
                outer[source].add(value)
        known = [
            (s, v)
            for s, slot in zip(where.tolist(), what.tolist(), strict=True)
            if isinstance(v := self._slots[slot], int)
        ]
        users, pointed = (np.asarray([pair[side] for pair in known], np.int64) for side in (0, 1))
        where, what = self._references
        where, what = np.concatenate([where, users]), np.concatenate([what, pointed])
        if len(where) > _MOST_SITES:
            self.cut = True
            where, what = where[:_MOST_SITES], what[:_MOST_SITES]
        self._add_starts(inner, self._index(where), what)
        self._add_tables(inner, where, what)
        return inner, outer

    def _add_starts(self, inner: dict[int, set[int]], sources: Numbers, addresses: Numbers) -> None:
        """Add a way from each instruction that takes the address of a function to that function."""
        index = self._index(addresses)
        begin = (index >= 0) & (self.functions[np.maximum(index, 0)] == addresses)
        for source, target in _pairs(sources[begin], index[begin]):
            inner[source].add(target)

    def _add_tables(self, inner: dict[int, set[int]], where: Numbers, what: Numbers) -> None:
        """Add ways from whatever names a table of pointers to the functions in it. The table reaches from the address
        as far as one pointer follows the other, at most to the next named address."""
        slots, values = self._pointers
        if not len(slots):
            return
        named = _distinct(what)
        first = np.searchsorted(slots, what)
        near = first < len(slots)
        near[near] = slots[first[near]] - what[near] <= 8 * 4
        sources = self._index(where)
        for at in np.flatnonzero(near).tolist():
            begin = int(first[at])
            following = int(np.searchsorted(named, what[at], "right"))
            limit = int(named[following]) if following < len(named) else 1 << 62
            for one in range(begin, min(begin + _TABLE, len(slots))):
                if slots[one] >= limit or (one > begin and slots[one] - slots[one - 1] > 8 * 4):
                    break
                inner[int(sources[at])].add(int(values[one]))

    # ---- constants

    def _read(self, by_function: Mapping[int, Iterable[int]]) -> Iterable[tuple[int, int, str, dict[str, Value]]]:
        """Yield function, site, instruction and registers of each site."""
        for index, sites in by_function.items():
            if index < 0:
                continue
            wanted = set(sites)
            start, end = int(self.functions[index]), self._end(index)
            if max(wanted) - start > _LONGEST:
                start = min(wanted)  # too far to be followed: what stands before the first is not known
            size = min(max(wanted) + 16, end) - start
            offset = self.elf.offset_of(start)
            if offset is None or size > _LONGEST:
                continue
            if self._left < size:
                self.cut = True
                continue
            self._left -= size
            for at, word, held in self._tracker.states(self.elf.data[offset : offset + size], start, wanted):
                yield index, at, word, held

    @cached_property
    def system_calls(self) -> dict[int, list[tuple[int, Value | None]]]:
        """Return function → (address, number) of its system-call instructions; the number is a register's name where
        the function's caller gives it, None where it is not told."""
        wanted = bytes.fromhex(self.code.system_call)
        sites: dict[int, list[int]] = defaultdict(list)
        for one in self.elf.code:
            data, begin, end = self.elf.data, one.offset, one.offset + one.size
            found_at: list[int] = []
            at = data.find(wanted, begin, end)
            while at >= 0 and len(found_at) < _MOST_SITES:
                if (at - begin) % self.code.unit == 0:
                    found_at.append(one.address + at - begin)
                at = data.find(wanted, at + 1, end)
            addresses = np.asarray(found_at, np.int64)
            for address, index in zip(found_at, self._index(addresses).tolist(), strict=True):
                sites[index].append(address)
        found: dict[int, list[tuple[int, Value | None]]] = defaultdict(list)
        for index, at, word, held in self._read(sites):
            if word == self.code.system_call_word:
                found[index].append((at, held.get(self.code.number)))
        return found

    @cached_property
    def numbers(self) -> tuple[dict[int, dict[int, int]], dict[int, str], int]:
        """Return function → number of a system call → where; functions that take the number from their caller, and the
        register in which; how many numbers are not told."""
        found: dict[int, dict[int, int]] = defaultdict(dict)
        takers: dict[int, str] = {}
        untold = 0
        for index, sites in self.system_calls.items():
            for at, value in sites:
                if isinstance(value, int):
                    found[index].setdefault(value, at)
                elif value is None:
                    untold += 1
                else:
                    takers[index] = value
        fresh = dict(takers)
        for _ in range(_WRAPPED):
            if not fresh:
                break
            callers, fresh = self._constants_for(fresh), {}
            for index, at, _, value in callers:
                if isinstance(value, int):
                    found[index].setdefault(value, at)
                elif isinstance(value, str) and index not in takers:
                    takers[index] = fresh[index] = value
                elif value is None:
                    untold += 1
        return found, takers, untold

    def _constants_for(self, takers: Mapping[int, str]) -> list[tuple[int, int, int, Value | None]]:
        """Return caller, site, taker and what the caller gives, for functions that take a number in a register."""
        sites: dict[int, list[int]] = defaultdict(list)
        target_of: dict[int, int] = {}
        taker_at = {int(self.functions[index]): index for index in takers}
        # A stub that jumps through a pointer to such a function stands for it; so does a call through the pointer.
        where, what = self._uses
        for at, slot, index in zip(where.tolist(), what.tolist(), self._index(where).tolist(), strict=True):
            value = self._slots[slot]
            taker = taker_at.get(value) if isinstance(value, int) else None
            if taker is not None and index >= 0:
                if at - self.functions[index] < _STUB:
                    taker_at.setdefault(int(self.functions[index]), taker)
                sites[index].append(at)
                target_of[at] = taker
        wanted = np.asarray(sorted(taker_at), np.int64)
        for where, what in (self._calls, self._jumps):
            hit = np.isin(what, wanted)
            callers = self._index(where[hit]).tolist()
            for caller, at, target in zip(callers, where[hit].tolist(), what[hit].tolist(), strict=True):
                if caller != taker_at[target]:
                    sites[caller].append(at)
                    target_of[at] = taker_at[target]
        return [(index, at, target_of[at], held.get(takers[target_of[at]])) for index, at, _, held in self._read(sites)]

    def arguments_of(self, names: frozenset[str]) -> list[tuple[int, int, str, tuple[Value | None, ...]]]:
        """Return caller, site, name and arguments of the calls of functions of these names, imported or own."""
        targets: dict[int, str] = {
            address: name for name in names & self.elf.exports.keys() for address in self.elf.exports[name]
        }
        direct: Sites = []
        where, what = self._uses
        for at, slot, index in zip(where.tolist(), what.tolist(), self._index(where).tolist(), strict=True):
            value = self._slots[slot]
            name = value if isinstance(value, str) else targets.get(value, "")
            if name in names:
                direct.append((at, name))
                if index >= 0 and at - self.functions[index] < _STUB:
                    targets[int(self.functions[index])] = name  # a stub
        known = np.fromiter(targets, np.int64, len(targets))
        for where, what in (self._calls, self._jumps):
            hit = np.isin(what, known)
            pairs = zip(where[hit].tolist(), what[hit].tolist(), strict=True)
            direct += [(at, targets[target]) for at, target in pairs]
        sites: dict[int, list[int]] = defaultdict(list)
        name_at = dict(direct)
        addresses = np.asarray(list(name_at), np.int64)
        for at, index in zip(addresses.tolist(), self._index(addresses).tolist(), strict=True):
            sites[index].append(at)
        return [
            (index, at, name_at[at], tuple(held.get(register) for register in self.code.arguments))
            for index, at, _, held in self._read(sites)
        ]

    def naming(self, addresses: Iterable[int]) -> Iterable[tuple[int, int]]:
        """Return functions that name some of these addresses, and which."""
        where, what = self._references
        hit = np.isin(what, np.asarray(sorted(addresses), np.int64))
        return zip(self._index(where[hit]).tolist(), what[hit].tolist(), strict=True)

    def reached_from(self, roots: Iterable[int], most: int | None = None) -> set[int]:
        """Return the functions that roots lead to, themselves included. `most`: by so many calls."""
        inner, _ = self.edges
        found = {one for one in roots if one >= 0}
        fresh = set(found)
        while fresh and most != 0:
            fresh = {other for one in fresh for other in inner.get(one, ())} - found
            found |= fresh
            most = None if most is None else most - 1
        return found

    def at(self, addresses: Iterable[int]) -> set[int]:
        """Return the functions that begin at addresses of code."""
        wanted = np.asarray(list(addresses), np.int64)
        return {int(index) for index in self._index(wanted[self._is_code(wanted)]).tolist() if index >= 0}


def _pairs(sources: Numbers, targets: Numbers) -> Iterable[tuple[int, int]]:
    kept = (sources >= 0) & (targets >= 0) & (sources != targets)
    both = _distinct(sources[kept] << 32 | targets[kept])
    return zip((both >> 32).tolist(), (both & 0xFFFFFFFF).tolist(), strict=True)


def _distinct(numbers: Numbers) -> Numbers:
    """Return each once, sorted. numpy's own way hashes, which takes minutes for millions that lie in a row."""
    found = np.sort(numbers)
    return found[np.flatnonzero(np.diff(found, prepend=found[:1] - 1))]
