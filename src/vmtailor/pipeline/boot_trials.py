# SPDX-License-Identifier: Apache-2.0
"""`boot --try`: try changes on a machine with an init of its own, or on a bundle. Each change has an expectation
first."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vmtailor.analysis.changes import effects, trial_hardware
from vmtailor.analysis.changes.change_catalogue import Candidate
from vmtailor.analysis.changes.effects import Predict
from vmtailor.analysis.cost import load_latency
from vmtailor.analysis.cost.attribution import by_table, rows_of
from vmtailor.analysis.guests.machine_variants import countable
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records, regular_files
from vmtailor.base.natives import Natives
from vmtailor.base.progress import step
from vmtailor.booting import series_run
from vmtailor.booting.booter import Booter, OnProgress
from vmtailor.booting.booter import boot as plain_boot
from vmtailor.booting.bundle_booter import kernel_of
from vmtailor.booting.instruction_boots import CountedToInit, Settled
from vmtailor.booting.series_run import OnBoot
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.boot_cost import BootCost
from vmtailor.model.boots.counters import CountingMode
from vmtailor.model.boots.series import BootSeries, JudgedBy
from vmtailor.model.boots.timeline import Timeline
from vmtailor.model.boots.workload import OwnInit, Workload
from vmtailor.model.change import Change, Effect, Figure
from vmtailor.model.machine import Clock, Machine
from vmtailor.pipeline import bundle_boots, bundle_kernel, profiled_kernel
from vmtailor.pipeline.bundle_boots import Booted
from vmtailor.pipeline.change_means import Means, applied, for_bundle
from vmtailor.pipeline.machine_testbed import JUDGED, MachineTestbed, tried
from vmtailor.stages.boot import boot_attribution, profile
from vmtailor.stages.boot.boot_attribution import Known, attributed


@dataclass(frozen=True)
class Shown:
    """The timeline that savings are expected from, and how much of its seconds count."""

    timeline: Timeline
    share: float


def on_machine(
    subject: str, machine: Machine, workload: Workload, wanted: Sequence[Candidate], out: Path, *, times: int,
    natives: Natives, judged_by: JudgedBy = JudgedBy.READY, known: Known | None = None, store: Store | None = None,
    on_boot: OnBoot | None = None,
) -> BootSeries:  # fmt: skip
    """Try changes on a machine with an init of its own. A first boot that shows more of itself gives the expectations.
    To judge by instructions, the kernel must be `known`."""
    regular_files.make_folder(out)
    booter: Booter = plain_boot
    if judged_by is JudgedBy.INSTRUCTIONS:
        if known is None or store is None:
            raise UserInputError("instructions can be counted only in a kernel whose symbols are known")
        machine = countable(machine)
        booter = CountedToInit(known.system_map, natives, CountingMode.COVERAGE)
        cost = attributed(machine, known, out, natives=natives, store=store, timeout_s=2 * workload.timeout_s)
        predict = by_cost(cost, judged_by)
    else:
        if machine.clock is Clock.INSTRUCTIONS:
            booter = Settled(natives)
        seen = _with_hardware(machine, wanted)
        predict = by_seconds(shown(seen, workload, out, natives, judged_by, booter, on_boot), judged_by)
    means = Means(out, natives.small_init, services=True)
    testbed = MachineTestbed(
        subject=subject,
        base=machine,
        workload=workload,
        out=out,
        booter=booter,
        make=partial(applied, means=means),
        times=times,
        judged_by=judged_by,
        on_boot=on_boot,
        hardware={one.change.id: one.hardware for one in wanted if one.hardware},
    )
    return tried(testbed, expected(wanted, predict))


def on_bundle(
    subject: Booted, wanted: Sequence[Candidate], out: Path, *, times: int, judged_by: Sequence[JudgedBy],
    on_boot: OnBoot,
) -> BootSeries:  # fmt: skip
    """Try changes on a bundle, the exercise judging every boot. `judged_by`: the figure that decides, or two. Nothing
    is expected of the load beforehand.

    On the instruction clock savings are expected from what each part of the kernel costs; by file and symbol where its
    debug information was compiled before (`attribute`), else by name of function and initcall. On the wall clock they
    are read from a boot that logs its initcalls."""
    first, also = judged_by[0], judged_by[1] if len(judged_by) > 1 else None
    if first is JudgedBy.CPU:
        raise UserInputError("a bundle's trials are judged by ready, by instructions, or by the load's")
    of_load = first.of_load or (also is not None and also.of_load)
    exercise = subject.workload.run.exercise
    if of_load and (exercise is None or not exercise.load):
        raise UserInputError(
            f"the exercise of {subject.loaded.path} has no load", hint="--exercise FILE, of one that asks for something"
        )
    load_latency.require_enough(tuple(judged_by), exercise)
    if first is JudgedBy.INSTRUCTIONS or of_load:
        subject = subject.on(Clock.INSTRUCTIONS)
    regular_files.make_folder(out)
    if first.of_load:
        predict: Predict = _nothing
    elif subject.machine.clock is Clock.INSTRUCTIONS:
        predict = by_cost(_cost(subject, out), first)
    else:
        predict = _by_log(subject, out, first)
    means = bundle_means(subject, out)
    testbed = MachineTestbed(
        subject=str(subject.loaded.path),
        base=subject.machine,
        workload=subject.workload,
        out=out,
        booter=subject.booter,
        make=partial(make_on_bundle, means=means),
        times=times,
        judged_by=first,
        also=also,
        on_boot=on_boot,
        hardware={one.change.id: one.hardware for one in wanted if one.hardware},
    )
    return tried(testbed, expected(wanted, predict))


def _with_hardware(machine: Machine, wanted: Sequence[Candidate]) -> Machine:
    """Return the machine that shows what savings to expect: with all hardware that trials give to both sides, as far as
    its board can have it."""
    for name in dict.fromkeys(name for one in wanted for name in one.hardware):
        with contextlib.suppress(UserInputError):
            machine = trial_hardware.equipped(machine, (name,))
    return machine


def bundle_means(subject: Booted, out: Path) -> Means:
    """Return the means to change a bundle's machine."""
    load = profiled_kernel.counted_load(subject.booter, subject.machine, subject.workload, subject.natives, out)
    rebuild = bundle_kernel.Rebuilder(subject.loaded, subject.store, load)
    return Means(out, Path(), rebuild, subject.loaded.config, compiled=rebuild.compiled, tuned=subject.loaded.is_tuned)


def _nothing(one: Candidate) -> tuple[Effect, ...]:
    return ()


def make_on_bundle(changes: Sequence[Change], machine: Machine, means: Means) -> tuple[Machine, tuple[Change, ...]]:
    """Return a bundle's machine with changes made. Raises UserInputError for what it cannot have."""
    for_bundle(changes, machine)
    changed, made = applied(changes, machine, means)
    kernel_of(changed)
    return changed, made


def expected(wanted: Sequence[Candidate], predict: Predict) -> tuple[Change, ...]:
    """Return the changes, each with its expected effect."""
    return tuple(replace(one.change, expected=predict(one)) for one in wanted)


def by_cost(cost: BootCost, judged_by: JudgedBy) -> Predict:
    """Return savings expected from what a boot cost: instructions, or as many nanoseconds of virtual time."""

    def predict(one: Candidate) -> tuple[Effect, ...]:
        count, source = effects.expected_instructions(one, cost)
        if judged_by is JudgedBy.INSTRUCTIONS:
            return effects.expected_effects(Figure.INIT_INSTRUCTIONS, count, source)
        return effects.expected_effects(JUDGED[judged_by], None if count is None else count / 1e9, source)

    return predict


def by_seconds(seen: Shown | None, judged_by: JudgedBy) -> Predict:
    """Return savings expected from a timeline; none where there is none."""

    def predict(one: Candidate) -> tuple[Effect, ...]:
        if seen is None:
            return ()
        saving, source = effects.expected_seconds(one, seen.timeline)
        return effects.expected_effects(JUDGED[judged_by], None if saving is None else saving * seen.share, source)

    return predict


def shown(
    machine: Machine, workload: Workload, out: Path, natives: Natives, judged_by: JudgedBy, booter: Booter,
    on_boot: OnBoot | None = None, symbols: Path | None = None,
) -> Shown | None:  # fmt: skip
    """Boot once with initcalls logged, units stamped and processes sampled; return None when that is not possible.
    `symbols`: the kernel's System.map, for a kernel that logs its initcalls by address."""
    if machine.kernel is None:
        return None
    seeing = profile.with_words(profile.with_initcalls(machine), profile.UNITS)
    sampled = machine.initrd is not None and machine.hardware.second_port
    if sampled:
        seeing = profile.with_collector(seeing, natives.collector, out)

    def progress(seconds: float) -> None:
        if on_boot is not None:
            on_boot("profile", 1, seconds)

    # Logging costs time: what is near its limit without would miss it.
    patient: Workload = replace(workload, timeout_s=2 * workload.timeout_s)
    if isinstance(patient, OwnInit):
        patient = replace(patient, collector=sampled)
    seen = _profiled(seeing, patient, out, booter, progress, symbols)
    if seen is None:
        return None
    boot, timeline = seen
    records.save(timeline, out / "profile" / "timeline.json")
    # The guest's clock ran on while the host gave QEMU no time: in processor time, that share is not there.
    ready = boot.at("ready")
    share = boot.cpu_s / ready if judged_by is JudgedBy.CPU and boot.cpu_s and ready else 1.0
    return Shown(timeline, share)


def _profiled(
    machine: Machine, workload: Workload, out: Path, booter: Booter, on_progress: OnProgress | None = None,
    symbols: Path | None = None,
) -> tuple[Boot, Timeline] | None:  # fmt: skip
    """Boot once, and keep what is seen; return the boot and its timeline, None when it did not get ready."""
    boot, gathered = booter(machine, workload, out, on_progress=on_progress)
    series_run.keep(gathered, out / "profile", machine, "profile")
    if boot.outcome not in (Outcome.READY, Outcome.WRONG):
        return None
    return boot, profile.timeline_of(out / "profile", symbols)


def _cost(subject: Booted, out: Path) -> BootCost:
    counters = bundle_boots.counted(subject, out)
    known = bundle_kernel.known(subject.loaded, subject.store, only_cached=True)
    if known is not None:
        return boot_attribution.cost_of(counters, known, subject.store)
    table = subject.booter.table(str(subject.loaded.kernel))
    found = by_table(counters, table)
    return rows_of(subject.loaded.bundle.kernel_version, counters, found)


def _by_log(subject: Booted, out: Path, judged_by: JudgedBy) -> Predict:
    patient = replace(subject.workload, timeout_s=2 * subject.workload.timeout_s)
    machine = profile.with_initcalls(subject.machine)
    with step("one boot that logs its initcalls"):
        seen = _profiled(machine, patient, out, subject.booter)
    return by_seconds(Shown(seen[1], 1.0) if seen is not None else None, judged_by)
