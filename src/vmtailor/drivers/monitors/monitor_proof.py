# SPDX-License-Identifier: Apache-2.0
"""The monitors on which the same exercise passed: a sentence, a row for each, and a part of the document of
`fit --json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vmtailor.base.text import plural
from vmtailor.drivers.monitors import monitors
from vmtailor.model.fit_run import FitRun
from vmtailor.model.machine import USUAL_MONITOR, Clock
from vmtailor.model.monitor_verdicts import MonitorPlace, MonitorVerdict, merged

_PLACES: Mapping[MonitorPlace, str] = {
    MonitorPlace.EMULATED: "(emulated)",
    MonitorPlace.KVM: "under KVM",
    MonitorPlace.LAB: "under KVM in the lab",
}
#: Digits of a program's digest that are shown.
_DIGITS = 12


@dataclass(frozen=True)
class VerdictRow:
    """One monitor as a row of texts."""

    monitor: str
    version: str
    clock: str
    result: str
    passed: bool


def verdicts_of(run: FitRun, later: Sequence[MonitorVerdict] = ()) -> tuple[MonitorVerdict, ...]:
    """Return the fit's own verdict, which is of QEMU, and the later ones; a later one of QEMU takes its place."""
    conditions = dict(run.tailored.conditions)
    failed = run.trials[-1].failures if run.trials else ()
    own = MonitorVerdict(
        monitor=USUAL_MONITOR, place=MonitorPlace.EMULATED, clock=Clock.INSTRUCTIONS, proof=run.proof,
        version=conditions.get(USUAL_MONITOR, ""), failures=() if run.verified else failed or ("not verified",),
    )  # fmt: skip
    return merged((own,), later)


def title(verdict: MonitorVerdict) -> str:
    """Return a monitor with its place: `libkrun under KVM in the lab`."""
    known = verdict.monitor in monitors.names()
    name = monitors.named(verdict.monitor).row.title if known else verdict.monitor
    return f"{name} {_PLACES[verdict.place]}"


def line(verdicts: Sequence[MonitorVerdict]) -> str:
    """Return the proof in a sentence without its full stop: on how many monitors the same exercise passed, and which
    they are; and on which it failed."""
    passed, failed = ([title(one) for one in verdicts if one.passed is wanted] for wanted in (True, False))
    parts = []
    if passed:
        parts.append(f"the same exercise passed on {plural(len(passed), 'monitor')}: {', '.join(passed)}")
    if failed:
        parts.append(f"{'it' if passed else 'the exercise'} failed on {', '.join(failed)}")
    return "; ".join(parts)


def rows(verdicts: Sequence[MonitorVerdict]) -> tuple[VerdictRow, ...]:
    """Return a row for each verdict."""
    return tuple(
        VerdictRow(
            monitor=title(one), version=_version(one), clock=one.clock.value, result=_result(one), passed=one.passed
        )
        for one in verdicts
    )


def _version(one: MonitorVerdict) -> str:
    version = f"your program {one.program_sha256[:_DIGITS]}" if one.program_sha256 else one.version
    return ", ".join(part for part in (version, f"Linux {one.lab_kernel}" if one.lab_kernel else "") if part)


def _result(one: MonitorVerdict) -> str:
    found = one.proof.headline if one.passed else "; ".join(one.failures)
    without = f"; without {plural(len(one.skipped), 'program')} of the host" if one.skipped else ""
    return f"{found}{without}"


def document(verdicts: Sequence[MonitorVerdict]) -> list[dict[str, Any]]:
    """Return the verdicts for programs."""
    return [
        {
            "monitor": one.monitor,
            "place": one.place.value,
            "passed": one.passed,
            "proof": one.proof.value,
            "clock": one.clock.value,
            "version": one.version,
            "program_sha256": one.program_sha256,
            "lab_kernel": one.lab_kernel,
            "failures": list(one.failures),
            "skipped": list(one.skipped),
        }
        for one in verdicts
    ]
