# SPDX-License-Identifier: Apache-2.0
"""The subject of a fit: an image, or a system with an init of its own. One fit prepares, traces, plans, verifies,
measures and seals both (pipeline/fit.py); a subject holds what differs."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from vmtailor.analysis.cost import loops
from vmtailor.analysis.cost.attribution import Attribution, SymbolCost
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.natives import Natives
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import Architecture
from vmtailor.model.change import Change
from vmtailor.model.exercise import Exercise
from vmtailor.model.fit_run import FitRun, Side, Warning
from vmtailor.model.kernel import KernelBaseline, KernelFiles
from vmtailor.model.machine import Machine
from vmtailor.model.margin import Margin, MarginPrice
from vmtailor.model.plan import Plan
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.systems.kept_changes import Tuning
from vmtailor.model.systems.units import UnitChoice, UnitStanding
from vmtailor.model.trace import FileUse
from vmtailor.model.trial import Trial, Verification
from vmtailor.pipeline.bundle_place import UsersDisk
from vmtailor.pipeline.measured_machines import Ahead, MeasureRequest
from vmtailor.pipeline.options import FitOptions
from vmtailor.stages.kernel_plan import KernelTree

Seen = TypeVar("Seen")

#: Asks whether those units are to be tried; True: yes.
AskUnits = Callable[[Sequence[UnitStanding]], bool]

_VERIFICATION = "verification.json"


class Times:
    """Seconds that each stage took, from when this is made."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began = time.monotonic()

    def until_now(self, stage: str) -> None:
        """Give a stage all the time since the beginning."""
        self.seconds[stage] = time.monotonic() - self._began

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        """Add the time of the block to that of a stage."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - started


@dataclass(frozen=True, eq=False)
class Built:
    """A plan with its kernel and the machine of both."""

    plan: Plan
    kernel: KernelFiles
    machine: Machine


@dataclass(frozen=True, eq=False)
class Fitted(Built):
    """A machine that was built, with what verification said of it. It has not passed where repair gave up."""

    verification: Verification


@dataclass(frozen=True, eq=False)
class Improved:
    """The machine with what was changed beside its kernel: what became of units, and of changes that were named."""

    fitted: Fitted
    units: UnitChoice | None = None
    tuned: Tuning | None = None
    warnings: tuple[Warning, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject(ABC, Generic[Seen]):
    """A subject that was prepared: everything that is there before anything is booted. `baseline`: the machine that it
    starts from, with the symbols of its kernel (`table`) and that kernel's configuration (`config`, name → value)."""

    #: What the content is called in a fit's sources.
    NOUN: ClassVar[str]
    #: What cannot be done yet with this kind of subject, each with a sentence that says so.
    LACKS: ClassVar[Mapping[str, str]] = {}

    options: FitOptions
    row: Architecture
    kernel: KernelBaseline
    source: SourceTree
    natives: Natives
    baseline: Machine
    table: SymbolTable
    config: dict[str, str]

    @property
    def store(self) -> Store:
        return self.options.store

    @property
    def scratch(self) -> Path:
        """Return the folder for temporary files."""
        return scratch_of(self.options.store)

    @property
    @abstractmethod
    def reference(self) -> str:
        """Return the name that the user gave it."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """Return the digest of its content, `sha256:` first."""

    @property
    @abstractmethod
    def description(self) -> bytes:
        """Return its record, as the key of a fit has it."""

    @property
    @abstractmethod
    def inside(self) -> Exercise:
        """Return the exercise as the guest is told it."""

    @property
    def copied(self) -> Path | None:
        """Return the file of the user's that a bundle has a copy of; None where all of a bundle is made here."""
        return None

    @classmethod
    @abstractmethod
    def prepare(cls, options: FitOptions) -> AbstractContextManager[Subject[Any]]:
        """Read and fetch what is missing, for as long as the block lasts. Finds what can be wrong with the user's input
        before anything long begins."""

    @classmethod
    def require(cls, what: str, reference: str) -> None:
        """Raise UserInputError for what cannot be done yet with this kind of subject."""
        if what in cls.LACKS:
            raise UserInputError(f"{reference}: {cls.LACKS[what]}")

    @abstractmethod
    def calls(self) -> tuple[Iterable[SyscallEvent], Sequence[FileUse]]:
        """Return the system calls and the files of its trace, which is made where it is missing."""

    @abstractmethod
    def trace_key(self) -> str:
        """Name the trace in the cache by everything that it depends on."""

    @abstractmethod
    def trace(self, begun: Ahead | None = None) -> Findings[Seen]:
        """Trace on the baseline, and read the source: everything that a plan is made of. `begun`: where the baseline is
        counted meanwhile."""

    def counted(self, found: Findings[Seen]) -> Findings[Seen]:
        """Return the findings with what the baseline's code costs; of a system that takes a boot where it is not
        known."""
        return found

    @abstractmethod
    def plan(
        self, found: Findings[Seen], tried: Sequence[Change], drop: Sequence[str], margins: tuple[Margin, ...] | None
    ) -> Plan:
        """Choose the configuration; see `Findings.planned`."""

    @abstractmethod
    def machine(self, made: Plan, kernel: KernelFiles) -> Machine:
        """Return the fitted machine: no initial RAM disk, no ACPI."""

    @abstractmethod
    def verification_key(self, found: Findings[Seen], made: Plan, machine: Machine) -> str:
        """Name a verification in the cache by everything that it depends on."""

    @abstractmethod
    def judge(self, found: Findings[Seen], made: Plan, machine: Machine) -> tuple[Verification, bool]:
        """Do the exercise on a machine, and tell whether what it says may be kept."""

    def verify(self, found: Findings[Seen], made: Plan, machine: Machine) -> Verification:
        """Return what verification says of a machine; asked once for the same bytes where it passes."""
        key = self.verification_key(found, made, machine)
        if self.store.has("verification", key):
            return records.load(Verification, self.store.path("verification", key) / _VERIFICATION)
        verification, sure = self.judge(found, made, machine)
        if verification.passed and sure:  # a failure may be the host's: it is asked again
            self.store.get("verification", key, lambda folder: records.save(verification, folder / _VERIFICATION))
        return verification

    @abstractmethod
    def asked(
        self, machine: Machine, table: SymbolTable, title: str, beside: MeasureRequest | None = None
    ) -> MeasureRequest:
        """Describe a machine with the exercise as it is to be measured. `beside`: the machine that it is compared with,
        where that bounds what it may take."""

    def improve(self, found: Findings[Seen], fitted: Fitted, times: Times, ask: AskUnits | None) -> Improved:
        """Try what lies beside the kernel on a machine that passed; of an image there is nothing."""
        return Improved(fitted)

    def price(self, found: Findings[Seen], fitted: Fitted, tailored: Side, times: Times) -> tuple[MarginPrice, ...]:
        """Say what each choice of margins costs; a system has none."""
        return ()

    def doubts(self, found: Findings[Seen]) -> tuple[Warning, ...]:
        """Say what a reader should know of the way in which this subject was seen."""
        return ()

    @abstractmethod
    def told(self, run: FitRun, found: Findings[Seen], fitted: Fitted) -> FitRun:
        """Add what only this kind of subject knows to the record of a fit."""

    @abstractmethod
    def seal(self, folder: Path, run: FitRun, found: Findings[Seen], fitted: Fitted) -> None:
        """Write every file of the bundle but its page and a disk of the user's."""

    def users_disk(self, run: FitRun) -> UsersDisk | None:
        """Return the disk that is copied into the bundle when that is placed; None where there is none."""
        return None


@dataclass(eq=False)
class Findings(Generic[Seen]):
    """The findings of one fit so far. `seen`: the trace, as its kind of subject has it; `costs`: of the baseline's
    code, None where that was not counted; `repaired`: the symbols that repair put back in the fit before; `trials`: all
    so far; `compiled`, `found`: keys of the kernels that were compiled in this run, and of those that were there."""

    subject: Subject[Seen]
    seen: Seen
    tree: KernelTree
    costs: Attribution | None = None
    repaired: tuple[Change, ...] = ()
    trials: list[Trial] = field(default_factory=list)
    compiled: set[str] = field(default_factory=set)
    found: set[str] = field(default_factory=set)

    @property
    def options(self) -> FitOptions:
        return self.subject.options

    @property
    def source(self) -> SourceTree:
        return self.subject.source

    @cached_property
    def ran(self) -> Mapping[str, SymbolCost]:
        """Return the cost of each symbol's code on the baseline, without loops that only emulation causes."""
        if self.costs is None:
            return {}
        return self.costs.by_symbol(without=loops.functions(loops.table(self.subject.row.name)))

    def planned(
        self, tried: Sequence[Change] = (), drop: Sequence[str] = (), margins: tuple[Margin, ...] | None = None
    ) -> Plan:
        """Return the plan, with symbols that trials put back or have shown to be unneeded, and without those of `drop`.
        `margins`: others than those that were asked for."""
        return self.subject.plan(self, (*self.repaired, *tried), drop, margins)

    def machine_of(self, made: Plan, kernel: KernelFiles) -> Machine:
        """Return the fitted machine of a plan and its kernel."""
        return self.subject.machine(made, kernel)

    def verified(self, made: Plan, machine: Machine) -> Verification:
        """Return what verification says of a machine; asked once for the same bytes."""
        return self.subject.verify(self, made, machine)


def scratch_of(store: Store) -> Path:
    """Return the folder of a cache for temporary files."""
    return store.folder("scratch")
