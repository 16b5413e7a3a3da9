# SPDX-License-Identifier: Apache-2.0
"""What a suite is."""

from __future__ import annotations

from typing import Protocol

from vmtailor.analysis.bench.plan import BenchTest
from vmtailor.model.bench.job import BenchJob
from vmtailor.model.bench.results import BenchFigure, SuiteName
from vmtailor.pipeline.bench.bench_run import BenchRun


class Suite(Protocol):
    """A suite: its tests, and how one of them is tried once."""

    @property
    def name(self) -> SuiteName: ...

    def tests(self, job: BenchJob) -> list[BenchTest]:
        """What is run for a job, in every runtime."""
        ...

    def trial(self, run: BenchRun, test: BenchTest, runtime: str) -> tuple[BenchFigure, ...]:
        """Try it once. Raises TrialFailed, HostError or CommandFailed: a failure is a result."""
        ...
