# SPDX-License-Identifier: Apache-2.0
"""The plugin's counters and a symbol table → milestones, phases, and what each function cost. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from vmtailor.model.architecture import named, presumed_name
from vmtailor.model.boots.boot import FunctionCost, Milestone, Phase, PhaseCounts
from vmtailor.model.boots.counters import START_KERNEL, CodeMark, CodeSpan, Counters, Stretch, Totals

#: The mark at the kernel's first instruction.
KERNEL_MARK = "kernel"
START_KERNEL_MARK = START_KERNEL
#: Marks that begin a phase. What runs after other marks belongs to the phase under way; what follows "load_end", or the
#: container's end, to stop.
PHASE_MARKS = {
    "reset": Phase.FIRMWARE,
    KERNEL_MARK: Phase.KERNEL,
    "init": Phase.INIT,
    "entry": Phase.START_UP,
    "ready": Phase.SETTLE,
    "load": Phase.LOAD,
    "load_end": Phase.STOP,
    "stop": Phase.STOP,
    "end": Phase.STOP,
}
#: The owner whose cost is kept apart.
CLIENT_OWNER = "client"
#: The span that ends an initcall's: the next one is about to begin.
BETWEEN_INITCALLS = "-"
#: Work of other threads that somebody waits for: the functions entered at its begin and at its end.
HELPERS, TESTS = "helpers", "tests"
ACTIVITIES = {
    HELPERS: ("call_usermodehelper_exec", "free_modprobe_argv"),  # modprobe, from the request to its end
    TESTS: ("alg_test", "crypto_alg_tested"),  # one self-test of an algorithm
}
_BEGIN, _END = "<", ">"
#: Called after the early initcalls and before the next level: no part of either. Architectures have more of these.
_BEHIND_EARLY = ("smp_init", "sched_init_smp", "do_basic_setup")
_IMAGE_BEGIN, _IMAGE_END = "_text", "_end"
FIRMWARE = "[firmware]"
UNKNOWN = "[unknown]"

_NM_LINE = re.compile(r"^([0-9a-fA-F]{8,16}) ([A-Za-z]) (\S+)", re.MULTILINE)
_INITCALL = re.compile(r"__initcall__kmod_.*?__\d+_\d+_")
_INITCALL_LEVEL = re.compile(r"(?:early|con|rootfs|(?<!\d)\d+s?)$")


@dataclass(frozen=True, eq=False)
class SymbolTable:
    """Functions by address. `starts` is sorted; function i reaches to `starts[i + 1]`; the last entry, nameless, ends
    the table. `addresses` knows every symbol, data too; of several with one name the first. `architecture`: of the
    kernel, by name."""

    starts: NDArray[np.uint64]
    names: tuple[str, ...]
    addresses: Mapping[str, int]
    everywhere: tuple[tuple[int, str], ...]
    architecture: str

    @classmethod
    def parse(cls, text: str, architecture: str | None = None) -> SymbolTable:
        """Parse the output of `nm`, or a System.map."""
        found = ((int(at, 16), name, kind in "tTwW") for at, kind, name in _NM_LINE.findall(text))
        return cls.of(found, architecture)

    @classmethod
    def of(cls, symbols: Iterable[tuple[int, str, bool]], architecture: str | None = None) -> SymbolTable:
        """Return a table from (address, name, is a function)."""
        addresses: dict[str, int] = {}
        best: dict[int, str] = {}
        everywhere = []
        for at, name, is_function in symbols:
            addresses.setdefault(name, at)
            everywhere.append((at, name))
            if is_function and (at not in best or _rank(name) < _rank(best[at])):
                best[at] = name
        starts = sorted(best)
        end = max([start + 65536 for start in starts[-1:]] + [at for at, _ in everywhere], default=0)
        table = np.array([*starts, max(end, starts[-1] + 1 if starts else 0)], np.uint64)
        names = tuple(best[at] for at in starts)
        return cls(table, names, addresses, tuple(everywhere), architecture or presumed_name())

    @property
    def image_map(self) -> int:
        """Virtual minus physical address of the kernel's image: where its early blocks are in this table."""
        known, begin = named(self.architecture).addresses, self.addresses.get(_IMAGE_BEGIN)
        return known.image_map if known.image_at is None or begin is None else begin - known.image_at

    def in_modules(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return for each address whether a module lies there, and not the kernel's image."""
        known = named(self.architecture).addresses
        begin, end = self.addresses.get(_IMAGE_BEGIN, 0), self.addresses.get(_IMAGE_END, 0)
        there = (addresses >= np.uint64(known.modules_first)) & (addresses <= np.uint64(known.modules_last))
        return there & ~((addresses >= np.uint64(begin)) & (addresses < np.uint64(end)))

    def in_firmware(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return for each address below the kernel's half whether firmware that stays lies there."""
        known = named(self.architecture).addresses
        there = (addresses >= np.uint64(known.firmware_first)) & (addresses <= np.uint64(known.firmware_last))
        return there & (known.firmware_last > 0)

    def index_of(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Index into `names` for each address; -1 where no function is."""
        if not self.names:
            return np.full(len(addresses), -1, np.int64)
        found = np.searchsorted(self.starts, addresses, side="right").astype(np.int64) - 1
        found[found >= len(self.names)] = -1
        return found

    def in_image(self, address: int) -> str:
        """Return the function of the kernel's image that an address lies in, or "": in a module, or in none."""
        where = np.array([address], np.uint64)
        index = -1 if self.in_modules(where)[0] else int(self.index_of(where)[0])
        return self.names[index] if index >= 0 else ""

    def name_of(self, address: int) -> str:
        """Return the function that an address lies in, or UNKNOWN."""
        index = int(self.index_of(np.array([address], np.uint64))[0])
        return self.names[index] if index >= 0 else UNKNOWN


def _rank(name: str) -> tuple[bool, int, str]:
    """Return the rank of a name among several for one address: not a marker such as _stext, then the shortest."""
    return (name.startswith("_"), len(name), name)


def kernel_marks(table: SymbolTable) -> tuple[CodeMark, ...]:
    """Return marks for the kernel's first instruction and for start_kernel.

    The first instruction lies at a physical address, and at another one, perhaps, for QEMU than for a decompressor that
    jumps to it. Each that the architecture knows gets the mark; the one that is reached first counts."""
    symbols, row = table.addresses, named(table.architecture)
    wanted = row.kernel.entries
    entries = sorted({symbols[name] - table.image_map for name in wanted if name in symbols})
    marks = [CodeMark(KERNEL_MARK, at) for at in entries if at > 0]
    if START_KERNEL_MARK in symbols:
        marks.append(CodeMark(START_KERNEL_MARK, symbols[START_KERNEL_MARK]))
    return tuple(marks)


def _of_initcall(name: str) -> str:
    """Return the function of `__initcall__kmod_MODULE__NUMBER_LINE_FUNCTIONLEVEL`; empty for any other symbol."""
    head, tail = _INITCALL.match(name), _INITCALL_LEVEL.search(name)
    return name[head.end() : tail.start()] if head and tail else ""


def initcall_spans(table: SymbolTable) -> tuple[CodeSpan, ...]:
    """Return spans at the entry of every initcall that is built in, and at do_one_initcall and what else ends them."""
    wanted = {function for _, name in table.everywhere if (function := _of_initcall(name))}
    spans = [CodeSpan(name, at) for at, name in table.everywhere if name in wanted]
    behind = (*named(table.architecture).kernel.after_early, *_BEHIND_EARLY)
    ends = (table.addresses.get(name) for name in ("do_one_initcall", *behind))
    return (*(CodeSpan(BETWEEN_INITCALLS, at) for at in ends if at is not None), *dict.fromkeys(spans))


def activity_spans(table: SymbolTable) -> tuple[CodeSpan, ...]:
    """Return spans at begin and end of each activity that the kernel has."""
    known = {name: ends for name, ends in ACTIVITIES.items() if all(end in table.addresses for end in ends)}
    return tuple(
        CodeSpan(name + sign, table.addresses[function])
        for name, ends in known.items()
        for sign, function in zip((_BEGIN, _END), ends, strict=True)
    )


def times_begun(counters: Counters, activity: str) -> tuple[Totals, ...]:
    """Return the totals at each begin of an activity."""
    return tuple(span.at for span in counters.spans if span.name == activity + _BEGIN)


def periods(counters: Counters, activity: str) -> tuple[tuple[Totals, Totals], ...]:
    """Return the periods of an activity. Periods that overlap are one; one that never ended lasts until QEMU's end."""
    under_way, begun, found = 0, Totals(), []
    for span in counters.spans:
        if span.name == activity + _BEGIN:
            begun = begun if under_way else span.at
            under_way += 1
        elif span.name == activity + _END and under_way:
            under_way -= 1
            if not under_way:
                found.append((begun, span.at))
    if under_way and counters.stretches:
        found.append((begun, counters.stretches[-1].at_end))
    return tuple(found)


@dataclass(frozen=True)
class SpanCost:
    """The cost from one passage of a span to the next span's, in order of time. `at`: the totals when it began."""

    name: str
    at: Totals
    cost: Totals


def span_costs(counters: Counters) -> tuple[SpanCost, ...]:
    """Return every span that was passed, with its inclusive cost. The last one, which nothing ended, is left out; those
    of activities end none."""
    passed = [span for span in counters.spans if not span.name.endswith((_BEGIN, _END))]
    pairs = pairwise(passed)
    return tuple(SpanCost(a.name, a.at, b.at.since(a.at)) for a, b in pairs)


def initcall_costs(counters: Counters) -> tuple[SpanCost, ...]:
    """Return the cost of each initcall, with all it called. Not only initcalls call those functions: passages before
    the first do_one_initcall are left out."""
    return tuple(
        after
        for before, after in zip(span_costs(counters), span_costs(counters)[1:], strict=False)
        if before.name == BETWEEN_INITCALLS and after.name != BETWEEN_INITCALLS
    )


def milestones(counters: Counters) -> tuple[Milestone, ...]:
    """Return the marks reached, each where it was reached first, in order."""
    found: dict[str, Milestone] = {}
    for name, totals in counters.marks:
        found.setdefault(name, Milestone(name, executed=totals.executed))
    return tuple(found.values())


def phased(counters: Counters) -> Iterator[tuple[Phase, Stretch]]:
    """Return every stretch with its phase. A phase never comes back: a mark of an earlier one changes nothing."""
    order = list(Phase)
    now = Phase.FIRMWARE
    for stretch in counters.stretches:
        begun = PHASE_MARKS.get(stretch.begin, now)
        now = max(now, begun, key=order.index)
        yield now, stretch


def phases(counters: Counters) -> tuple[PhaseCounts, ...]:
    """Exact counts of each phase that was reached. Early code (firmware, and the kernel's own before it runs in its
    half) counts as kernel; the client's work is kept apart; init's is the user's. Memory-mapped accesses are None when
    they were not counted."""
    found: dict[Phase, PhaseCounts] = {}
    before = Totals()
    for phase, stretch in phased(counters):
        here = stretch.at_end.since(before)
        before = stretch.at_end
        client = [owner for owner in stretch.owners if owner.owner == CLIENT_OWNER]
        client_kernel, client_user = sum(c.kernel for c in client), sum(c.user for c in client)
        row = found.get(phase, PhaseCounts(phase, 0, 0, port_accesses=0, mmio_accesses=0))
        found[phase] = PhaseCounts(
            phase,
            kernel=row.kernel + here.early + here.kernel - client_kernel,
            user=row.user + here.user - client_user,
            client_kernel=row.client_kernel + client_kernel,
            client_user=row.client_user + client_user,
            port_accesses=(row.port_accesses or 0) + here.ports,
            mmio_accesses=(row.mmio_accesses or 0) + here.mmio if counters.devices else None,
            guest=(row.guest or 0) + here.guest.executed if counters.guests else None,
            entries=(row.entries or 0) + here.guest.entries if counters.guests else None,
        )
    return tuple(found.values())


def functions(counters: Counters, table: SymbolTable) -> tuple[FunctionCost, ...]:
    """Return what each kernel function itself executed in each phase; firmware and code of no known function as one row
    each. The rows of a phase add up to its kernel instructions, the client's share included."""
    names = (*table.names, UNKNOWN, FIRMWARE)
    costs: dict[Phase, NDArray[np.int64]] = {}
    for phase, stretch in phased(counters):
        index = _functions_of(counters, stretch, phase, table)
        both = costs.setdefault(phase, np.zeros((2, len(names)), np.int64))
        np.add.at(both[0], index, _executed(counters, stretch))
        np.add.at(both[1], index, (stretch.entries * counters.blocks.ports[stretch.block]).astype(np.int64))
    rows: dict[tuple[str, Phase], FunctionCost] = {}  # functions that share a name, as static ones do, share a row
    for phase, (instructions, ports) in costs.items():
        for i in np.flatnonzero(instructions):
            name = names[i]
            row = rows.get((name, phase), FunctionCost(name, phase, 0))
            rows[name, phase] = FunctionCost(
                name, phase, row.instructions + int(instructions[i]), row.port_accesses + int(ports[i])
            )
    return tuple(rows.values())


def _functions_of(counters: Counters, stretch: Stretch, phase: Phase, table: SymbolTable) -> NDArray[np.int64]:
    """Return the function's index for each row of a stretch; one past the last where there is none, two for firmware:
    all of its phase, and what of it the kernel calls later."""
    early = counters.blocks.early[stretch.block]
    addresses = counters.blocks.vaddr[stretch.block]
    index = table.index_of(np.where(early, addresses + np.uint64(table.image_map), addresses))
    firmware = early & table.in_firmware(addresses)
    if phase is Phase.FIRMWARE:
        firmware |= early | (index < 0)
    index = np.where(index < 0, len(table.names), index)
    return np.where(firmware, len(table.names) + 1, index)


def _executed(counters: Counters, stretch: Stretch) -> NDArray[np.int64]:
    if counters.exact:
        return stretch.executed.astype(np.int64)
    return (stretch.entries * counters.blocks.insns[stretch.block]).astype(np.int64)
