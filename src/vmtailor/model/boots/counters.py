# SPDX-License-Identifier: Apache-2.0
"""The marks and counters of one boot. Figures are instructions unless another unit is named."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from vmtailor.model.architecture import presumed_name
from vmtailor.model.call_code import FollowedCode

if TYPE_CHECKING:  # a run names marks and counts nothing: it loads no numpy
    import numpy as np
    from numpy.typing import NDArray

#: The mark where the kernel proper begins.
START_KERNEL = "start_kernel"
#: The address of marks and spans at each entry into a guest.
ENTRY = -1


@dataclass(frozen=True)
class CodeMark:
    """A phase ends and the next begins just before the instruction at `address` runs: the first or `every` time.
    `in_guest`: only where the guest of a hypervisor within the machine runs it; otherwise only the machine's own code
    does. Address ENTRY: just before such a guest is entered."""

    name: str
    address: int
    every: bool = False
    in_guest: bool = False


@dataclass(frozen=True)
class CodeSpan:
    """The totals are noted whenever the instruction at `address` is reached. `in_guest`: as for a mark."""

    name: str
    address: int
    in_guest: bool = False


class CountingMode(StrEnum):
    """`counts`: every instruction exactly. `coverage`: entries of blocks only, cheaper. `settle`: nothing is counted;
    a device's work is only finished before the guest goes on."""

    COUNTS = "counts"
    COVERAGE = "coverage"
    SETTLE = "settle"


@dataclass(frozen=True)
class CodeOwner:
    """User code at start <= address < end belongs to `name`."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class CountingConfig:
    """The settings of counting in a boot.

    `kernel`: the address of start_kernel; code below the kernel's half before it is firmware and early kernel,
    afterwards user code, unless it is firmware that stays. By default that of the mark of that name. `devices`: count
    memory-mapped device accesses, and let a device's work finish before the guest goes on; without it, boots with disks
    differ a little. `architecture`: its name, as model/architecture.py knows it. `guests`: the machine is a host
    itself, and its hypervisor's guest is counted apart; `guest_kernel`: as `kernel`, of that guest. `follow`: the
    kernel's calls are followed instead; the file that is left has them, and there are no Counters."""

    kernel: int | None = None
    mode: CountingMode = CountingMode.COUNTS
    devices: bool = True
    marks: tuple[CodeMark, ...] = ()
    spans: tuple[CodeSpan, ...] = ()
    owners: tuple[CodeOwner, ...] = ()
    architecture: str = field(default_factory=presumed_name)
    guests: bool = False
    guest_kernel: int | None = None
    follow: FollowedCode | None = None


@dataclass(frozen=True, slots=True)
class SourceFrame:
    """One function at an address. `file` is as the compiler noted it; unknown parts are empty, or line 0."""

    function: str
    file: str
    line: int


#: Innermost (inlined) function first; the last one is the function that stands in the symbol table.
SourceFrames = tuple[SourceFrame, ...]


#: Name of the mark that ends the last stretch: QEMU's end.
END_MARK = ""


@dataclass(frozen=True)
class GuestTotals:
    """The counts since reset of the guest of a hypervisor within the machine: `early`, `kernel` and `user` as in
    Totals; `entries`: times that the guest was entered, and so left, too."""

    early: int = 0
    kernel: int = 0
    user: int = 0
    entries: int = 0

    @property
    def executed(self) -> int:
        return self.early + self.kernel + self.user

    def since(self, earlier: GuestTotals) -> GuestTotals:
        """Return the counts on top of an earlier reading."""
        return GuestTotals(
            early=self.early - earlier.early, kernel=self.kernel - earlier.kernel, user=self.user - earlier.user,
            entries=self.entries - earlier.entries,
        )  # fmt: skip


@dataclass(frozen=True)
class Totals:
    """Executed since reset: `early` below the kernel's half before it was entered (firmware, decompression, first
    kernel code), and firmware that the kernel calls later; `kernel`, `user`; accesses to ports and to memory-mapped
    devices (0 when those were not counted). These are the machine's own; `guest` has those of its guest, if counted."""

    early: int = 0
    kernel: int = 0
    user: int = 0
    ports: int = 0
    mmio: int = 0
    guest: GuestTotals = GuestTotals()

    @property
    def executed(self) -> int:
        """Return the instructions of the machine and of its guest."""
        return self.early + self.kernel + self.user + self.guest.executed

    def since(self, earlier: Totals) -> Totals:
        """Return the counts on top of an earlier reading."""
        return Totals(
            early=self.early - earlier.early, kernel=self.kernel - earlier.kernel, user=self.user - earlier.user,
            ports=self.ports - earlier.ports, mmio=self.mmio - earlier.mmio, guest=self.guest.since(earlier.guest),
        )  # fmt: skip


@dataclass(frozen=True)
class OwnerCounts:
    """The instructions of one owner's user code, and of the kernel since it ran last (its interrupts included)."""

    owner: str
    kernel: int
    user: int


@dataclass(frozen=True, eq=False)
class Stretch:
    """The counts between two marks. `begin` and `end` are marks' names: "reset" at first, END_MARK at last.

    `block`, `entries`, `executed` are parallel: block number (index into Blocks), times entered, instructions executed
    in it. Blocks that did not run are left out.
    """

    begin: str
    end: str
    at_end: Totals
    owners: tuple[OwnerCounts, ...]
    devices: tuple[tuple[str, int], ...]
    block: NDArray[np.uint32]
    entries: NDArray[np.uint64]
    executed: NDArray[np.uint64]


@dataclass(frozen=True)
class SpanReached:
    """One passage of a span's address, with the totals just before its instruction."""

    name: str
    at: Totals


@dataclass(frozen=True, eq=False)
class Blocks:
    """Every block of firmware and kernel code that was translated, by number.

    `vaddr`: of its first instruction; `insns`: how many; `size`: bytes; `early`: run below the kernel's half before the
    kernel was entered, or firmware's; `ports`: how many of its instructions access ports. `lengths`: bytes of each
    instruction of all blocks; block b's begin at `lengths_at[b]`.
    """

    vaddr: NDArray[np.uint64]
    insns: NDArray[np.uint32]
    size: NDArray[np.uint32]
    early: NDArray[np.bool_]
    ports: NDArray[np.uint16]
    lengths_at: NDArray[np.uint32]
    lengths: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.vaddr)

    def addresses(self, blocks: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Return the addresses of all instructions of some blocks, sorted, each once: the question for a symbolizer."""
        import numpy as np

        return np.unique(self.instructions(blocks))

    def instructions(self, blocks: NDArray[np.uint32]) -> NDArray[np.uint64]:
        """Return the addresses of all instructions of some blocks, block after block in the order given."""
        import numpy as np

        blocks = blocks[self.insns[blocks] > 0]
        counts = self.insns[blocks].astype(np.int64)
        if not len(counts):
            return np.empty(0, np.uint64)
        starts = np.cumsum(counts) - counts
        within = np.arange(counts.sum()) - np.repeat(starts, counts)
        index = np.repeat(self.lengths_at[blocks].astype(np.int64), counts) + within
        lengths = self.lengths[index].astype(np.uint64)
        ends = np.cumsum(lengths)
        before = np.repeat(ends[starts] - lengths[starts], counts)
        found: NDArray[np.uint64] = np.repeat(self.vaddr[blocks], counts) + (ends - lengths - before)
        return found


@dataclass(frozen=True, eq=False)
class Counters:
    """All of one boot. `exact`: False for coverage, where a block counts whole though an exception may have left it
    early. `complete`: False when QEMU died before it could write the end. `devices`: memory-mapped accesses were
    counted. `architecture`: of the machine, by name. `guests`: those of a hypervisor within it were counted apart."""

    exact: bool
    complete: bool
    devices: bool
    blocks: Blocks
    stretches: tuple[Stretch, ...]
    spans: tuple[SpanReached, ...]
    architecture: str = field(default_factory=presumed_name)
    guests: bool = False

    def at(self, mark: str) -> Totals | None:
        """Return the totals when a mark was first reached, or None."""
        return next((s.at_end for s in self.stretches if s.end == mark), None)

    @property
    def marks(self) -> tuple[tuple[str, Totals], ...]:
        """Return the marks reached, in order."""
        return tuple((s.end, s.at_end) for s in self.stretches if s.end != END_MARK)
