# SPDX-License-Identifier: Apache-2.0
"""`fit`: the whole way through, from image to proven bundle and report."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmtailor import __version__
from vmtailor.analysis.cost.sides import KernelFacts
from vmtailor.analysis.demands import file_uses, strace_log
from vmtailor.analysis.statistics.stats import EXACT_SHARE
from vmtailor.base import records, temporary
from vmtailor.base.store import digest
from vmtailor.drivers.kernel import kbuild
from vmtailor.model.architecture import named
from vmtailor.model.exercise import Exercise, StepKind
from vmtailor.model.fit import FitRun, Side, Warning
from vmtailor.pipeline import bundling, fitting, keys, measuring, reducing
from vmtailor.pipeline.fitting import Findings, Fitted
from vmtailor.pipeline.ground import Ground, prepare
from vmtailor.pipeline.options import Effort, FitOptions


class _Times:
    """How long each stage took, in seconds."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, stage: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.monotonic() - started


def run_fit(options: FitOptions) -> FitRun:
    """Make the machine that fits an image. What was finished before, by any run, is taken from the cache."""
    bundling.require_writable(options.out)
    times = _Times()
    with times.of("prepare"):
        ground = prepare(options)
    key = fit_key(ground)
    if not options.store.has("fit", key):
        with temporary.held_folder(ground.scratch) as made:
            if not _make(ground, times, made).verified:  # not kept: the next try may go further
                return bundling.place(made, options.out, options.command)
            options.store.get("fit", key, lambda folder: _copy(made, folder))
    return bundling.place(options.store.path("fit", key), options.out, options.command)


def _copy(made: Path, folder: Path) -> None:
    shutil.copytree(made, folder, dirs_exist_ok=True)


def fit_key(ground: Ground) -> str:
    """Everything that a finished fit depends on, this program's own code included."""
    options = ground.options
    return digest(
        keys.code(),
        fitting.trace_key(ground),
        ground.image.digest,
        records.to_bytes(ground.image),
        ground.source.digest,
        kbuild.Toolchain.of(named(ground.options.architecture)).describe(),
        repr(
            (
                *(options.machine, options.cpus, options.keep, options.drop, options.terminal),
                *(options.boots, options.budget, options.effort),
            )
        ),
    )


def _make(ground: Ground, times: _Times, folder: Path) -> FitRun:
    options = ground.options
    with times.of("trace"):
        findings = fitting.find(ground)
    with times.of("plan, build, verify"):
        fitted = fitting.fit_kernel(findings)
        if options.effort is Effort.THOROUGH and fitted.verification.passed:
            fitted = reducing.reduce(findings, fitted)
    with times.of("measure"):
        if fitted.verification.passed:
            baseline, tailored = measuring.both_sides(findings, fitted)
        else:
            baseline = unmeasured("baseline", measuring.baseline_facts(findings))
            tailored = unmeasured("tailored", measuring.tailored_facts(fitted))
    run = record(findings, fitted, baseline, tailored, times.seconds)
    bundling.fill(folder, run, findings, fitted)
    return run


def unmeasured(name: str, kernel: KernelFacts) -> Side:
    """A side without figures: nothing is measured of a machine that does not work."""
    return Side(
        name=name,
        kernel=kernel.label,
        kernel_file=kernel.file,
        symbols_y=kernel.symbols_y,
        symbols_prompted=kernel.symbols_prompted,
        kernel_bytes=kernel.bytes,
        kernel_compressed_bytes=kernel.compressed_bytes,
        boots=0,
    )


def record(findings: Findings, fitted: Fitted, baseline: Side, tailored: Side, seconds: dict[str, float]) -> FitRun:
    """Everything that was found, as one record."""
    ground = findings.ground
    untouched = file_uses.untouched(
        findings.archive.files,
        findings.archive.resolve,
        findings.trace.files,
        [port.number for port in ground.image.config.exposed_ports if port.protocol == "tcp"],
        answered_ports(ground.exercise),
    )
    passed = fitted.verification.passed
    return FitRun(
        version=__version__,
        command=ground.options.command,
        bundle=str(ground.options.out.absolute()),
        reference=ground.image.reference,
        image_digest=ground.image.digest,
        image=ground.image.config,
        exercise=ground.exercise,
        plan=fitted.plan,
        baseline=baseline,
        tailored=tailored,
        others=(),
        verified=passed,
        degraded=fitted.verification.degraded,
        trials=tuple(findings.trials),
        ledger=measuring.ledger(baseline, tailored, fitted.plan) if passed else (),
        unexplained=fitted.plan.unexplained,
        untouched=untouched,
        calls=strace_log.summarise(findings.events),
        warnings=tuple(doubts(findings, fitted, baseline, tailored)),
        stage_seconds=tuple(seconds.items()),
        sources=(
            ("kernel source", f"{ground.kernel.version}, {', '.join(ground.kernel.origin)}, {ground.source.digest}"),
            ("image", f"{ground.image.reference} {ground.image.digest}"),
            ("compiler", fitted.kernel.compiler),
            ("vmtailor", __version__),
        ),
    )


def answered_ports(exercise: Exercise) -> set[int]:
    """Ports that a step of the exercise asked."""
    steps = [*([exercise.ready.step] if exercise.ready.step else []), *exercise.load]
    return {step.port for step in steps if step.port and step.kind is not StepKind.COMMAND}


def doubts(findings: Findings, fitted: Fitted, baseline: Side, tailored: Side) -> Iterator[Warning]:
    """What a reader should know before believing a figure, or trusting the machine."""
    for sentence in fitted.plan.given_up:
        yield Warning("given-up", sentence)
    for side in (baseline, tailored):
        for figure, spread in side.spread:
            if spread > EXACT_SHARE:
                yield Warning("spread", f"{side.name}: {figure} differs by {spread:.2%} between boots of one machine")
    if not findings.ground.exercise.load:
        yield Warning(
            "no-load",
            "the exercise gives the container no load: what only a request needs was not seen; write one (--exercise)",
        )
    if fitted.kernel.unplanned:
        names = ", ".join(fitted.kernel.unplanned[:10])
        yield Warning("unplanned", f"the kernel has symbols that the plan did not foresee: {names}")
