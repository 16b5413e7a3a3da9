# SPDX-License-Identifier: Apache-2.0
"""The subject of a fit: an image, or a system with an init of its own. One fit prepares, traces, plans, verifies,
measures and seals both (pipeline/fit.py); a subject holds what differs."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from vmtailor.analysis.cost import loops
from vmtailor.analysis.cost.attribution import Attribution, SymbolCost
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.base.cache.store import Store
from vmtailor.base.files import records
from vmtailor.base.natives import Natives
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import Architecture
from vmtailor.model.change import Change
from vmtailor.model.exercise import Exercise
from vmtailor.model.fit_run import FitRun, Side, Warning
from vmtailor.model.image import Image
from vmtailor.model.kernel import KernelBaseline, KernelFiles
from vmtailor.model.machine import Machine
from vmtailor.model.margin import Margin, MarginPrice
from vmtailor.model.plan import Plan
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.systems.kept_changes import Tuning
from vmtailor.model.systems.units import UnitChoice, UnitStanding
from vmtailor.model.trace import FileUse
from vmtailor.model.trial import Trial, Verification
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
        """Add the time since the beginning to a stage."""
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
    """A machine that was built, with its verification. It has not passed if repair gave up."""

    verification: Verification


@dataclass(frozen=True, eq=False)
class Improved:
    """The machine with changes beside its kernel, and the results for units and for named changes."""

    fitted: Fitted
    units: UnitChoice | None = None
    tuned: Tuning | None = None
    warnings: tuple[Warning, ...] = ()


@dataclass(frozen=True)
class UsersDisk:
    """The root of a bundle that is a disk: the user's, of which no second copy is kept, or ours with other files on it.
    `name`: its name in the bundle. `sha256`: digest of the file that was fitted."""

    name: str
    file: Path
    sha256: str


@dataclass(frozen=True)
class WorkFiles:
    """The files that a trace leaves in a work folder. `kernel`: of the baseline as it was traced; `saved`: name →
    record; `copied`: name → file; `image`: what was traced where that is one; `disk`: of a system."""

    kernel: KernelBaseline
    saved: Mapping[str, Any]
    copied: Mapping[str, Path]
    image: Image | None = None
    disk: UsersDisk | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Subject(ABC, Generic[Seen]):
    """A prepared subject: everything that exists before the first boot. `baseline`: the machine to start from, with the
    symbols of its kernel (`table`) and that kernel's configuration (`config`, name → value)."""

    #: Name of the content in a fit's sources.
    NOUN: ClassVar[str]

    options: FitOptions
    architecture: Architecture
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
        """Return the exercise in the form that the guest gets."""

    @property
    def copied(self) -> Path | None:
        """Return the user's file that a bundle has a copy of; None when the bundle is made here entirely."""
        return None

    @abstractmethod
    def calls(self) -> tuple[Iterable[SyscallEvent], Sequence[FileUse]]:
        """Return the system calls and the files of its trace, which is made where it is missing."""

    @abstractmethod
    def work_files(self) -> WorkFiles:
        """Return what begins a work folder: the trace, which is made where it is missing."""

    @abstractmethod
    def trace_key(self) -> str:
        """Return the cache key of the trace: everything that it depends on."""

    @abstractmethod
    def trace(self, begun: Ahead | None = None) -> Findings[Seen]:
        """Trace on the baseline, and read the source: everything that a plan is made of. `begun`: counts the baseline
        meanwhile."""

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
        """Return the cache key of a verification: everything that it depends on."""

    @abstractmethod
    def judge(self, found: Findings[Seen], made: Plan, machine: Machine) -> tuple[Verification, bool]:
        """Run the exercise on a machine, and return the verdict with whether it may be kept."""

    def verify(self, found: Findings[Seen], made: Plan, machine: Machine) -> Verification:
        """Return the verification of a machine; one that passes is made once for the same bytes."""
        key = self.verification_key(found, made, machine)
        if self.store.bring("verification", key):
            return records.load(Verification, self.store.path("verification", key) / _VERIFICATION)
        verification, sure = self.judge(found, made, machine)
        if verification.passed and sure:  # a failure may be the host's: it is asked again
            self.store.get("verification", key, lambda folder: records.save(verification, folder / _VERIFICATION))
        return verification

    @abstractmethod
    def asked(
        self,
        machine: Machine,
        table: SymbolTable,
        title: str,
        beside: MeasureRequest | None = None,
        *,
        network: bool = False,
    ) -> MeasureRequest:
        """Return the request to measure a machine with the exercise. `beside`: the machine that it is compared with, if
        that bounds its time. `network`: `run` will start it with a network device."""

    def improve(self, found: Findings[Seen], fitted: Fitted, times: Times, ask: AskUnits | None) -> Improved:
        """Try changes beside the kernel on a machine that passed; an image has none."""
        return Improved(fitted)

    def price(self, found: Findings[Seen], fitted: Fitted, tailored: Side, times: Times) -> tuple[MarginPrice, ...]:
        """Return the price of each choice of margins; a system has none."""
        return ()

    def doubts(self, found: Findings[Seen]) -> tuple[Warning, ...]:
        """Return warnings about the way in which this subject was traced."""
        return ()

    @abstractmethod
    def told(self, run: FitRun, found: Findings[Seen], fitted: Fitted) -> FitRun:
        """Add the facts of this kind of subject to the record of a fit."""

    @abstractmethod
    def seal(self, folder: Path, run: FitRun, found: Findings[Seen], fitted: Fitted) -> None:
        """Write every file of the bundle, except its page and a copy of the user's disk."""

    def users_disk(self, run: FitRun) -> UsersDisk | None:
        """Return the disk that is copied into the bundle when that is placed; None where there is none."""
        return None


@dataclass(eq=False)
class Findings(Generic[Seen]):
    """The findings of one fit so far. `seen`: the trace, in the form of its kind of subject. `costs`: those of the
    baseline's code, None if not counted. `trials`: all so far. `compiled`, `found`: keys of the kernels compiled in
    this run, and of those found."""

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
        return self.costs.by_symbol(without=loops.functions(loops.table(self.subject.architecture.name)))

    def planned(
        self, tried: Sequence[Change] = (), drop: Sequence[str] = (), margins: tuple[Margin, ...] | None = None
    ) -> Plan:
        """Return the plan, with symbols that trials put back or have shown to be unneeded, and without those of `drop`.
        `margins`: these instead of the requested ones."""
        return self.subject.plan(self, (*self.repaired, *tried), drop, margins)

    def machine_of(self, made: Plan, kernel: KernelFiles) -> Machine:
        """Return the fitted machine of a plan and its kernel."""
        return self.subject.machine(made, kernel)

    def verified(self, made: Plan, machine: Machine) -> Verification:
        """Return the verification of a machine, made once for the same bytes."""
        return self.subject.verify(self, made, machine)


def scratch_of(store: Store) -> Path:
    """Return the folder of a cache for temporary files."""
    return store.folder("scratch")
