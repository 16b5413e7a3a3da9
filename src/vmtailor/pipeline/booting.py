# SPDX-License-Identifier: Apache-2.0
"""`boot` on a bundle: its boots, what each part of its kernel costs, and changes tried on it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.cost import attribution_boot
from vmtailor.base import records
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.natives import Natives
from vmtailor.base.progress import step
from vmtailor.base.store import Store
from vmtailor.booting import bundle, series
from vmtailor.booting.bundle import BundleBooter, Chosen, Loaded
from vmtailor.model.boot import Outcome
from vmtailor.model.boot_cost import BootCost
from vmtailor.model.counters import Counters
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.series import BootSeries, JudgedBy
from vmtailor.model.workload import Exercised
from vmtailor.pipeline import rebuilding
from vmtailor.stages.boot import attribution, bundle_changes, profile, recipes, trial
from vmtailor.stages.boot.recipes import Recipe

OnBoot = Callable[[str, int, float], None]


@dataclass(frozen=True)
class Booted:
    """A bundle as it is to be booted. `own` has what the user chose of its machine."""

    loaded: Loaded
    own: Chosen
    workload: Exercised
    natives: Natives
    store: Store

    @property
    def machine(self) -> Machine:
        """The machine, on the clock that was chosen."""
        return bundle.machine_of(self.loaded, self.own)

    def on(self, clock: Clock) -> Booted:
        """The same on another clock."""
        return replace(self, own=replace(self.own, clock=clock))

    @property
    def booter(self) -> BundleBooter:
        return BundleBooter(self.loaded, self.natives)


def prepare(path: Path, own: Chosen, timeout_s: float, natives: Natives, store: Store) -> Booted:
    """Read a bundle. What ready means is its exercise's to say."""
    loaded = bundle.load(path, store)
    return Booted(loaded, own, bundle.workload_of(loaded, timeout_s), natives, store)


def boots(subject: Booted, times: int, out: Path, on_boot: OnBoot) -> BootSeries:
    """Boot a bundle so many times."""
    schedule = series.in_turn([series.variant("base", subject.machine)], times)
    return series.run(
        str(subject.loaded.folder), schedule, subject.workload, out, booter=subject.booter, on_boot=on_boot
    )


def attribute(subject: Booted, out: Path) -> BootCost:
    """One boot with the exercise on the instruction clock: what each part of the kernel costs up to init. The kernel is
    compiled once more for it, with debug information, which changes no address; once, and found again after that."""
    known = rebuilding.known(subject.loaded, subject.store)
    assert known is not None
    cost = attribution.cost_of(_counted(subject, out), known, subject.store)
    records.save(cost, out / attribution.RECORD)
    return cost


def _counted(subject: Booted, out: Path) -> Counters:
    out.mkdir(parents=True, exist_ok=True)
    machine = subject.on(Clock.INSTRUCTIONS).machine
    with step("count instructions up to init"):
        boot, gathered = subject.booter(machine, subject.workload, out)
    series.keep(gathered, out / "attribution", machine, "attribution")
    counters = gathered.counters
    if counters is None or boot.instructions is None:
        raise GuestError(
            f"the kernel did not come to init: {boot.problem or bundle.OTHER_INIT}",
            hint=f"its console: {out}/attribution/console.log",
        )
    return counters


def tried(
    subject: Booted, wanted: Sequence[Recipe], out: Path, *, times: int, judged_by: JudgedBy, on_boot: OnBoot
) -> BootSeries:
    """Try changes on a bundle: each alone, then all that were better together, the exercise judging every boot.

    On the instruction clock predictions are read from what each part of the kernel costs; by file and symbol where its
    debug information was compiled before (`attribute`), else by name of function and initcall. On the wall clock they
    are read from a boot that logs its initcalls."""
    if judged_by is JudgedBy.CPU:
        raise UserInputError("a bundle's trials are judged by ready or by instructions")
    if judged_by is JudgedBy.INSTRUCTIONS:
        subject = subject.on(Clock.INSTRUCTIONS)
    out.mkdir(parents=True, exist_ok=True)
    if subject.machine.clock is Clock.INSTRUCTIONS:
        predict = _by_cost(_cost(subject, out), judged_by)
    else:
        predict = _by_log(subject, out)
    rebuild = rebuilding.Rebuilder(subject.loaded, subject.store)

    def change(chosen: Sequence[Recipe], vm: Machine) -> Machine:
        return bundle_changes.change(chosen, vm, rebuild)

    bench = trial.Bench(subject.booter, change, predict)
    return trial.on_bench(
        str(subject.loaded.folder), subject.machine, subject.workload, wanted, out, bench, times=times,
        judged_by=judged_by, on_boot=on_boot,
    )  # fmt: skip


def _cost(subject: Booted, out: Path) -> BootCost:
    counters = _counted(subject, out)
    known = rebuilding.known(subject.loaded, subject.store, only_cached=True)
    if known is not None:
        return attribution.cost_of(counters, known, subject.store)
    table = subject.booter.table(str(subject.loaded.kernel))
    found = attribution_boot.by_table(counters, table)
    return attribution_boot.rows_of(subject.loaded.bundle.kernel_version, counters, found)


def _by_cost(cost: BootCost, judged_by: JudgedBy) -> trial.Predict:
    exact = functools.partial(recipes.expected_instructions, cost=cost)
    if judged_by is JudgedBy.INSTRUCTIONS:
        return exact

    def seconds(recipe: Recipe) -> tuple[float | None, str]:
        count, source = exact(recipe)
        return None if count is None else count / 1e9, source

    return seconds


def _by_log(subject: Booted, out: Path) -> trial.Predict:
    patient = replace(subject.workload, timeout_s=2 * subject.workload.timeout_s)
    machine = profile.with_initcalls(subject.machine)
    with step("one boot that logs its initcalls"):
        boot, gathered = subject.booter(machine, patient, out)
    series.keep(gathered, out / "profile", machine, "profile")
    if boot.outcome not in (Outcome.READY, Outcome.WRONG):
        return trial.seconds_of(None)
    return trial.seconds_of(trial.Shown(profile.timeline_of(out / "profile"), 1.0))
