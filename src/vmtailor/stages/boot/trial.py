# SPDX-License-Identifier: Apache-2.0
"""Changes tried: one at a time and all that helped together, each predicted before it is measured."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.guests.machines import countable
from vmtailor.analysis.statistics.bootstats import difference, judge
from vmtailor.analysis.statistics.stats import can_decide
from vmtailor.base import records
from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import Natives
from vmtailor.base.store import Store
from vmtailor.booting import series
from vmtailor.booting.boot import Booter
from vmtailor.booting.boot import boot as plain_boot
from vmtailor.booting.counted import CountedToInit, Settled
from vmtailor.drivers.qemu.plugin import PluginMode
from vmtailor.model.boot import Outcome
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.sample import Verdict
from vmtailor.model.series import BootSeries, JudgedBy, TrialResult, Variant
from vmtailor.model.timeline import Timeline
from vmtailor.model.workload import OwnInit, Workload
from vmtailor.stages.boot import profile
from vmtailor.stages.boot.attribution import Known, attributed
from vmtailor.stages.boot.recipes import Recipe, expected_instructions, expected_s, merge

BASE = "base"
TOGETHER = "together"
#: So many changed machines are booted between two boots of the machine as it is.
BETWEEN = 6

OnBoot = Callable[[str, int, float], None]
Predict = Callable[[Recipe], tuple[float | None, str]]


@dataclass(frozen=True)
class Bench:
    """How machines of one kind are booted and changed, and what is expected of a change. `change` raises
    UserInputError for what cannot be made, and gives back an equal machine where nothing changes."""

    booter: Booter
    change: Callable[[Sequence[Recipe], Machine], Machine]
    predict: Predict


@dataclass(frozen=True)
class Shown:
    """The timeline that predictions are read from, and how much of its seconds count."""

    timeline: Timeline
    share: float


@dataclass(frozen=True)
class _Tried:
    recipe: Recipe
    vm: Machine | None
    predicted: float | None
    predicted_from: str
    problem: str = ""


def run(
    subject: str, vm: Machine, plan: Workload, wanted: Sequence[Recipe], out: Path, *, times: int, natives: Natives,
    judged_by: JudgedBy = JudgedBy.READY, known: Known | None = None, store: Store | None = None,
    on_boot: OnBoot | None = None,
) -> BootSeries:  # fmt: skip
    """Try changes on a machine with an init of its own, as `on_bench` does. First one boot that shows more of itself,
    for the predictions. To judge by instructions, the kernel must be `known`."""
    out.mkdir(parents=True, exist_ok=True)
    booter: Booter = plain_boot
    predict: Predict
    if judged_by is JudgedBy.INSTRUCTIONS:
        if known is None or store is None:
            raise UserInputError("instructions can be counted only in a kernel whose symbols are known")
        vm = countable(vm)
        booter = CountedToInit(known.system_map, natives, PluginMode.COVERAGE, known.architecture)
        cost = attributed(vm, known, out, natives=natives, store=store, timeout_s=2 * plan.timeout_s)
        predict = functools.partial(expected_instructions, cost=cost)
    else:
        if vm.clock is Clock.INSTRUCTIONS:
            booter = Settled(natives)
        predict = seconds_of(_shown(vm, plan, out, natives, judged_by, booter, on_boot))

    def change(recipes: Sequence[Recipe], vm: Machine) -> Machine:
        return merge(recipes, vm, out, natives.folder / "small-init")

    bench = Bench(booter, change, predict)
    return on_bench(subject, vm, plan, wanted, out, bench, times=times, judged_by=judged_by, on_boot=on_boot)


def on_bench(
    subject: str, vm: Machine, plan: Workload, wanted: Sequence[Recipe], out: Path, bench: Bench, *, times: int,
    judged_by: JudgedBy, on_boot: OnBoot | None = None,
) -> BootSeries:  # fmt: skip
    """Boot the machine as it is and each changed one in turn, `times` times; then all that were better, together,
    against the machine as it is.

    The machine as it is is booted again after every few changed ones, so that the spread between its boots is known."""
    booter = bench.booter
    tried = [_prepare(recipe, vm, bench) for recipe in wanted]
    base = series.variant(BASE, vm)
    changed = [series.variant(t.recipe.id, t.vm, (t.recipe.id,)) for t in tried if t.vm is not None]
    schedule = _schedule(base, changed, times)
    earlier = series.Earlier(out)
    found = series.run(subject, schedule, plan, out, before=earlier.of(plan, schedule), booter=booter, on_boot=on_boot)
    results = [_result(t, found, judged_by) for t in tried]
    good = [t for t, r in zip(tried, results, strict=True) if r.verdict is Verdict.BETTER]
    if len(good) > 1:
        together = _together(good, vm, bench)
        last = [(together, number) for number in range(1, max(times, 2) + 1)]
        before = (*found.boots, *earlier.of(plan, last))
        found = series.run(subject, [*schedule, *last], plan, out, before=before, booter=booter, on_boot=on_boot)
        results.append(_together_result(good, found, judged_by))
    done = replace(found, trials=tuple(results), interaction=_interaction(results), judged_by=judged_by)
    records.save(done, out / series.RECORD)
    return done


def doubt(clock: Clock, judged_by: JudgedBy, changes: int, times: int) -> str:
    """What to say before anything is booted, where no change can be told from chance whatever the boots show; empty
    where it can. `times`: boots of each changed machine."""
    if _by_spread(clock, judged_by):
        return ""
    base = times * -(-changes // BETWEEN) + 1
    if can_decide(base, times):
        return ""
    least = next(n for n in range(times + 1, 100) if can_decide(n * -(-changes // BETWEEN) + 1, n))
    return (
        f"with {times} boots of each machine, every change will be undecided: --times {least} can tell, and so can "
        "--clock instructions"
    )


def _by_spread(clock: Clock, judged_by: JudgedBy) -> bool:
    """Whether the figure hardly varies, so that few boots are enough."""
    return clock is Clock.INSTRUCTIONS or judged_by is not JudgedBy.READY


def seconds_of(shown: Shown | None) -> Predict:
    def predict(recipe: Recipe) -> tuple[float | None, str]:
        if shown is None:
            return None, ""
        predicted, source = expected_s(recipe, shown.timeline)
        return (predicted * shown.share if predicted is not None else None), source

    return predict


def _schedule(base: Variant, changed: Sequence[Variant], times: int) -> list[tuple[Variant, int]]:
    schedule: list[tuple[Variant, int]] = []
    bases = 0
    for number in range(1, times + 1):
        for place, one in enumerate(changed):
            if place % BETWEEN == 0:
                bases += 1
                schedule.append((base, bases))
            schedule.append((one, number))
    return [*schedule, (base, bases + 1)]


def _shown(
    vm: Machine,
    plan: Workload,
    out: Path,
    natives: Natives,
    judged_by: JudgedBy,
    booter: Booter,
    on_boot: OnBoot | None,
) -> Shown | None:
    """What one boot with initcalls logged, units stamped and processes sampled tells; None where it cannot be had."""
    if vm.kernel is None:
        return None
    seeing = profile.with_words(profile.with_initcalls(vm), profile.UNITS)
    if vm.initrd is not None:
        seeing = profile.with_collector(seeing, natives.folder / "collector", out)

    def progress(seconds: float) -> None:
        if on_boot is not None:
            on_boot("profile", 1, seconds)

    # Logging costs time: what is near its limit without would miss it.
    patient: Workload = replace(plan, timeout_s=2 * plan.timeout_s)
    if isinstance(patient, OwnInit):
        patient = replace(patient, collector=vm.initrd is not None)
    boot, gathered = booter(seeing, patient, out, on_progress=progress)
    series.keep(gathered, out / "profile", seeing, "profile")
    if boot.outcome not in (Outcome.READY, Outcome.WRONG):
        return None
    timeline = profile.timeline_of(out / "profile")
    records.save(timeline, out / "profile" / "timeline.json")
    # The guest's clock ran on while the host gave QEMU no time: in processor time, that share is not there.
    ready = boot.at("ready")
    share = boot.cpu_s / ready if judged_by is JudgedBy.CPU and boot.cpu_s and ready else 1.0
    return Shown(timeline, share)


def _prepare(recipe: Recipe, vm: Machine, bench: Bench) -> _Tried:
    try:
        changed = bench.change((recipe,), vm)
    except UserInputError as error:
        return _Tried(recipe, None, None, "", error.message)
    if changed == vm:
        return _Tried(recipe, None, None, "", "the machine is like this already")
    predicted, source = bench.predict(recipe)
    return _Tried(recipe, changed, predicted, source)


def _together(good: Sequence[_Tried], vm: Machine, bench: Bench) -> Variant:
    changed = bench.change([t.recipe for t in good], vm)
    return series.variant(TOGETHER, changed, tuple(t.recipe.id for t in good))


def _ready(found: BootSeries, variant: str) -> list[float]:
    boots = (b for b in found.of(variant) if b.outcome is Outcome.READY)
    return [at for b in boots if (at := b.at("ready", found.clock)) is not None]


def _cpu(found: BootSeries, variant: str) -> list[float]:
    return [b.cpu_s for b in found.of(variant) if b.cpu_s is not None and b.outcome is Outcome.READY]


def _instructions(found: BootSeries, variant: str) -> list[float]:
    return [float(b.instructions) for b in found.of(variant) if b.instructions and b.outcome is Outcome.READY]


def _result_of(one: TrialResult, name: str, found: BootSeries, judged_by: JudgedBy) -> TrialResult:
    """The result with what was measured filled in."""
    problems = [f"{b.outcome}: {b.problem}" for b in found.of(name) if b.outcome is not Outcome.READY]
    by = {JudgedBy.CPU: _cpu, JudgedBy.READY: _ready, JudgedBy.INSTRUCTIONS: _instructions}[judged_by]
    before, after = by(found, BASE), by(found, name)
    gain, cpu = difference(before, after), difference(_cpu(found, BASE), _cpu(found, name))
    wall = difference(_ready(found, BASE), _ready(found, name)) if found.clock is Clock.WALL else None
    verdict = judge(before, after, exact=_by_spread(found.clock, judged_by))
    return replace(
        one,
        saving=gain[0] if gain else None,
        low=gain[1] if gain else None,
        high=gain[2] if gain else None,
        wall_saving_s=wall[0] if wall else None,
        cpu_saving_s=cpu[0] if cpu else None,
        verdict=Verdict.WORSE if problems else verdict,
        problem="; ".join(dict.fromkeys(problems)),
    )


def _result(tried: _Tried, found: BootSeries, judged_by: JudgedBy) -> TrialResult:
    recipe = tried.recipe
    blank = TrialResult(
        recipe.id, recipe.advice, recipe.does, tried.predicted, tried.predicted_from, None, None, None, None, None,
        Verdict.UNDECIDED, tried.problem,
    )  # fmt: skip
    return blank if tried.vm is None else _result_of(blank, recipe.id, found, judged_by)


def _together_result(good: Sequence[_Tried], found: BootSeries, judged_by: JudgedBy) -> TrialResult:
    known = [t.predicted for t in good if t.predicted is not None]
    predicted = sum(known) if len(known) == len(good) else None
    names = ", ".join(t.recipe.id for t in good)
    blank = TrialResult(TOGETHER, "", names, predicted, "the sum", None, None, None, None, None, Verdict.UNDECIDED)
    return _result_of(blank, TOGETHER, found, judged_by)


def _interaction(results: Sequence[TrialResult]) -> float | None:
    last = results[-1] if results else None
    if last is None or last.id != TOGETHER or last.saving is None:
        return None
    return last.saving - sum(r.saving or 0.0 for r in results[:-1] if r.verdict is Verdict.BETTER)
