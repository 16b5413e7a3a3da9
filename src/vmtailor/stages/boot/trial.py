# SPDX-License-Identifier: Apache-2.0
"""Changes tried: one at a time and all that helped together, each predicted before it is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.bootstats import difference, judge
from vmtailor.base import records
from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import Natives
from vmtailor.model.machine import Clock
from vmtailor.model.sample import Verdict
from vmtailor.model.timeline import Timeline
from vmtailor.model.vm import BootSeries, Outcome, TrialResult, Variant, Vm
from vmtailor.stages.boot import profile, series
from vmtailor.stages.boot.once import Plan, boot_once
from vmtailor.stages.boot.recipes import Recipe, apply, expected_s, merge

BASE = "base"
TOGETHER = "together"

OnBoot = Callable[[str, int, float], None]


@dataclass(frozen=True)
class _Tried:
    recipe: Recipe
    vm: Vm | None
    predicted_s: float | None
    predicted_from: str
    problem: str = ""


def run(
    subject: str, vm: Vm, plan: Plan, wanted: Sequence[Recipe], out: Path, *, times: int, natives: Natives,
    on_boot: OnBoot | None = None,
) -> BootSeries:  # fmt: skip
    """Try changes on a machine. First one boot that shows more of itself, for the predictions; then the machine as it
    is and each
    changed one in turn, `times` times; then all that were better, together, against the machine as it is."""
    out.mkdir(parents=True, exist_ok=True)
    shown = _shown(vm, plan, out, natives, on_boot)
    tried = [_prepare(recipe, vm, shown, out, natives) for recipe in wanted]
    variants = [series.variant(BASE, vm)]
    variants += [series.variant(t.recipe.id, t.vm, (t.recipe.id,)) for t in tried if t.vm is not None]
    found = series.run(subject, variants, plan, out, times=times, on_boot=on_boot)
    results = [_result(t, found) for t in tried]
    good = [t for t, r in zip(tried, results, strict=True) if r.verdict is Verdict.BETTER]
    if len(good) > 1:
        together = _together(good, vm, out, natives)
        variants.append(together)
        found = series.run(subject, variants, plan, out, times=times, before=found.boots, on_boot=on_boot)
        results.append(_together_result(good, found))
    done = replace(found, trials=tuple(results), interaction_s=_interaction(results))
    records.save(done, out / series.RECORD)
    return done


def _shown(vm: Vm, plan: Plan, out: Path, natives: Natives, on_boot: OnBoot | None) -> Timeline | None:
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
    patient = replace(plan, timeout_s=2 * plan.timeout_s)
    header = (("title", "profile"), ("system.kernel.options", " ".join(seeing.append)))
    boot = boot_once(seeing, patient, out / "profile", number=1, variant="profile", header=header, on_progress=progress)
    if boot.outcome not in (Outcome.READY, Outcome.WRONG):
        return None
    timeline = profile.timeline_of(out / "profile")
    records.save(timeline, out / "profile" / "timeline.json")
    return timeline


def _prepare(recipe: Recipe, vm: Vm, shown: Timeline | None, out: Path, natives: Natives) -> _Tried:
    try:
        changed = apply(recipe, vm, out, natives.folder / "small-init")
    except UserInputError as error:
        return _Tried(recipe, None, None, "", error.message)
    if changed == vm:
        return _Tried(recipe, None, None, "", "the machine is like this already")
    predicted, source = expected_s(recipe, shown) if shown is not None else (None, "")
    return _Tried(recipe, changed, predicted, source)


def _together(good: Sequence[_Tried], vm: Vm, out: Path, natives: Natives) -> Variant:
    changed = merge((t.recipe for t in good), vm, out, natives.folder / "small-init")
    return series.variant(TOGETHER, changed, tuple(t.recipe.id for t in good))


def _seconds(found: BootSeries, variant: str) -> list[float]:
    boots = (b for b in found.of(variant) if b.outcome is Outcome.READY)
    return [at for b in boots if (at := b.at("ready", found.clock)) is not None]


def _measured(
    name: str, found: BootSeries
) -> tuple[float | None, float | None, float | None, float | None, Verdict, str]:
    problems = [f"{b.outcome}: {b.problem}" for b in found.of(name) if b.outcome is not Outcome.READY]
    before, after = _seconds(found, BASE), _seconds(found, name)
    gain = difference(before, after)
    cpu = difference(_cpu(found, BASE), _cpu(found, name))
    verdict = judge(before, after, exact=found.clock is Clock.INSTRUCTIONS)
    if problems:
        verdict = Verdict.WORSE
    saving, low, high = gain if gain is not None else (None, None, None)
    return saving, low, high, cpu[0] if cpu else None, verdict, "; ".join(dict.fromkeys(problems))


def _cpu(found: BootSeries, variant: str) -> list[float]:
    return [b.cpu_s for b in found.of(variant) if b.cpu_s is not None and b.outcome is Outcome.READY]


def _result(tried: _Tried, found: BootSeries) -> TrialResult:
    recipe = tried.recipe
    if tried.vm is None:
        return TrialResult(
            recipe.id, recipe.advice, recipe.does, None, "", None, None, None, None, Verdict.UNDECIDED, tried.problem
        )
    saving, low, high, cpu, verdict, problem = _measured(recipe.id, found)
    return TrialResult(
        recipe.id, recipe.advice, recipe.does, tried.predicted_s, tried.predicted_from, saving, low, high, cpu, verdict,
        problem,
    )  # fmt: skip


def _together_result(good: Sequence[_Tried], found: BootSeries) -> TrialResult:
    saving, low, high, cpu, verdict, problem = _measured(TOGETHER, found)
    known = [t.predicted_s for t in good if t.predicted_s is not None]
    predicted = sum(known) if len(known) == len(good) else None
    names = ", ".join(t.recipe.id for t in good)
    return TrialResult(TOGETHER, "", names, predicted, "the sum", saving, low, high, cpu, verdict, problem)


def _interaction(results: Sequence[TrialResult]) -> float | None:
    last = results[-1] if results else None
    if last is None or last.id != TOGETHER or last.saving_s is None:
        return None
    return last.saving_s - sum(r.saving_s or 0.0 for r in results[:-1] if r.verdict is Verdict.BETTER)
