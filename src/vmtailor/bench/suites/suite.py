# SPDX-License-Identifier: Apache-2.0
"""What a suite is."""

from __future__ import annotations

from typing import Protocol

from vmtailor.bench.analysis.trial_plan import BenchTest
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import BenchFigure, SuiteName
from vmtailor.bench.suites.bench_run import BenchRun


class Suite(Protocol):
    """A suite: its tests, and how one of them is tried once. What has a body here may be left as it is."""

    name: SuiteName

    def tests(self, job: BenchJob) -> list[BenchTest]:
        """What is run for a job, in every runtime."""
        ...

    def left_out(self, job: BenchJob) -> tuple[str, ...]:
        """What the suite knows and a job does not measure, in words."""
        return ()

    def facts(self, run: BenchRun) -> tuple[tuple[str, str], ...]:
        """What belongs to its figures and is text: compilers, sets. Raises VmtailorError."""
        return ()

    def trial(self, run: BenchRun, test: BenchTest, runtime: str) -> tuple[BenchFigure, ...]:
        """Try it once. Raises TrialFailed, HostError or CommandFailed: a failure is a result."""
        ...
