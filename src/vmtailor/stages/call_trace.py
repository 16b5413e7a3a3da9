# SPDX-License-Identifier: Apache-2.0
"""A boot in which the calls of the kernel are followed. No other figure is taken from it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vmtailor.analysis.calls import followed_code
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.guests import boots, machine_variants
from vmtailor.base.errors import GuestError
from vmtailor.base.natives import Natives
from vmtailor.base.progress import step
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.booter import boot
from vmtailor.model.architecture import named
from vmtailor.model.boots.counters import CountingConfig
from vmtailor.model.boots.workload import Exercised
from vmtailor.model.machine import Machine


def follow(
    machine: Machine, work: Exercised, table: SymbolTable, init: Mapping[str, int], natives: Natives, scratch: Path
) -> tuple[bytes, int]:
    """Boot once, with the exercise, and return the file of calls and how many requests were asked. `table`: all
    functions, of modules, too; `init`: the marks of the machine's init. Raises UserInputError for a processor whose
    calls cannot be followed, GuestError when the container does not pass its exercise."""
    code = followed_code.require(named(table.architecture))
    config = CountingConfig(
        marks=boots.marks_at(table, init),
        architecture=table.architecture,
        follow=followed_code.of_table(table, code),
    )
    one_cpu = machine_variants.counted(machine)
    with step("follow every call of the kernel") as shown:
        found, gathered = boot(one_cpu, work.unhurried(one_cpu.clock), scratch, counting=Counting(natives, config))
        if found.failures or not gathered.counts:
            shown.fail()
    if found.failures or not gathered.counts:
        raise GuestError(
            "the container did not pass its exercise while its calls were followed",
            hint="vmtailor trace --show coverage tells whether it passes without",
            details=boots.evidence(gathered, found.failures),
        )
    return gathered.counts, found.container.requests if found.container is not None else 0
