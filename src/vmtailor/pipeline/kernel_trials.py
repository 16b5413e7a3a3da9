# SPDX-License-Identifier: Apache-2.0
"""Kernels of plans, compiled or found in the cache, and the testbed that tries changes of a fit's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vmtailor.analysis.changes.effects import NOTHING, Samples, TrialRun
from vmtailor.base import output
from vmtailor.base.errors import BuildError
from vmtailor.drivers.kernel import kernel_uses
from vmtailor.model.change import Change, Figure
from vmtailor.model.kernel import FoundKernel, KernelFiles, KernelUse, KernelUses
from vmtailor.model.plan import Plan
from vmtailor.pipeline.subject import Built, Findings, Fitted
from vmtailor.pipeline.trials import Ran, Trials, Tried
from vmtailor.stages import build


def built(findings: Findings[Any], made: Plan) -> KernelFiles:
    """Return the kernel of a plan: compiled, or found in the cache, which is printed once."""
    store, key, source = findings.options.store, kernel_key(findings, made), findings.source
    if key not in findings.compiled and not store.bring(build.KIND, key):
        findings.compiled.add(key)
    elif key not in findings.compiled and key not in findings.found:
        findings.found.add(key)
        uses = kernel_uses.uses_of(store, key)
        made_for = f", made for {uses.images[0].reference}" if uses is not None and uses.images else ""
        output.note(f"✓ kernel found in the cache{made_for}")
    sources = findings.tree.facts.compiled({c.id: c.value for c in made.symbols if c.is_kept})
    return build.build_kernel(made, source.path, source.digest, store, sources=sources)


def kernel_key(findings: Findings[Any], made: Plan) -> str:
    """Return the name of a plan's kernel in the cache."""
    return build.kernel_key(made, findings.source.digest, build.toolchain_of(made))


def found_kernel(findings: Findings[Any], fitted: Fitted) -> FoundKernel:
    """Return the origin of the kernel, and record in the cache that a working one serves this subject."""
    subject, plan = findings.subject, fitted.plan
    key = kernel_key(findings, plan)
    uses = kernel_uses.uses_of(subject.store, key)
    if fitted.verification.passed:
        kernel = KernelUses(
            version=plan.kernel_version,
            architecture=plan.architecture,
            symbols_prompted=plan.prompted_y,
            symbols_y=plan.total_y,
            kernel_bytes=fitted.kernel.image_bytes,
        )
        uses = kernel_uses.note(
            subject.store, key, kernel, KernelUse(subject.reference, subject.identity, plan.margins)
        )
    images = uses.images if uses is not None else ()
    first = images[0].reference if images and images[0].digest != subject.identity else ""
    more = uses.more if uses is not None else 0
    return FoundKernel(key not in findings.compiled, first, len(images) + more, key[:12])


@dataclass(eq=False)
class FitTestbed:
    """The testbed of one fit: plans, compiles and verifies changes of the configuration. `before`: the
    result of the plan without them. `drop`: symbols left out of all plans. `on_built`: called with each machine before
    it is verified."""

    findings: Findings[Any]
    before: TrialRun = NOTHING
    drop: tuple[str, ...] = ()
    on_built: Callable[[Built], None] = lambda built: None
    _last: tuple[tuple[Change, ...], Plan] | None = None

    def apply(self, changes: Sequence[Change]) -> tuple[Built, tuple[Change, ...]]:
        """Return the plan with the changes, and its kernel. Raises BuildError when that is impossible."""
        made = self.plan(changes)
        kernel = built(self.findings, made)
        return Built(made, kernel, self.findings.machine_of(made, kernel)), tuple(changes)

    def plan(self, changes: Sequence[Change]) -> Plan:
        """Return the plan alone, made once for the same changes. Raises BuildError for an impossible configuration."""
        if self._last is None or self._last[0] != tuple(changes):
            self._last = tuple(changes), self.findings.planned(changes, self.drop)
        return self._last[1]

    def run(self, made: Mapping[str, Built]) -> tuple[TrialRun, Mapping[str, Ran[Fitted]]]:
        """Run the exercise on each machine."""
        return self.before, {name: self._ran(one) for name, one in made.items()}

    def _ran(self, made: Built) -> Ran[Fitted]:
        self.on_built(made)
        verification = self.findings.verified(made.plan, made.machine)
        fitted = Fitted(made.plan, made.kernel, made.machine, verification)
        return Ran(run_of(fitted), fitted)


def run_of(fitted: Fitted) -> TrialRun:
    """Return a verification as a run that changes are judged by: whether it works, and its number of symbols."""
    symbols = Samples(Figure.SYMBOLS, (float(fitted.plan.prompted_y),), exact=True)
    return TrialRun(fitted.verification.failures, (symbols,))


def trials(
    findings: Findings[Any],
    before: Fitted | None = None,
    drop: tuple[str, ...] = (),
    on_built: Callable[[Built], None] = lambda built: None,
) -> Trials[Built, Fitted]:
    """Return the engine of trials on this fit; every trial is recorded with the fit."""
    testbed = FitTestbed(findings, run_of(before) if before is not None else NOTHING, drop, on_built)
    return Trials(testbed, findings.trials)


def required(tried: Tried[Fitted]) -> Fitted:
    """Return the result of a trial. Raises BuildError when there is none."""
    if tried.result is None:
        raise BuildError(
            "; ".join(tried.trial.failures), hint="vmtailor explain says what keeps a symbol, and what needs it"
        )
    return tried.result
