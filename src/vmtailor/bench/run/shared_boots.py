# SPDX-License-Identifier: Apache-2.0
"""The trials of engines within a machine that share boots: of instances at once, of their memory, of units of work."""

from __future__ import annotations

from dataclasses import dataclass

from vmtailor.bench.analysis.schedule import PlannedTrial
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.run.growth_boot import Growths
from vmtailor.bench.run.rounds_boot import AtOnce
from vmtailor.bench.run.units_boot import UnitBoots


@dataclass(frozen=True)
class SharedBoots:
    """The boots of this run of each kind. `units`: units of work, where the job counts them in one boot."""

    at_once: AtOnce
    growths: Growths
    units: UnitBoots

    @classmethod
    def of(cls, job: BenchJob) -> SharedBoots:
        """Return those of a job, before any boot."""
        return cls(AtOnce(job), Growths(job), UnitBoots(job))

    def has(self, one: PlannedTrial) -> bool:
        """Return whether a trial's figures are there already, from the boot of another one."""
        return self.at_once.has(one) or self.growths.has(one) or self.units.has(one)
