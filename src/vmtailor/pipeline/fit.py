# SPDX-License-Identifier: Apache-2.0
"""`fit`: all stages, from an image or a system with an init of its own to a proven bundle and its report."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vmtailor import __version__
from vmtailor.analysis.cost.side_figures import unmeasured
from vmtailor.analysis.statistics.significance import EXACT_SHARE
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import temporary
from vmtailor.drivers.kernel import make
from vmtailor.model.change import Change
from vmtailor.model.exercise import Exercise, Proof
from vmtailor.model.fit_run import FitRun, Part, Side, Untouched, Warning
from vmtailor.model.option import result_key
from vmtailor.model.systems.units import UnitsMode
from vmtailor.pipeline import (
    bundle_files,
    fit_sides,
    kernel_repair,
    kernel_trials,
    keys,
    measured_machines,
    reduction,
    subject_kind,
)
from vmtailor.pipeline.measured_machines import Ahead
from vmtailor.pipeline.options import Effort, FitOptions
from vmtailor.pipeline.subject import AskUnits, Built, Findings, Fitted, Improved, Subject, Times


def run_fit(options: FitOptions, ask: AskUnits | None = None) -> FitRun:
    """Make the machine that fits an image or a system. Results of any earlier run are taken from the cache. A disk is
    never written: the bundle has a copy."""
    bundle_files.require_writable(options.out)
    times = Times()
    with subject_kind.prepare(options) as subject:
        times.until_now("prepare")
        if subject.copied is not None:
            bundle_files.require_room(options.out, subject.copied)
        key, store = fit_key(subject), subject.store
        # Only what depends on an answer is asked again; everything before and after it is found.
        asks = options.units is UnitsMode.ASK
        if asks or not store.bring("fit", key):
            with temporary.held_folder(subject.scratch) as made:
                run = _make(subject, times, made, ask)
                if asks or not run.verified:  # not kept: the next try may go further
                    return bundle_files.place(made, options.out, options.command, subject.users_disk(run))
                store.get("fit", key, lambda folder: _copy(made, folder))
        made = store.path("fit", key)
        return bundle_files.place(made, options.out, options.command, subject.users_disk(bundle_files.run_in(made)))


def keep_fit(options: FitOptions) -> tuple[str, FitRun]:
    """Make the machine that fits an image, and leave it in the cache alone. Returns its key and its record; one that
    does not work is not kept. `place_kept` writes its bundle, on this host or on another with the same remote cache.

    Raises UserInputError for what has a disk of the user's in its bundle."""
    times = Times()
    with subject_kind.prepare(options) as subject:
        times.until_now("prepare")
        if subject.copied is not None:
            raise UserInputError(
                f"the bundle of {subject.reference} has a copy of its disk, which is on one host alone",
                hint="fit it on that host: --on local:N",
            )
        key, store = fit_key(subject), subject.store
        if store.has("fit", key):
            return key, bundle_files.run_in(store.path("fit", key))
        with temporary.held_folder(subject.scratch) as made:
            run = _make(subject, times, made, None)
            if run.verified:
                store.get("fit", key, lambda folder: _copy(made, folder))
            return key, run


def place_kept(key: str, store: Store, out: Path, command: str) -> FitRun:
    """Write the bundle of a fit that was kept. Raises HostError where neither cache has it."""
    bundle_files.require_writable(out)

    def fill(_: Path) -> None:
        raise HostError(
            "the finished fit is in no cache that this host reaches", hint="--remote-cache names the one of the workers"
        )

    return bundle_files.place(store.get("fit", key, fill), out, command)


def _copy(made: Path, folder: Path) -> None:
    shutil.copytree(made, folder, dirs_exist_ok=True)


def fit_key(subject: Subject[Any]) -> str:
    """Return the cache key of a finished fit: everything that it depends on, this program's own code included."""
    return digest(
        keys.code(),
        subject.trace_key(),
        subject.identity,
        subject.description,
        subject.source.digest,
        make.Toolchain.of(subject.architecture).describe(),
        result_key(subject.options),
    )


def _make(subject: Subject[Any], times: Times, folder: Path, ask: AskUnits | None) -> FitRun:
    with measured_machines.ahead() as begun:
        with times.of("trace"):
            found = subject.trace(begun)
        return finished(found, times, folder, begun, ask)


def finished(found: Findings[Any], times: Times, folder: Path, begun: Ahead, ask: AskUnits | None = None) -> FitRun:
    """Do all stages after the trace, and write the files of a bundle into `folder`, except its page and a copy of the
    user's disk. `begun`: machines that are being counted, the baseline among them."""
    subject, options = found.subject, found.options
    thorough = options.effort is Effort.THOROUGH
    others = thorough or options.units is not UnitsMode.KEEP or options.mask or options.tries or options.files

    def built(first: Built) -> None:
        if not others:  # else other machines come after it
            begun.begin(fit_sides.tailored_asked(subject, first))

    def failed() -> None:
        begun.keep_only(fit_sides.baseline_asked(subject).key)

    with times.of("plan, build, verify"):
        fitted = kernel_repair.fit_kernel(found, built, failed)
        if thorough and fitted.verification.passed:
            fitted = reduction.reduce(found, fitted)
    improved = Improved(fitted)
    if fitted.verification.passed:
        improved = subject.improve(found, fitted, times, ask)
        fitted = improved.fitted
    ledger: tuple[Change, ...] = ()
    remainder: tuple[Part, ...] = ()
    with times.of("measure"):
        if fitted.verification.passed:
            sides = fit_sides.both_sides(found, fitted, begun)
            baseline, tailored = sides.baseline, sides.tailored
            if found.costs is not None:
                ledger, remainder = fit_sides.ledger(found.costs, fitted, sides)
        else:
            baseline = unmeasured("baseline", fit_sides.baseline_facts(found))
            tailored = unmeasured("tailored", fit_sides.tailored_facts(fitted))
    prices = subject.price(found, fitted, tailored, times)
    verification, plan, exercise = fitted.verification, fitted.plan, subject.inside
    run = FitRun(
        version=__version__,
        command="",  # what a cached fit is asked for next is not known: bundle_files.place says it
        bundle=options.out.name,
        reference=subject.reference,
        image_digest=subject.identity,
        image=None,
        exercise=exercise,
        plan=plan,
        baseline=baseline,
        tailored=tailored,
        verified=verification.passed,
        degraded=verification.degraded,
        absent=verification.absent,
        trials=tuple(found.trials),
        ledger=ledger,
        remainder=remainder,
        prices=prices,
        unexplained=plan.unexplained,
        untouched=Untouched(0, 0, (), ()),
        calls=(),
        warnings=(*doubts(fitted, baseline, tailored, exercise), *subject.doubts(found), *improved.warnings),
        stage_seconds=tuple(times.seconds.items()),
        sources=(
            ("kernel source", f"{subject.kernel.version}, {', '.join(subject.kernel.origin)}, {subject.source.digest}"),
            (subject.NOUN, f"{subject.reference} {subject.identity}"),
            ("compiler", fitted.kernel.compiler),
            ("vmtailor", __version__),
        ),
        proof=exercise.proof,
        found_kernel=kernel_trials.found_kernel(found, fitted),
        units=improved.units,
        tuned=improved.tuned,
    )
    run = subject.told(run, found, fitted)
    subject.seal(folder, run, found, fitted)
    return run


def doubts(fitted: Fitted, baseline: Side, tailored: Side, exercise: Exercise) -> Iterator[Warning]:
    """Yield the warnings that a reader needs before relying on a figure or the machine."""
    for sentence in fitted.plan.given_up:
        yield Warning("given-up", sentence)
    for side in (baseline, tailored):
        for figure, spread in side.spread:
            if spread > EXACT_SHARE:
                yield Warning("spread", f"{side.name}: {figure} differs by {spread:.2%} between boots of one machine")
    if not exercise.load and (exercise.derived or exercise.proof is not Proof.ENDED):
        yield Warning(
            "no-load",
            "nothing was asked once it was ready, so what only a request needs was not seen; write an exercise with a "
            "load (--exercise FILE)",
        )
    if varying := fitted.verification.varying:
        lines = "; ".join(varying)
        yield Warning("output-varies", f"the output differs from run to run by itself, and is not compared in: {lines}")
    if fitted.kernel.unplanned:
        names = ", ".join(fitted.kernel.unplanned[:10])
        yield Warning("unplanned", f"the kernel has symbols that the plan did not foresee: {names}")
