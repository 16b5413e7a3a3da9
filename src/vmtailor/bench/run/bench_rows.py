# SPDX-License-Identifier: Apache-2.0
"""The rows of a run: a runtime on this host, a machine of the image's own, an engine within a machine. Each says what
it is and which tests it takes, and measures a trial."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from vmtailor.base import notation
from vmtailor.base.errors import VmtailorError
from vmtailor.base.natives import locate
from vmtailor.bench.analysis import instance_report
from vmtailor.bench.analysis.benchmarks import INDEX, SCORE, BenchTest, benchmark
from vmtailor.bench.analysis.boot_counts import timed_start
from vmtailor.bench.analysis.instance_report import with_limits
from vmtailor.bench.analysis.schedule import PlannedTrial
from vmtailor.bench.model.instance import BENCH, BENCH_UNIXBENCH
from vmtailor.bench.model.results import CLOCK, VIRTUAL, BenchFigure, RuntimeIdentity, SuiteName, is_counted
from vmtailor.bench.run.guest_engine import GuestEngine
from vmtailor.bench.run.image_machine import ImageMachine
from vmtailor.bench.run.machine_counts import counted_trial, timed_too
from vmtailor.bench.run.shared_boots import SharedBoots
from vmtailor.bench.runtimes import description
from vmtailor.bench.runtimes.host_runtime import BenchImage, DescribedRuntime, able, missing
from vmtailor.bench.runtimes.stopwatch import TimedCommand, timed
from vmtailor.bench.suites.bench_run import ASKED, TAG, BenchRun, number, said_object, succeeded
from vmtailor.bench.suites.registry import SUITES

_REPORT_S = 120.0


class BenchRow(ABC):
    """One row of a run's tables. `name`: as results have it; `beginning`: the step that makes it ready. `within`: it
    runs within the machine that the job names, where several instances at once share a boot. `facts`: facts about the
    image's programs there, once it was identified."""

    name: str
    beginning: str
    within = False
    facts: Mapping[str, str] = {}

    @abstractmethod
    def identity(self) -> RuntimeIdentity:
        """Make the row ready, and return its identity; with what is missing or wrong where it cannot be used."""

    @abstractmethod
    def takes(self, test: BenchTest) -> bool:
        """Return whether the row runs a test."""

    @abstractmethod
    def figures(self, one: PlannedTrial) -> tuple[BenchFigure, ...]:
        """Return the figures of one trial. Raises TrialFailed, GuestError, HostError or CommandFailed."""


class HostRow(BenchRow):
    """A described runtime on this host. `held`: keeps its daemon until the run ends."""

    def __init__(self, run: BenchRun, described: str, held: contextlib.ExitStack) -> None:
        one, folder = description.load(described), run.folder
        enter = locate().folder / "enter"
        self._driver = DescribedRuntime(one, folder / one.name, enter, run.cgroups, folder / ".instances")
        self._run, self._held = run, held
        self.name, self.beginning = one.name, f"make {one.title} ready"

    def identity(self) -> RuntimeIdentity:
        driver, run = self._driver, self._run
        if lacking := missing(driver.description):
            return RuntimeIdentity(driver.name, missing=lacking)
        try:
            image = BenchImage(run.folder / "tree", Path(run.job.image_archive), TAG)
            self._held.enter_context(driver).prepare(image)
        except VmtailorError as error:
            return _unusable(driver.name, driver.version(), error)
        version = driver.version()
        run.runtimes[driver.name] = driver
        try:
            with run.placed(driver.name, run.spec([BENCH, "report"], able(driver.description, ASKED))) as spec:
                above = run.cgroups.limits(spec.name)
                said = succeeded(timed(driver.run_words(spec), deadline_s=_REPORT_S, **driver.surroundings())).stdout
        except VmtailorError as error:
            return _unusable(driver.name, version, error)
        one = driver.description
        found = instance_report.identified(
            driver.name, version, said, run.here, run.job.program_sha256, own_kernel=one.own_kernel, chroot=one.chroot
        )
        seen = instance_report.parse(said)
        return found if seen is None else with_limits(found, seen, above)

    def takes(self, test: BenchTest) -> bool:
        return not is_counted(test.variant)

    def figures(self, one: PlannedTrial) -> tuple[BenchFigure, ...]:
        return SUITES[one.test.suite].trial(self._run, one.test, self.name)


class MachineRow(BenchRow):
    """A machine of the image's own: counted, and timed where KVM works."""

    def __init__(self, run: BenchRun, machine: ImageMachine) -> None:
        self._run, self._machine = run, machine
        self.name, self.beginning = machine.name, f"boot {machine.name}"

    def identity(self) -> RuntimeIdentity:
        known, job = self._machine.known, self._run.job
        how = "counted under emulation, timed with KVM" if job.kvm else "emulated"
        words = [f"Linux {known.kernel}", known.machine.board, notation.mebibytes(known.machine.memory_bytes), how]
        version = ", ".join([*words, *([known.digest] if known.digest else [])])
        ask = self._machine.timed if job.kvm else self._machine.run  # counting, all is emulated
        try:
            said = ask([BENCH, "report"]).container
        except VmtailorError as error:
            return _unusable(self.name, version, error)
        return instance_report.identified(
            self.name, version, said.stdout.encode() if said else b"", self._run.here, job.program_sha256,
            own_kernel=True, chroot=False,
        )  # fmt: skip

    def takes(self, test: BenchTest) -> bool:
        if test.variant == CLOCK:
            return test.suite not in (SuiteName.EFFICIENCY, SuiteName.MEMORY)
        return self._run.job.kvm and not is_counted(test.variant) and timed_too(test)

    def figures(self, one: PlannedTrial) -> tuple[BenchFigure, ...]:
        test, row = one.test, benchmark(one.test.suite, one.test.test)
        if test.variant == CLOCK:
            return counted_trial(test, self._machine)
        if test.suite == SuiteName.STARTUP:
            return row.measured(timed_start(self._machine.timed([BENCH, "report"])))
        seconds = INDEX[test.test].seconds(quick=self._run.quick)
        found = self._machine.timed([BENCH_UNIXBENCH, test.test, f"{seconds:g}", "1"])
        assert found.container is not None
        said = TimedCommand(
            reports=(), first_output_s=None, exit_s=found.seconds, returncode=0,
            stdout=found.container.stdout.encode(), stderr=b"",
        )  # fmt: skip
        return row.measured({SCORE: number(said_object(said), SCORE)})


class GuestRow(BenchRow):
    """An engine within the machine that the job names: counted, one instance alone or several at once."""

    within = True
    #: Its commands differ by their words alone, so that several run in one boot.
    _alike = True

    def __init__(self, run: BenchRun, engine: GuestEngine, shared: SharedBoots) -> None:
        self._run, self._engine, self._shared = run, engine, shared
        self.name, self.facts = engine.name, engine.facts
        known = run.asked_before.get(engine.name)
        # The same disk has the same engine. Another description of it, or another machine of a monitor, was refused.
        self._known = known if known is not None and known.version.endswith(engine.where) else None
        self.beginning = f"boot {engine.name}" if self._known is None else f"{engine.name}, as the results have it"

    def identity(self) -> RuntimeIdentity:
        if self._known is not None:
            return self._known
        return self._engine.identity(self._run.job.program_sha256)

    def takes(self, test: BenchTest) -> bool:
        return test.variant == CLOCK

    def figures(self, one: PlannedTrial) -> tuple[BenchFigure, ...]:
        if one.test.variant == VIRTUAL:
            return self._shared.at_once.figures(one, self._engine)
        if one.test.suite is SuiteName.MEMORY:
            return self._shared.growths.figures(one, self._engine)
        if self._alike and self._shared.units.takes(one.test):
            return self._shared.units.figures(one, self._engine)
        return counted_trial(one.test, self._engine)


class MonitoredRow(GuestRow):
    """A monitor within the machine that the job names, one machine of it at a time."""

    within = False
    _alike = False  # its command is within what is made ready

    def takes(self, test: BenchTest) -> bool:
        return super().takes(test) and test.suite is not SuiteName.MEMORY


def _unusable(name: str, version: str, error: VmtailorError) -> RuntimeIdentity:
    return RuntimeIdentity(name, version, problem=f"{error.message}: {error.details[-500:]}")
