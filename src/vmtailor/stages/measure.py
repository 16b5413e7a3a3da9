# SPDX-License-Identifier: Apache-2.0
"""Stage measure: one machine with the exercise, on the instruction clock and on the wall clock."""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from vmtailor.analysis.cost import memory_use
from vmtailor.analysis.cost.plugin_counts import SymbolTable, initcall_costs, initcall_spans
from vmtailor.analysis.guests import boots, machine_variants
from vmtailor.base import concurrency, notation
from vmtailor.base.errors import GuestError, NotStarted
from vmtailor.base.natives import Natives
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.booter import boot
from vmtailor.drivers.monitors import monitors
from vmtailor.model.architecture import named
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.boot_cost import MemoryUse
from vmtailor.model.boots.counters import CodeMark, CountingConfig, CountingMode
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.workload import FIXED_KEY, NETWORK, STILL_S, Attended, Exercised, Patience, Run, Until
from vmtailor.model.exercise import Exercise
from vmtailor.model.machine import Accelerator, Clock, Machine

#: Seconds a boot may take beside what the exercise itself allows: of processor time on the instruction clock, else of
#: the host.
BOOT_S = 300.0
#: A machine that has used so many seconds of processor time, and so many times what it took with more memory, never
#: will: until its init has started, and in all. (With little memory, pages of files are read again and again.)
SLACK_S, START_TIMES, ALL_TIMES = 3.0, 2, 2
#: If a system's instructions are counted, they bound it: this many times what it took with more memory. So the host
#: has no influence on the result; a bound of processor time only ends a boot that hangs.
SLACK_INSTRUCTIONS, GUARD_TIMES = 300_000_000, 2
#: The condition that names the processor.
CPU_MODEL = "cpu model"
#: Precision of the least memory, in bytes.
MEMORY_STEP = 1 << 20
#: The share of the caches that a machine is expected to need. A system reads much once: of 22 MiB, the least machines
#: that were measured had 1 to 3.
CACHES, SYSTEM_CACHES = 0.5, 0.25
#: An instruction takes 2**SEARCH_PACE nanoseconds while it is searched: what waits for an emulated timer executes that
#: much less, and nothing is counted then.
SEARCH_PACE = 3


@dataclass(frozen=True)
class MeasuredMachine:
    """A machine to measure, with its root, its kernel's symbols, and the exercise. `attended`: its workload if the root
    has an init of its own. `network`: people start it with a network device, whose buffers need memory. It is counted
    without one, and its least memory is searched with one."""

    machine: Machine
    table: SymbolTable
    exercise: Exercise
    natives: Natives
    attended: Attended | None = None
    network: bool = False

    @property
    def marks(self) -> tuple[CodeMark, ...]:
        """Return the addresses of the milestones in the kernel, and in our program in the guest."""
        if self.attended is None:
            return boots.marks(self.table, self.natives)
        return boots.marks_at(self.table, self.natives.attendant_marks())


@dataclass(frozen=True)
class Usual:
    """The resources that a machine takes with plenty of memory: processor seconds until init has spoken, and in all;
    `instructions` of the guest, if counted (systems). `more_bytes`: the memory that it needed beyond the guess from
    that boot; during the search, the amount it last passed with; 0 until known."""

    start_s: float
    all_s: float
    more_bytes: int = 0
    instructions: int | None = None


# vmtailor/measured/4 was both of these records in one.
# vmtailor/counted/1: `usual` did not say by how much the guess of the least memory was wrong.
# vmtailor/counted/2: nor how many instructions a system takes; its least memory was bounded by processor time.
# vmtailor/counted/3: the least memory of a container was searched without its network device.
@dataclass(frozen=True)
class Counted:
    """The boots of one machine on the instruction clock, with accesses to devices counted. `initcalls`: name →
    instructions, including calls. `memory`: its use in the machine with the least memory. `usual`: the resources of a
    boot with plenty of memory; None if unknown."""

    SCHEMA: ClassVar[str] = "vmtailor/counted/4"

    exact: tuple[Boot, ...]
    initcalls: tuple[tuple[str, int], ...]
    min_memory_bytes: int
    memory: MemoryUse | None
    usual: Usual | None = None


@dataclass(frozen=True)
class Timed:
    """The boots of one machine on the host's clock."""

    SCHEMA: ClassVar[str] = "vmtailor/timed/1"

    wall: tuple[Boot, ...]


COUNTS = "boot.counts"
#: Host seconds after which a side has boots enough on the wall clock: what the host adds is a small share of long ones.
ENOUGH_S = 10.0
#: Counted machines that run at a time: instructions are the same beside another guest, unlike wall time.
_room = threading.BoundedSemaphore(2)


def counted(
    subject: MeasuredMachine,
    count: int,
    folder: Path,
    scratch: Path,
    note: Callable[[str], None],
    *,
    known: Boot | None = None,
    beside: Callable[[], Usual | None] = lambda: None,
    on_usual: Callable[[Usual], None] = lambda usual: None,
) -> Counted:
    """Boot up to `count` times on the instruction clock, until two boots agree. Then search the least memory in which
    the exercise still passes (for a system: it gets ready and comes to rest). `known`: an earlier counted boot of
    exactly this machine. `beside`: waits for the resources of the compared machine, which are the limit for this one.
    `on_usual`: called with this machine's own. Raises GuestError when a boot that should work does not."""
    config = CountingConfig(
        mode=CountingMode.COUNTS,
        marks=subject.marks,
        spans=initcall_spans(subject.table),
        architecture=subject.machine.architecture,
    )

    def all_boots() -> list[tuple[Boot, tuple[tuple[str, int], ...]]]:
        done = [_counted(subject, config, scratch, folder / COUNTS)]
        before = [known] if known is not None and count > 1 else []
        while len(before) + len(done) < count and not _agree([*before, *(found for found, _ in done)]):
            done.append(_counted(subject, config, scratch, None))
        return [*done, *((found, ()) for found in before)]

    note(f"instruction clock, up to {count} boots, and least memory")
    found, least = concurrency.both(all_boots, lambda: _least(_MemorySearch(subject, scratch, beside, on_usual)))
    return Counted(
        exact=tuple(boot for boot, _ in found),
        initcalls=found[0][1],
        min_memory_bytes=least.memory_bytes,
        memory=least.memory,
        usual=least.usual,
    )


def _agree(done: Sequence[Boot]) -> bool:
    """Return whether the last two boots executed the same functions equally often, so that a further boot adds
    nothing."""
    return len(done) > 1 and (done[-1].phases, done[-1].functions) == (done[-2].phases, done[-2].functions)


def timed(subject: MeasuredMachine, count: int, scratch: Path, note: Callable[[str], None]) -> Timed:
    """Boot up to `count` times on the wall clock, with nothing of ours beside; two are enough for long boots. Raises
    GuestError when a boot that should work does not."""
    wall: list[Boot] = []
    for number in range(count):
        if number >= 2 and sum(found.seconds for found in wall) >= ENOUGH_S:
            break
        note(f"wall clock, boot {number + 1} of {count}")
        wall.append(_walled(subject, scratch))
    return Timed(tuple(wall))


@dataclass(frozen=True)
class _Least:
    """The least memory in bytes, where it went, and what a boot takes where memory is no matter."""

    memory_bytes: int
    memory: MemoryUse | None
    usual: Usual | None


def _least(search: _MemorySearch) -> _Least:
    told = search.told()
    # Where the other needed less than was guessed, this one may not: boots with too little memory are the dear ones.
    guess = max(search.floor, told + max(0, search.more_bytes)) if told else 0

    def passes(memory_bytes: int) -> bool:
        passed = search.passes(memory_bytes)
        if passed and told:  # the next one beside it need not wait for the end to begin nearer
            search.tell(memory_bytes - told)
        return passed

    memory_bytes = least_memory(search.known, search.floor, passes, guess)
    usual = replace(search.usual, more_bytes=memory_bytes - told) if search.usual and told else search.usual
    return _Least(memory_bytes, search.use(memory_bytes), usual)


def _counted(
    subject: MeasuredMachine, config: CountingConfig, scratch: Path, keep: Path | None
) -> tuple[Boot, tuple[tuple[str, int], ...]]:
    wanted = Counting(subject.natives, config, subject.table)
    machine = machine_variants.counted(subject.machine)
    with _room:
        found, gathered = boot(machine, _work(subject).unhurried(machine.clock), scratch, counting=wanted)
    _require(found, gathered)
    if keep is not None:
        keep.write_bytes(gathered.counts)
    if gathered.counters is None:
        raise GuestError("nothing was counted in this boot", details=boots.evidence(gathered, ()))
    return found, tuple((cost.name, cost.cost.executed) for cost in initcall_costs(gathered.counters))


def _walled(subject: MeasuredMachine, scratch: Path) -> Boot:
    machine = replace(subject.machine, clock=Clock.WALL, accelerator=Accelerator.TCG)
    found, gathered = boot(machine, _work(subject), scratch)
    _require(found, gathered)
    return found


def _work(subject: MeasuredMachine) -> Exercised | Attended:
    """Return the workload of the machine, which asks for the same bytes in every boot."""
    return subject.attended or _exercised(subject)


def _exercised(subject: MeasuredMachine, times: int = 1, network: str | None = None) -> Exercised:
    """Return the exercise of a container, given so many times its time in the guest. `network`: that of the run."""
    run = Run(exercise=subject.exercise.patient(times), key=FIXED_KEY, network=network)
    return Exercised(run, BOOT_S + 4 * subject.exercise.ready.timeout_s)


def _require(found: Boot, gathered: Gathered) -> None:
    if found.failures:
        raise GuestError(
            "a machine that worked before does not work while it is measured",
            hint="run it again; if it stays so, the exercise is not repeatable",
            details=boots.evidence(gathered, found.failures),
        )


class _MemorySearch:
    """Boots of one machine with less memory than it has, with the devices that `run` gives it. A container does its
    exercise; a system with an init of its own boots until it is at rest after it was ready.

    A kernel that does not fit may run in circles for ever, and most say nothing then. So init's start and the whole
    boot have their processor time, and systems their instructions. A boot with all memory tells them, or one of the
    machine that it is set beside where that is more. `known`, `floor`: sizes between which it lies, in bytes."""

    def __init__(
        self,
        subject: MeasuredMachine,
        scratch: Path,
        beside: Callable[[], Usual | None] = lambda: None,
        on_usual: Callable[[Usual], None] = lambda usual: None,
    ) -> None:
        self.known = subject.machine.memory_bytes
        self.floor = named(subject.machine.architecture).kernel.least_memory_mib << 20
        self.usual: Usual | None = None
        self.more_bytes = 0
        self._on_usual = on_usual
        self._machine = self._started = replace(subject.machine, network=subject.machine.network or subject.network)
        self._network = NETWORK if subject.network else None
        self._scratch = scratch
        self._passed: dict[int, Gathered] = {}
        work, clock = subject.attended or _exercised(subject, network=self._network), subject.machine.clock
        self._work = replace(work, until=Until.REST) if isinstance(work, Attended) else work
        began = time.monotonic()
        gathered = self._usual(subject)
        if gathered.start_cpu_s is not None and gathered.cpu_s is not None:
            self.usual = Usual(gathered.start_cpu_s, gathered.cpu_s, instructions=gathered.executed)
            on_usual(self.usual)
            other = beside()
            known = [one for one in (self.usual, other) if one is not None]
            self.more_bytes = other.more_bytes if other is not None else 0
            self._work = replace(self._work, patience=_patience(known))
        if clock is not Clock.INSTRUCTIONS:  # what stands still is told from what waits by how long it takes
            self._work = replace(self._work, timeout_s=STILL_S + ALL_TIMES * (time.monotonic() - began))

    def _usual(self, subject: MeasuredMachine) -> Gathered:
        """Return a boot with all memory; of a slower machine, where the exercise passes there, too."""
        if self._machine.clock is Clock.INSTRUCTIONS and subject.attended is None:
            self._machine = replace(self._machine, pace=SEARCH_PACE)
            self._work = _exercised(subject, 1 << SEARCH_PACE, self._network)
            found, gathered = self._boot(self._machine.memory_bytes)
            if not found.failures:
                self._passed[self._machine.memory_bytes] = gathered
                return gathered
            self._machine, self._work = self._started, _exercised(subject, network=self._network)
        found, gathered = self._boot(self._machine.memory_bytes)
        if not found.failures:
            self._passed[self._machine.memory_bytes] = gathered
        return gathered

    def tell(self, more_bytes: int) -> None:
        """Report the memory beyond the guess that it now passed with."""
        if self.usual is not None:
            self._on_usual(replace(self.usual, more_bytes=more_bytes))

    def told(self) -> int:
        """Return an estimate of the memory that it needs, from its use with plenty of memory; 0 if unknown. In
        bytes."""
        use = self.use(self._machine.memory_bytes)
        kept = SYSTEM_CACHES if isinstance(self._work, Attended) else CACHES
        return memory_use.needed(use, kept) if use is not None else 0

    def passes(self, memory_bytes: int) -> bool:
        """Return whether the exercise passes with so much memory. QEMU does not even start when kernel, initial RAM
        disk and device tree would overlap."""
        try:
            found, gathered = self._boot(memory_bytes)
        except NotStarted:
            return False
        if found.failures:
            return False
        self._passed[memory_bytes] = gathered
        return True

    def use(self, memory_bytes: int) -> MemoryUse | None:
        """Return the use of memory in the boot that passed with so much of it."""
        if memory_bytes not in self._passed:
            self.passes(memory_bytes)
        gathered = self._passed.get(memory_bytes)
        if gathered is None:
            return None
        log = gathered.console.decode("utf-8", "replace")
        return memory_use.use(memory_bytes, log, gathered.report.file("memory"))

    def _boot(self, memory_bytes: int) -> tuple[Boot, Gathered]:
        machine = replace(self._machine, memory_bytes=memory_bytes)
        with _room:
            return boot(machine, self._work.unhurried(machine.clock, self._work.patience), self._scratch)


def _patience(known: Sequence[Usual]) -> Patience:
    """Return the time limit of a boot with less memory, from the boots with all of it that are compared."""
    start_s = SLACK_S + START_TIMES * max(one.start_s for one in known)
    all_s = SLACK_S + ALL_TIMES * max(one.all_s for one in known)
    counts = [one.instructions for one in known if one.instructions is not None]
    if not counts:
        return Patience(start_s, all_s)
    return Patience(start_s, GUARD_TIMES * all_s, instructions=SLACK_INSTRUCTIONS + ALL_TIMES * max(counts))


def least_memory(known: int, floor: int, passes: Callable[[int], bool], guess: int = 0) -> int:
    """Return the least memory that passes, in bytes, by bisection to one MEMORY_STEP, and to a sixteenth of large
    sizes. `known`: a size that passes. `floor`: no smaller size is tried. `guess`: an estimate, better too large than
    too small. Sizes near it are tried first: a good guess saves most trials, and no guess changes the result."""
    sizes = _sizes(floor // MEMORY_STEP - 1, known // MEMORY_STEP)
    failed, passed = -1, len(sizes) - 1  # by their number

    def asked(number: int) -> bool:
        nonlocal failed, passed
        if failed < number < passed:
            if passes(sizes[number] * MEMORY_STEP):
                passed = number
            else:
                failed = number
        return number >= passed

    if guess:
        first = bisect.bisect_left(sizes, -(-guess // MEMORY_STEP), hi=len(sizes) - 1)
        enough = asked(first - 1)
        for steps in _DOWN if enough else _UP:
            if asked(min(max(0, first + steps), len(sizes) - 1)) != enough:
                break
    while passed - failed > 1:
        asked((failed + passed) // 2)
    return sizes[passed] * MEMORY_STEP


#: Sizes by which a guess may be wrong. One that is too small is seldom so by much, and a kernel without room to unpack
#: says so at once. A system with too little memory reads its files over and over: such a boot takes several times what
#: one takes that passes, so steps downwards become small.
_UP, _DOWN = (0, 1, 2, 3, 5, 10), (-3, -5, -6, -7, -8, -10)


def _sizes(low: int, high: int) -> list[int]:
    """Return the sizes among which the least is searched, in steps: above `low`, up to `high`."""
    if high - low <= max(1, low // 16):
        return [high]
    # Small machines are likelier: the middle is taken on a scale of ratios.
    middle = min(high - 1, max(low + 1, round((low * high) ** 0.5)))
    return [*_sizes(low, middle), *_sizes(middle, high)]


def conditions(machine: Machine, clock: Clock) -> tuple[tuple[str, str], ...]:
    """Return the conditions under which the figures of a machine on one clock were taken."""
    machine = machine if clock is Clock.WALL else machine_variants.counted(machine)
    monitor = monitors.of(machine)
    return (
        ("machine", machine.board),
        ("memory", notation.mebibytes(machine.memory_bytes)),
        ("cpus", str(machine.cpus)),
        (CPU_MODEL, machine.cpu_model),
        ("accelerator", "TCG"),
        (monitor.name, monitor.version(machine.architecture)),
        ("clock", str(clock)),
    )
