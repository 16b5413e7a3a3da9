# SPDX-License-Identifier: Apache-2.0
"""Variables that a container gets in every boot of this process, beside those of its image: by the run volume, which
is gone with the boot. What a boot leaves has no value of a secret one."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from vmtailor.base.hidden_values import HiddenValues
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.guest import Answer, GuestNote, GuestReport, StepResult

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class GivenEnvironment:
    """`plain`: names and values that anybody may read. `secret`: those that nobody may; they win over plain ones."""

    plain: Pairs = ()
    secret: Pairs = field(default=(), repr=False)

    @property
    def variables(self) -> Pairs:
        """Return all names and values."""
        return tuple(dict((*self.plain, *self.secret)).items())

    @property
    def key(self) -> tuple[str, ...]:
        """Return what results depend on, for their keys: names, and no value of a secret."""
        named = (*(f"env {name}={value}" for name, value in self.plain), *(f"secret {name}" for name, _ in self.secret))
        return tuple(sorted(named))

    @property
    def hidden(self) -> HiddenValues:
        return HiddenValues(self.secret)

    def without(self, gathered: Gathered) -> Gathered:
        """Return what a boot left, without values of secret variables."""
        hidden = self.hidden
        if not hidden:
            return gathered
        end = gathered.end
        return replace(
            gathered,
            end=replace(end, console_tail=hidden.text(end.console_tail), stderr=hidden.text(end.stderr)),
            report=_report(gathered.report, hidden),
            console=hidden.data(gathered.console),
            requests=hidden.calls(gathered.requests),
        )


_given = GivenEnvironment()


def begin(given: GivenEnvironment) -> None:
    """Give every container that this process boots these variables."""
    global _given  # noqa: PLW0603
    _given = given


def given() -> GivenEnvironment:
    """Return what containers get."""
    return _given


def _report(report: GuestReport, hidden: HiddenValues) -> GuestReport:
    out = hidden.text(report.stdout)
    printed = out != report.stdout and not report.truncated
    return replace(
        report,
        notes=tuple(_note(one, hidden) for one in report.notes),
        fatal=_note(report.fatal, hidden) if report.fatal is not None else None,
        exit_reason=hidden.text(report.exit_reason),
        results=tuple(_result(one, hidden) for one in report.results),
        stdout=out,
        stderr=hidden.text(report.stderr),
        files=tuple((name, hidden.text(text) if name == "kernel-log" else text) for name, text in report.files),
        console=hidden.text(report.console),
        # Of a short secret, a digest would tell as much as the secret.
        stdout_sha256=hashlib.sha256(out.encode()).hexdigest() if printed else report.stdout_sha256,
    )


def _note(one: GuestNote, hidden: HiddenValues) -> GuestNote:
    return replace(one, text=hidden.text(one.text))


def _result(one: StepResult, hidden: HiddenValues) -> StepResult:
    wrong = _answer(one.wrong, hidden) if one.wrong is not None else None
    return replace(one, first=_answer(one.first, hidden), wrong=wrong, why=hidden.text(one.why))


def _answer(one: Answer, hidden: HiddenValues) -> Answer:
    head = hidden.text(one.head)
    sha256 = hashlib.sha256(head.encode()).hexdigest() if head != one.head and one.sha256 else one.sha256
    return replace(one, head=head, error=hidden.text(one.error), sha256=sha256)
