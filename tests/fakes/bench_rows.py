# SPDX-License-Identifier: Apache-2.0
"""Rows of a run that say which tests they take, and nothing more."""

from __future__ import annotations

from dataclasses import dataclass

from vmtailor.bench.analysis.benchmarks import BenchTest
from vmtailor.bench.analysis.schedule import PlannedTrial
from vmtailor.bench.model.results import CLOCK, BenchFigure, RuntimeIdentity, is_counted
from vmtailor.bench.run.bench_rows import BenchRow


@dataclass
class FakeRow(BenchRow):
    """A runtime on the host; `within`: an engine within the machine; `counted`: a machine without KVM."""

    name: str
    within: bool = False
    counted: bool = False

    def identity(self) -> RuntimeIdentity:
        """Return a name alone."""
        return RuntimeIdentity(self.name)

    def figures(self, one: PlannedTrial) -> tuple[BenchFigure, ...]:
        """Refuse: nothing is measured in it."""
        raise NotImplementedError

    def takes(self, test: BenchTest) -> bool:
        """Return whether a row of this kind takes the test."""
        return test.variant == CLOCK if self.within or self.counted else not is_counted(test.variant)
