# SPDX-License-Identifier: Apache-2.0
"""`fit` for a system with an init of its own: from its disk, or its tree, to a proven bundle and report."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vmtailor import __version__
from vmtailor.analysis.cost.side_figures import unmeasured
from vmtailor.base.cache.store import digest
from vmtailor.base.files import records, temporary
from vmtailor.base.files.digests import sha256_of
from vmtailor.drivers.kernel import make
from vmtailor.model.bundle import RUN
from vmtailor.model.change import Change
from vmtailor.model.fit import FitRun, Part, Side, Untouched, Warning
from vmtailor.model.option import result_key
from vmtailor.model.systems.subject import InitKind
from vmtailor.model.systems.tuning import Tuning
from vmtailor.model.systems.units import UnitChoice, UnitsMode
from vmtailor.pipeline import bundling as bundles
from vmtailor.pipeline import keys, reducing, repairing
from vmtailor.pipeline.fit import Times, doubts, found_kernel
from vmtailor.pipeline.fitting import Built, Fitted
from vmtailor.pipeline.measuring import fit_sides, machines
from vmtailor.pipeline.measuring.machines import Ahead
from vmtailor.pipeline.options import Effort, FitOptions
from vmtailor.pipeline.systems import bundling, disk_files, fitting, inputs, subjects, trimming, tuning
from vmtailor.pipeline.systems import measuring as sides
from vmtailor.pipeline.systems.fitting import SystemFindings
from vmtailor.pipeline.systems.inputs import SystemInputs
from vmtailor.pipeline.systems.trimming import Ask


def run_system_fit(options: FitOptions, partition: int | None = None, ask: Ask | None = None) -> FitRun:
    """Make the machine that fits a system. What was finished before, by any run, is taken from the cache. The disk is
    read, and never written: the bundle has a copy."""
    bundles.require_writable(options.out)
    inputs.refuse_for_images(options)
    times = Times()
    with subjects.on_disk(options, partition=partition) as found:
        if found.disk is not None:
            bundles.require_room(options.out, found.disk.path)
        with times.of("prepare"):
            given = inputs.prepare(options, found)
        key = fit_key(given)
        # What depends on an answer is asked again; everything before and behind it is found.
        asked = options.units is UnitsMode.ASK
        if asked or not options.store.has("fit", key):
            with temporary.held_folder(given.scratch) as made:
                if not _make(given, times, made, ask).verified or asked:  # not kept: the next try may go further
                    return _placed(given, made)
                options.store.get("fit", key, lambda folder: _copy(made, folder))
        return _placed(given, options.store.path("fit", key))


def _placed(given: SystemInputs, made: Path) -> FitRun:
    """The bundle where it was asked for, with the disk as it was given, or with the files that the fit has kept."""
    options, (disk, *_) = given.options, given.baseline.disks
    run, sha256 = records.load(FitRun, made / RUN), given.identity
    if run.tuned is not None and (files := run.tuned.files):
        disk = disk_files.with_files(given, disk, files)
        sha256 = sha256_of(Path(disk.path))
    users = bundles.UsersDisk(bundling.disk_name(disk), Path(disk.path), sha256)
    return bundles.place(made, options.out, options.command, users)


def _copy(made: Path, folder: Path) -> None:
    shutil.copytree(made, folder, dirs_exist_ok=True)


def fit_key(given: SystemInputs) -> str:
    """Everything that a finished fit depends on, this program's own code included."""
    return digest(
        keys.code(),
        fitting.run_key(given, fitting.target_of(given, given.baseline)),
        given.identity,
        records.to_bytes(given.subject),
        given.source.digest,
        make.Toolchain.of(given.row).describe(),
        result_key(given.options),
    )


def _make(given: SystemInputs, times: Times, folder: Path, ask: Ask | None) -> FitRun:
    """The whole way: every file of a bundle but its disk and its page, in `folder`. The baseline is counted beside its
    trace and what follows, once its exercise has passed; later where something will be asked, since progress would be
    drawn over the question."""
    with machines.ahead() as begun:

        def passed() -> None:
            if given.options.units is not UnitsMode.ASK:
                begun.begin(sides.baseline_asked(given))

        with times.of("trace"):
            found = fitting.find(given, passed)
        return _finished(found, times, folder, ask, begun)


def _finished(found: SystemFindings, times: Times, folder: Path, ask: Ask | None, begun: Ahead) -> FitRun:
    """The rest of the way, from what is known after the trace. `begun`: machines that are being counted."""
    given, options = found.inputs, found.inputs.options
    others = options.effort is Effort.THOROUGH or options.units is not UnitsMode.KEEP or options.mask
    tried = bool(options.tries or options.files)

    def built(first: Built) -> None:
        if not (others or tried):  # else other machines come after it
            begun.begin(sides.tailored_asked(given, first))

    def failed() -> None:
        begun.keep_only(sides.baseline_asked(given).key)

    with times.of("plan, build, verify"):
        fitted = repairing.fit_kernel(found, built, failed)
        if options.effort is Effort.THOROUGH and fitted.verification.passed:
            fitted = reducing.reduce(found, fitted)
    choice = None
    if fitted.verification.passed and given.subject.init.kind is InitKind.SYSTEMD:
        with times.of("units"):
            fitted, choice = trimming.chosen(found, fitted, ask)
    tuned = None
    if fitted.verification.passed and tried:
        with times.of("changes beside the kernel"):
            fitted, tuned = tuning.chosen(found, fitted)
        choice = trimming.with_tuned(choice, tuned.kept) if choice is not None else None
    ledger: tuple[Change, ...] = ()
    remainder: tuple[Part, ...] = ()
    with times.of("measure"):
        if fitted.verification.passed:
            measured = sides.both_sides(found, fitted, begun)
            baseline, tailored = measured.baseline, measured.tailored
            if found.costs is not None:
                ledger, remainder = fit_sides.ledger(found.costs, fitted, measured)
        else:
            baseline = unmeasured("baseline", sides.baseline_facts(found))
            tailored = unmeasured("tailored", fit_sides.tailored_facts(fitted))
    run = record(found, fitted, baseline, tailored, times.seconds, choice, tuned)
    run = replace(run, ledger=ledger, remainder=remainder)
    bundling.fill(folder, run, found, fitted)
    return run


def traced_alone(found: SystemFindings) -> Iterator[Warning]:
    """What fails only while everything is seen: it may have been seen less of than there is."""
    for text in fitting.only_traced(found):
        yield Warning(
            "traced",
            f"only while every system call was seen: {text}; what it would have asked for may be missing",
        )


def unsteady(found: SystemFindings) -> Iterator[Warning]:
    """What failed once, and not again."""
    for text in found.unsteady:
        yield Warning(
            "unsteady", f"failed once on the fitted machine, and passed there when it was asked again: {text}"
        )


def record(
    found: SystemFindings,
    fitted: Fitted,
    baseline: Side,
    tailored: Side,
    seconds: dict[str, float],
    choice: UnitChoice | None,
    tuned: Tuning | None,
) -> FitRun:
    """Everything that was found, as one record."""
    given, exercise = found.inputs, found.inputs.exercise.inside()
    reference, identity = given.subject.reference, f"sha256:{given.identity}"
    return FitRun(
        version=__version__,
        command=given.options.command,
        bundle=str(given.options.out.absolute()),
        reference=reference,
        image_digest=identity,
        image=bundling.image_of(given),
        exercise=exercise,
        plan=fitted.plan,
        baseline=baseline,
        tailored=tailored,
        verified=fitted.verification.passed,
        degraded=fitted.verification.degraded,
        absent=fitted.verification.absent,
        trials=tuple(found.trials),
        ledger=(),
        unexplained=fitted.plan.unexplained,
        untouched=Untouched(0, 0, (), ()),
        calls=(),
        warnings=(
            *doubts(fitted, baseline, tailored, exercise),
            *traced_alone(found),
            *unsteady(found),
            *(trimming.warnings(choice) if choice else ()),
            *(tuning.warnings(tuned) if tuned else ()),
        ),
        stage_seconds=tuple(seconds.items()),
        sources=(
            ("kernel source", f"{given.kernel.version}, {', '.join(given.kernel.origin)}, {given.source.digest}"),
            ("disk", f"{reference} {identity}"),
            ("compiler", fitted.kernel.compiler),
            ("vmtailor", __version__),
        ),
        proof=exercise.proof,
        found_kernel=found_kernel(found, fitted, reference, identity),
        system=given.subject,
        units=choice,
        tuned=tuned,
    )
