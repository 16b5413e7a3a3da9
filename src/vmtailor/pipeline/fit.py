# SPDX-License-Identifier: Apache-2.0
"""`fit`: the whole way through, from image to proven bundle and report."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from vmtailor import __version__
from vmtailor.analysis.cost.side_figures import unmeasured
from vmtailor.analysis.demands import file_uses, strace_log
from vmtailor.analysis.reach import reach_symbols
from vmtailor.analysis.statistics.significance import EXACT_SHARE
from vmtailor.base.cache.store import digest
from vmtailor.base.files import records, temporary
from vmtailor.drivers.kernel import kernel_uses, make
from vmtailor.model.architecture import named
from vmtailor.model.boots.boot import Boot
from vmtailor.model.exercise import Exercise, StepKind
from vmtailor.model.fit import FitRun, Side, Warning
from vmtailor.model.kernel import FoundKernel, KernelUse, KernelUses
from vmtailor.model.option import result_key
from vmtailor.pipeline import bundling, fitting, keys, reducing, repairing
from vmtailor.pipeline.fitting import Built, Findings, Fitted, Fitting
from vmtailor.pipeline.inputs import FitInputs, prepare
from vmtailor.pipeline.margins import prices
from vmtailor.pipeline.measuring import fit_sides, machines
from vmtailor.pipeline.measuring.machines import Ahead
from vmtailor.pipeline.options import Effort, FitOptions


class Times:
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
    times = Times()
    with times.of("prepare"):
        inputs = prepare(options)
    key = fit_key(inputs)
    if not options.store.has("fit", key):
        with temporary.held_folder(inputs.scratch) as made:
            if not _make(inputs, times, made).verified:  # not kept: the next try may go further
                return bundling.place(made, options.out, options.command)
            options.store.get("fit", key, lambda folder: _copy(made, folder))
    return bundling.place(options.store.path("fit", key), options.out, options.command)


def _copy(made: Path, folder: Path) -> None:
    shutil.copytree(made, folder, dirs_exist_ok=True)


def fit_key(inputs: FitInputs) -> str:
    """Everything that a finished fit depends on, this program's own code included."""
    return digest(
        keys.code(),
        fitting.trace_key(inputs),
        inputs.image.digest,
        records.to_bytes(inputs.image),
        inputs.source.digest,
        make.Toolchain.of(named(inputs.options.architecture)).describe(),
        result_key(inputs.options),
    )


def _make(inputs: FitInputs, times: Times, folder: Path) -> FitRun:
    with machines.ahead() as begun:
        with times.of("trace"):
            record, files = fitting.traced(inputs, lambda boot: begun.begin(fit_sides.baseline_asked(inputs, boot)))
            inputs = fitting.as_traced(inputs, record)
            known = record.coverage_boot if record.machine == inputs.baseline else None
            begin_baseline(inputs, begun, known)
            findings = fitting.known(inputs, record, files)
        return finished(findings, times, folder, begun)


def begin_baseline(inputs: FitInputs, begun: Ahead, known: Boot | None = None) -> None:
    """Have the baseline counted; another one, with which the trace began, is given up."""
    asked = fit_sides.baseline_asked(inputs, known)
    begun.keep_only(asked.key)
    begun.begin(asked)


def finished(findings: Findings, times: Times, folder: Path, begun: Ahead) -> FitRun:
    """The rest of the way, from what is known after the trace: every file of a bundle but its page, in `folder`.
    `begun`: machines that are being counted, the baseline among them."""
    inputs, options = findings.inputs, findings.inputs.options

    def built(first: Built) -> None:
        if options.effort is not Effort.THOROUGH:  # else others come after it
            begun.begin(fit_sides.tailored_asked(inputs, first))

    def failed() -> None:
        begun.keep_only(fit_sides.baseline_asked(inputs).key)

    with times.of("plan, build, verify"):
        fitted = repairing.fit_kernel(findings, built, failed)
        if options.effort is Effort.THOROUGH and fitted.verification.passed:
            fitted = reducing.reduce(findings, fitted)
    with times.of("measure"):
        if fitted.verification.passed:
            sides = fit_sides.both_sides(findings, fitted, begun)
            baseline, tailored = sides.baseline, sides.tailored
            ledger, remainder = fit_sides.ledger(findings.costs, fitted, sides)
        else:
            ledger, remainder = (), ()
            baseline = unmeasured("baseline", fit_sides.baseline_facts(findings))
            tailored = unmeasured("tailored", fit_sides.tailored_facts(fitted))
    with times.of("price"):
        rows = prices.prices(findings, fitted, tailored, all_of_them=options.price_margins)
    run = record(findings, fitted, baseline, tailored, times.seconds)
    run = replace(run, ledger=ledger, remainder=remainder, prices=rows)
    bundling.fill(folder, run, findings, fitted)
    return run


def record(findings: Findings, fitted: Fitted, baseline: Side, tailored: Side, seconds: dict[str, float]) -> FitRun:
    """Everything that was found, as one record."""
    inputs = findings.inputs
    untouched = file_uses.untouched(
        findings.archive.files,
        findings.archive.resolve,
        findings.trace.files,
        [port.number for port in inputs.image.config.exposed_ports if port.protocol == "tcp"],
        answered_ports(inputs.exercise),
    )
    passed = fitted.verification.passed
    return FitRun(
        version=__version__,
        command=inputs.options.command,
        bundle=str(inputs.options.out.absolute()),
        reference=inputs.image.reference,
        image_digest=inputs.image.digest,
        image=inputs.image.config,
        exercise=inputs.exercise,
        plan=fitted.plan,
        baseline=baseline,
        tailored=tailored,
        verified=passed,
        degraded=fitted.verification.degraded,
        absent=fitted.verification.absent,
        trials=tuple(findings.trials),
        ledger=(),
        unexplained=fitted.plan.unexplained,
        untouched=untouched,
        calls=strace_log.summarise(findings.events),
        warnings=tuple(doubts(fitted, baseline, tailored, inputs.exercise)),
        stage_seconds=tuple(seconds.items()),
        sources=(
            ("kernel source", f"{inputs.kernel.version}, {', '.join(inputs.kernel.origin)}, {inputs.source.digest}"),
            ("image", f"{inputs.image.reference} {inputs.image.digest}"),
            ("compiler", fitted.kernel.compiler),
            ("vmtailor", __version__),
        ),
        proof=inputs.exercise.proof,
        lacks=reach_symbols.lacks(findings.reached, prices.enabled(fitted.plan).keys(), findings.ran),
        found_kernel=found_kernel(findings, fitted, inputs.image.reference, inputs.image.digest),
    )


def found_kernel(findings: Fitting, fitted: Fitted, reference: str, identity: str) -> FoundKernel:
    """Where the kernel came from. One that works is noted to serve this subject. `identity`: digest of its content."""
    options, plan = findings.options, fitted.plan
    key = fitting.kernel_key(findings, plan)
    uses = kernel_uses.uses_of(options.store, key)
    if fitted.verification.passed:
        kernel = KernelUses(
            plan.kernel_version, plan.architecture, plan.prompted_y, plan.total_y, fitted.kernel.image_bytes
        )
        uses = kernel_uses.note(options.store, key, kernel, KernelUse(reference, identity, plan.margins))
    images = uses.images if uses is not None else ()
    first = images[0].reference if images and images[0].digest != identity else ""
    more = uses.more if uses is not None else 0
    return FoundKernel(key not in findings.compiled, first, len(images) + more, key[:12])


def answered_ports(exercise: Exercise) -> set[int]:
    """Ports that a step of the exercise asked."""
    steps = [*([exercise.ready.step] if exercise.ready.step else []), *exercise.load]
    return {step.port for step in steps if step.port and step.kind is not StepKind.COMMAND}


def doubts(fitted: Fitted, baseline: Side, tailored: Side, exercise: Exercise) -> Iterator[Warning]:
    """What a reader should know before believing a figure, or trusting the machine."""
    for sentence in fitted.plan.given_up:
        yield Warning("given-up", sentence)
    for side in (baseline, tailored):
        for figure, spread in side.spread:
            if spread > EXACT_SHARE:
                yield Warning("spread", f"{side.name}: {figure} differs by {spread:.2%} between boots of one machine")
    if not exercise.load:
        yield Warning(
            "no-load",
            "the exercise gives no load: what only a request needs was not seen; write one (--exercise)",
        )
    if fitted.kernel.unplanned:
        names = ", ".join(fitted.kernel.unplanned[:10])
        yield Warning("unplanned", f"the kernel has symbols that the plan did not foresee: {names}")
