# SPDX-License-Identifier: Apache-2.0
"""Engines within a virtual machine: a system boots on the instruction clock, and one of its engines runs one
command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from vmtailor.analysis.guests import boots, machine_variants
from vmtailor.base import notation
from vmtailor.base.errors import GuestError
from vmtailor.base.files import temporary
from vmtailor.base.natives import Natives, elf_symbols
from vmtailor.base.text import plain
from vmtailor.bench.analysis import instance_report
from vmtailor.bench.analysis.boot_counts import WITHIN, dearest, several_started, started
from vmtailor.bench.analysis.guest_rounds import STEP, about, steps
from vmtailor.bench.model.instance import BENCH, BENCH_UNIXBENCH, Limits
from vmtailor.bench.model.job import BenchInside
from vmtailor.bench.model.results import BenchFigure, RuntimeIdentity
from vmtailor.bench.run import kernel_subsystems
from vmtailor.bench.run.image_machine import counting
from vmtailor.bench.runtimes.description import Description
from vmtailor.bench.runtimes.guest_runtime import (
    ENTER,
    FAILED,
    FIRST,
    LOG,
    OURS,
    TREE,
    InGuest,
    InTurn,
    in_guest,
    in_turn,
)
from vmtailor.bench.runtimes.host_runtime import able
from vmtailor.bench.suites.bench_run import ASKED, TAG
from vmtailor.booting.booter import boot
from vmtailor.drivers.guest import attendant_volume, guest_programs
from vmtailor.drivers.guest.attendant_volume import SystemRoot
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.counters import CodeSpan
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.system_exercise import Saying, SystemExercise, SystemReady, SystemReadyKind
from vmtailor.model.boots.workload import FIXED_KEY, Attended
from vmtailor.model.exercise import Expect, Step, StepKind
from vmtailor.model.machine import Clock

#: Seconds of the guest's time for making an engine ready, and for one command; of processor time for a whole boot.
PREPARE_S, COMMAND_S, BOOT_S = 1800.0, 600.0, 3600.0
#: The machine's disks after the system's own: the image's files, and ours.
TREE_DISK, OURS_DISK = "/dev/vdb", "/dev/vdc"
#: Further files from the guest: the script's log, the engine's version, and the identity outside and within it.
_SAID, _VERSION, _HERE, _WITHIN = "bench-log", "bench-version", "bench-here", "bench-within"
#: The attendant's function that begins each step.
_BEGINS = "job_start"
#: File with the image's description of its UnixBench test set.
_ABOUT = "bench-about"
#: Characters of an engine's version, as on a host: containerd's number comes after its address.
_VERSION_LENGTH = 120


@dataclass(frozen=True)
class GuestEngine:
    """One engine in the machine. `scratch`: for files of boots. `facts`: facts about the image's programs, once it was
    identified. `in_each`:
    starts that are counted in each boot of them."""

    known: BenchInside
    described: Description
    scratch: Path
    facts: dict[str, str] = field(default_factory=dict)
    in_each: int = 1
    starts: ClassVar = (WITHIN,)
    work: ClassVar = WITHIN
    #: Guests of the machine's own are counted apart; further questions after the command.
    guests: ClassVar = False
    says: ClassVar[tuple[Saying, ...]] = ()

    @property
    def name(self) -> str:
        """Return the name of its row: the machine's, and the engine's."""
        return f"{self.known.machine.name}/{self.described.name}"

    @property
    def where(self) -> str:
        """Return the machine around in words, with the digest of its disk: the engine's version ends with them."""
        machine = self.known.machine
        memory = notation.mebibytes(machine.machine.memory_bytes)
        return f"in Linux {machine.kernel}, {machine.machine.board}, {memory}, {machine.digest}"

    @cached_property
    def subsystems(self) -> dict[str, str]:
        """Return function of the machine's kernel → its subsystem."""
        return kernel_subsystems.read(self.known.machine.subsystems)

    def run(self, command: Sequence[str]) -> Boot:
        """Boot, make the engine ready, and have it run the command twice. The second run is counted: the phase "load".
        Raises GuestError when it fails."""
        return self.ran(command)[0]

    def ran(self, command: Sequence[str]) -> tuple[Boot, Gathered]:
        """Do what `run` does, and return all that was gathered besides."""
        found, gathered = self.driven(exercise_of(self.asked(command)), self.says)
        _right(found, gathered)
        self.output(gathered)
        return found, gathered

    def start(self, command: Sequence[str]) -> tuple[BenchFigure, ...]:
        """Return the cost of one start of the command, or of each of the several of a boot; and of the kernel's dearest
        functions. Raises GuestError when it fails."""
        if self.in_each > 1:
            return self._several(command)
        found = self.run(command)
        return (*started(found, self.subsystems, self.starts), *dearest(found, WITHIN))

    def _several(self, command: Sequence[str]) -> tuple[BenchFigure, ...]:
        asked = in_turn(self.described, [command] * self.in_each, [command], TAG, TREE_DISK, OURS_DISK)
        found, gathered = self.driven(exercise_in_turn(asked), self.says, by_step=True)
        require_ready(found, gathered, found.problem if found.failures else "")
        cost = steps(gathered.counters) if gathered.counters is not None else []
        if len(cost) != self.in_each:
            raise GuestError(f"the machine counted {len(cost)} of {self.in_each} starts", details=plain(found.problem))
        return several_started(found, cost, self.subsystems)

    def spans(self) -> tuple[CodeSpan, ...]:
        """Return places at whose passages the counts are noted."""
        return ()

    def identity(self, expected: str) -> RuntimeIdentity:
        """Return what an instance under limits reports of itself, checked against the machine around it. `expected`:
        the program's digest."""
        asked = self.asked([BENCH, "report"], able(self.described, ASKED))
        sayings = [*self.says, Saying(_HERE, (TREE + BENCH, "report")), Saying(_WITHIN, ("cat", FIRST))]
        sayings += [Saying(_ABOUT, (f"{OURS}/{ENTER}", "-r", TREE, BENCH_UNIXBENCH, "about"))]
        sayings += [Saying(_VERSION, asked.version)] if asked.version else []
        where = self.where
        try:
            found, gathered = self.driven(exercise_of(asked), sayings)
            _right(found, gathered)
            output = self.output(gathered)
        except GuestError as error:
            return RuntimeIdentity(self.name, where, problem=error.message)
        self.facts.update(about(gathered.report.file(_ABOUT)))
        said = gathered.report.file(_VERSION).strip().splitlines()
        version = f"{plain(said[0])[:_VERSION_LENGTH]} {where}" if said else where
        here = instance_report.parse(gathered.report.file(_HERE).encode())
        said_within = output if here is not None else b""
        one = self.described
        return instance_report.identified(
            self.name, version, said_within, self.beside(here or {}), expected, own_kernel=one.own_kernel,
            chroot=one.chroot,
        )  # fmt: skip

    def asked(self, command: Sequence[str], limits: Limits | None = None) -> InGuest:
        """Return how the engine is made ready, and runs a command."""
        return in_guest(self.described, command, TAG, TREE_DISK, OURS_DISK, limits)

    def beside(self, here: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what an instance's report is compared with. `here`: the report from the machine outside of it."""
        return here

    def output(self, gathered: Gathered) -> bytes:
        """Return what the first instance printed. Raises GuestError where an instance is seen to have failed."""
        return gathered.report.file(_WITHIN).encode()

    def with_memory(self, memory_bytes: int) -> GuestEngine:
        """Return the engine in a machine that has so much memory, and is otherwise the same."""
        around = self.known.machine
        other = replace(around, machine=replace(around.machine, memory_bytes=memory_bytes))
        return replace(self, known=replace(self.known, machine=other))

    def driven(
        self,
        exercise: SystemExercise,
        sayings: Sequence[Saying],
        *,
        by_step: bool = False,
        counted: bool = True,
        patience_s: float = BOOT_S,
    ) -> tuple[Boot, Gathered]:
        """Boot the machine and have its attendant run the exercise; return the boot, whatever its outcome. `by_step`:
        count each step of the load, too; `counted`: count at all; `patience_s`: of processor time."""
        known = self.known
        machine = machine_variants.countable(known.machine.machine)
        parts = guest_programs.of(machine.architecture)
        root = SystemRoot(known.root, known.root_type, known.writable, known.init)
        self.scratch.mkdir(parents=True, exist_ok=True)
        with temporary.held_folder(self.scratch) as folder:
            volume = folder / "attendant"
            said = (Saying(_SAID, ("cat", LOG)), *sayings)
            attendant_volume.write(volume, parts, root, exercise, FIXED_KEY, said)
            work = Attended(exercise=exercise, volume=volume, key=FIXED_KEY, timeout_s=patience_s).unhurried(
                Clock.INSTRUCTIONS
            )
            if not counted:
                return boot(machine, work, folder)
            spans = _step_spans(parts) if by_step else self.spans()
            how = counting(known.machine, parts, parts.attendant_marks(), spans, guests=self.guests)
            return boot(machine, work, folder, counting=how)


def exercise_of(asked: InGuest) -> SystemExercise:
    """Return an exercise: the system is ready once the script has run; its load is the command."""
    prepare = Step(StepKind.COMMAND, argv=("sh", "-c", asked.prepare))
    load = Step(StepKind.COMMAND, argv=asked.run, expect=Expect(exit_code=0))
    return SystemExercise(
        origin="bench", ready=SystemReady(SystemReadyKind.COMMAND, prepare, timeout_s=PREPARE_S), load=(load,),
        step_timeout_s=max(PREPARE_S, COMMAND_S),
    )  # fmt: skip


def exercise_in_turn(asked: InTurn, rest_s: int | None = None) -> SystemExercise:
    """Return an exercise of several commands. `rest_s`: seconds of the guest's time before each, in which it finishes
    what it has put off, as a step of its own; None: one follows the other."""
    prepare = Step(StepKind.COMMAND, argv=("sh", "-c", asked.prepare))
    load = []
    for words in asked.run:
        load += [] if rest_s is None else [Step(StepKind.COMMAND, argv=("sh", "-c", f"sync; sleep {rest_s}"))]
        load.append(Step(StepKind.COMMAND, argv=words, expect=Expect(exit_code=0)))
    return SystemExercise(
        origin="bench", ready=SystemReady(SystemReadyKind.COMMAND, prepare, timeout_s=2 * PREPARE_S), load=tuple(load),
        step_timeout_s=max(PREPARE_S, COMMAND_S),
    )  # fmt: skip


def failure(log: str) -> str:
    """Return why the script stopped, by its log: the command that failed, and the last lines before it. Empty where it
    came to its end."""
    said: list[str] = []
    for line in log.splitlines():
        if line.startswith(FAILED):
            command = line.removeprefix(FAILED)
            return f"{command[:100]}; it said: {'; '.join(said[-_MOST_SAID:])}" if said else command[:300]
        said += [line.strip()[:200]] if line.strip() else []
    return ""


#: Lines quoted before a failure: engines name the cause first, and then its effects.
_MOST_SAID = 6


def _right(found: Boot, gathered: Gathered) -> Boot:
    """Return the boot. Raises GuestError where the engine was not made ready, or the command failed."""
    return require_ready(found, gathered, found.problem if found.failures else "")


def require_ready(found: Boot, gathered: Gathered, problem: str = "") -> Boot:
    """Return the boot. Raises GuestError where the engine was not made ready, or there is another problem."""
    log = gathered.report.file(_SAID)
    if (why := failure(log)) or problem:
        reason = plain(why)[:1000] if why else problem
        words = f"{log[-1500:]}\n{boots.evidence(gathered, found.failures)[-1000:]}"
        raise GuestError(f"in the machine: {reason}", details=words.strip())
    return found


def _step_spans(parts: Natives) -> tuple[CodeSpan, ...]:
    at = elf_symbols(parts.attendant.read_bytes()).get(_BEGINS)
    if at is None:
        raise GuestError(f"the attendant's program has no {_BEGINS}: the cost of its steps cannot be counted apart")
    return (CodeSpan(STEP, at),)
