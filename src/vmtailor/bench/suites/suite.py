# SPDX-License-Identifier: Apache-2.0
"""The base class of suites."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

from vmtailor.bench.analysis.benchmarks import BenchTest, Values, benchmark
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import BenchFigure, SuiteName
from vmtailor.bench.suites.bench_run import BenchRun


class Suite(ABC):
    """A suite: the tests of a job, and the function that runs each of them once. `trials`: by the name of the test; a
    function takes the run, the test and the runtime's name, and raises TrialFailed, HostError or CommandFailed."""

    name: SuiteName
    trials: ClassVar[Mapping[str, Callable[[BenchRun, BenchTest, str], Values]]] = {}

    @abstractmethod
    def tests(self, job: BenchJob) -> list[BenchTest]:
        """Return the tests of a job, which run in every runtime."""

    def left_out(self, job: BenchJob) -> tuple[str, ...]:
        """Return in words what the suite could measure and a job does not."""
        return ()

    def facts(self, run: BenchRun) -> tuple[tuple[str, str], ...]:
        """Return the conditions of its figures as text: compilers, sets. Raises VmtailorError."""
        return ()

    def trial(self, run: BenchRun, test: BenchTest, runtime: str) -> tuple[BenchFigure, ...]:
        """Run a test once. Raises TrialFailed, HostError or CommandFailed: a failure is a result."""
        return benchmark(self.name, test.test).measured(self.trials[test.test](run, test, runtime))
