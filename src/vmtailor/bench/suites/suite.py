# SPDX-License-Identifier: Apache-2.0
"""The common part of suites."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

from vmtailor.bench.analysis.benchmarks import BenchTest, Values, benchmark
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import BenchFigure, SuiteName
from vmtailor.bench.suites.bench_run import BenchRun


class Suite(ABC):
    """A suite: the tests of a job, and the function that does each of them once. `trials`: by the name of the test; a
    function takes the run, the test and the runtime's name, and raises TrialFailed, HostError or CommandFailed."""

    name: SuiteName
    trials: ClassVar[Mapping[str, Callable[[BenchRun, BenchTest, str], Values]]] = {}

    @abstractmethod
    def tests(self, job: BenchJob) -> list[BenchTest]:
        """Return what is run for a job, in every runtime."""

    def left_out(self, job: BenchJob) -> tuple[str, ...]:
        """Return in words what the suite knows and a job does not measure."""
        return ()

    def facts(self, run: BenchRun) -> tuple[tuple[str, str], ...]:
        """Return what belongs to its figures and is text: compilers, sets. Raises VmtailorError."""
        return ()

    def trial(self, run: BenchRun, test: BenchTest, runtime: str) -> tuple[BenchFigure, ...]:
        """Try a test once. Raises TrialFailed, HostError or CommandFailed: a failure is a result."""
        return benchmark(self.name, test.test).measured(self.trials[test.test](run, test, runtime))
