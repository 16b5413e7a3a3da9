# SPDX-License-Identifier: Apache-2.0
"""Results of benchmarks: every raw sample with its conditions, from one host or from several."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

#: Key of a test: its suite, its name, the number of instances at once, its variant.
TestKey = tuple[str, str, int, str]
#: Variant of a test whose figures are counts.
CLOCK = "instruction clock"
#: Variant of instances at once within a machine: their rates are by its virtual time, not by real seconds.
VIRTUAL = "our set, 1 copy, virtual time"
#: Fact of a run that names its image, as it was asked for.
IMAGE = "image"


class SuiteName(StrEnum):
    STARTUP = "startup"
    EFFICIENCY = "efficiency"
    MEMORY = "memory"
    UNIXBENCH = "unixbench"
    ISOLATION = "isolation"


@dataclass(frozen=True)
class BenchHost:
    """The host of a run. `name`: stable, so that runs of one host are found, and those of two are not pooled.
    `clock_mhz`: of its processors, before the run; None where the host does not report it."""

    name: str
    kernel: str
    processor: str
    cpus: int
    memory_bytes: int
    architecture: str
    cgroup: str
    kvm: bool
    virtualised: bool
    clock_mhz: float | None = None

    @property
    def id(self) -> str:
        return f"{self.name} ({self.processor}, {self.cpus} CPUs, Linux {self.kernel})"


@dataclass(frozen=True)
class BenchFigure:
    """One number of one trial. `instance`: which of several at once, from 0. `larger_is_better`: true of rates, for
    example."""

    name: str
    value: float
    unit: str
    larger_is_better: bool = False
    instance: int = 0


@dataclass(frozen=True)
class BenchFailure:
    """The reason that a trial gave no figures, in a sentence; and the end of the programs' output."""

    reason: str
    evidence: str = ""


@dataclass(frozen=True)
class HostNoise:
    """The host's other work while a trial ran, as shares of all processor time. `clock_mhz`: the median of all
    processors; `clock_low_mhz`, `clock_high_mhz`: over all processors and all readings (`clock_looks`). Trials that
    measure processors take several readings."""

    steal: float
    others: float
    clock_mhz: float | None = None
    clock_low_mhz: float | None = None
    clock_high_mhz: float | None = None
    clock_looks: int = 0


@dataclass(frozen=True)
class Witness:
    """One instance's own report from inside, made while it was measured. `own`: the namespaces that it does not share
    with the host."""

    kernel: str
    own: tuple[str, ...]
    capabilities: int | None
    seccomp: str
    lsm: str
    cgroup: str
    program_sha256: str


@dataclass(frozen=True)
class BenchTrial:
    """One run of one test in one runtime. `count`: instances at once; `variant`: how (cold, warm, limited); `block`:
    which of the repetitions; 0 is the warm-up, whose figures do not count. `command`: repeats this trial. `notes`:
    other events, in words; `witnesses`: of instances that reported from inside."""

    suite: SuiteName
    test: str
    runtime: str
    count: int
    variant: str
    block: int
    started_unix_s: float
    seconds: float
    figures: tuple[BenchFigure, ...] = ()
    failure: BenchFailure | None = None
    noise: HostNoise | None = None
    command: str = ""
    notes: tuple[str, ...] = ()
    witnesses: tuple[Witness, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, int, str, int]:
        """Return the key of the planned trial that this is."""
        return self.suite, self.test, self.runtime, self.count, self.variant, self.block

    @property
    def of_test(self) -> TestKey:
        return self.suite, self.test, self.count, self.variant


class Isolated(StrEnum):
    """The two states of a namespace, seen from inside an instance."""

    SHARED = "shared"  # the same as the harness has
    OWN = "own"


@dataclass(frozen=True)
class RuntimeIdentity:
    """A runtime as its instance reports it from inside, checked against the harness. `namespaces`: name → own or
    shared; `problem`: why the row is not what it says; empty when it is. `missing`: how to get the runtime, where it is
    not there.

    `…_limited`: as the instance sees it; None where it is not shown. `memory_bytes`, `cpus`, `pids`: the limits'
    values; None where there is none. `limits_above`: the limits that it does not see, because they are set on the group
    that it was started in."""

    runtime: str
    version: str = ""
    kernel: str = ""
    own_kernel: bool = False
    namespaces: tuple[tuple[str, Isolated], ...] = ()
    memory_limited: bool | None = None
    cpu_limited: bool | None = None
    pids_limited: bool | None = None
    capabilities: int | None = None
    seccomp: str = ""
    no_new_privileges: bool | None = None
    lsm: str = ""
    program_sha256: str = ""
    cgroup: str = ""
    problem: str = ""
    missing: str = ""
    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    limits_above: tuple[str, ...] = ()


@dataclass(frozen=True)
class HostRun:
    """All that was measured on one host with one image. `quick`: durations were a tenth; never compare them with
    published tables. `left_out`: cells that were not measured, and why."""

    host: BenchHost
    image_digest: str
    quick: bool
    seed: int
    options: tuple[tuple[str, str], ...] = ()
    identities: tuple[RuntimeIdentity, ...] = ()
    trials: tuple[BenchTrial, ...] = ()
    left_out: tuple[str, ...] = ()


# vmtailor/bench/3: values of limits; witnesses; clocks of all processors.
# vmtailor/bench/2: notes of trials.
@dataclass(frozen=True)
class BenchResults:
    """Results that can be merged: one entry for each host and image."""

    SCHEMA: ClassVar[str] = "vmtailor/bench/3"

    version: str
    runs: tuple[HostRun, ...] = ()


def is_counted(variant: str) -> bool:
    """Return whether a variant's figures are of the instruction clock, which a busy host does not sway."""
    return variant in (CLOCK, VIRTUAL)
