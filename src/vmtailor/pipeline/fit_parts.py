# SPDX-License-Identifier: Apache-2.0
"""One fit in parts, each of which may run in a process of its own, on a host of its own. A part finds what the parts
before it made in the cache, and returns the keys by which those after it will be known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.model.fit_part import FitPart
from vmtailor.model.fit_run import FitRun
from vmtailor.model.systems.units import UnitsMode
from vmtailor.pipeline import bundle_files, fit, fit_sides, kernel_trials, measured_machines, subject_kind
from vmtailor.pipeline.options import Effort, FitOptions
from vmtailor.pipeline.subject import Findings, Fitted
from vmtailor.stages import build


@dataclass(frozen=True)
class PartDone:
    """The end of a part. `keys`: part → its key, of parts that come later. `spare`: parts that need not be done. `run`:
    the record of the whole fit, after `seal`; `fit_key`: by which the cache has it, where it was only kept there."""

    keys: Mapping[FitPart, str] = field(default_factory=dict)
    spare: tuple[FitPart, ...] = ()
    run: FitRun | None = None
    fit_key: str = ""


def do(part: FitPart, options: FitOptions, *, place: bool = True) -> PartDone:
    """Do a part of the fit with these options. Raises what the fit would raise there. `place`: write the bundle at the
    end, and do not only keep it in the cache."""
    if options.units is UnitsMode.ASK:
        raise UserInputError("--units ask needs a terminal to ask at", hint="--units trim tries all of them")
    if part is FitPart.SEAL and not place:
        key, run = fit.keep_fit(options)
        return PartDone(run=run, fit_key=key)
    return _PARTS[part](options)


def _prepared(options: FitOptions) -> PartDone:
    with subject_kind.prepare(options) as subject:
        whole = fit.fit_key(subject)
        keys: dict[FitPart, str] = dict.fromkeys(
            (FitPart.BASELINE, FitPart.PLAN, FitPart.VERIFY, FitPart.MEASURE), whole
        )
        if subject.store.has("fit", whole):
            plan = bundle_files.run_in(subject.store.path("fit", whole)).plan
            keys[FitPart.KERNEL] = build.kernel_key(plan, subject.source.digest, build.toolchain_of(plan))
            return PartDone(keys, tuple(part for part in FitPart if part not in (FitPart.PREPARE, FitPart.SEAL)))
        return PartDone({**keys, FitPart.TRACE: subject.trace_key()})


def _traced(options: FitOptions) -> PartDone:
    with _found(options):
        return PartDone()


def _baseline(options: FitOptions) -> PartDone:
    with subject_kind.prepare(options) as subject, measured_machines.ahead() as begun:
        found = subject.trace(begun)
        measured_machines.measured(fit_sides.baseline_asked(found.subject), begun)
    return PartDone()


def _planned(options: FitOptions) -> PartDone:
    with _found(options) as found:
        key = kernel_trials.kernel_key(found, found.planned())
        is_there = found.subject.store.has(build.KIND, key)
        return PartDone({FitPart.KERNEL: key}, (FitPart.KERNEL,) if is_there else ())


def _compiled(options: FitOptions) -> PartDone:
    with _found(options) as found:
        kernel_trials.built(found, found.planned())
    return PartDone()


def _verified(options: FitOptions) -> PartDone:
    with _found(options) as found:
        fitted = _fitted(found)
    # The search for what is missing, and what comes after it, is one piece of work.
    goes_on = fitted.verification.passed and options.effort is Effort.NORMAL and not options.tries
    return PartDone(spare=() if goes_on else (FitPart.MEASURE,))


def _measured(options: FitOptions) -> PartDone:
    with _found(options) as found:
        fitted = _fitted(found)
        if fitted.verification.passed:
            fit_sides.both_sides(found, fitted)
    return PartDone()


def _sealed(options: FitOptions) -> PartDone:
    return PartDone(run=fit.run_fit(options))


_PARTS: dict[FitPart, Callable[[FitOptions], PartDone]] = {
    FitPart.PREPARE: _prepared,
    FitPart.TRACE: _traced,
    FitPart.BASELINE: _baseline,
    FitPart.PLAN: _planned,
    FitPart.KERNEL: _compiled,
    FitPart.VERIFY: _verified,
    FitPart.MEASURE: _measured,
    FitPart.SEAL: _sealed,
}


@contextmanager
def _found(options: FitOptions) -> Iterator[Findings[Any]]:
    with subject_kind.prepare(options) as subject:
        yield subject.trace()


def _fitted(found: Findings[Any]) -> Fitted:
    """Return the machine of the first plan, which repair may replace, with its verification."""
    plan = found.planned()
    kernel = kernel_trials.built(found, plan)
    machine = found.machine_of(plan, kernel)
    return Fitted(plan, kernel, machine, found.verified(plan, machine))
