# SPDX-License-Identifier: Apache-2.0
"""Thorough effort: what goes, what stays, and what is never asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from vmtailor.base.errors import BuildError
from vmtailor.model.fit import Trial
from vmtailor.model.plan import Cause, Choice, Reason
from vmtailor.pipeline import fitting, reducing
from vmtailor.stages.plan import Repair

CAUSES = {
    "ASKED": Cause.DEMANDED,
    "SPARE": Cause.DEMANDED,
    "ABOVE": Cause.DEMANDED,
    "BELOW": Cause.DEMANDED,  # ABOVE depends on it
    "GUARDED": Cause.DEMANDED,  # GUARD, which is policy, depends on it
    "CHOSEN": Cause.DEMANDED,  # something selects it
    "PUT_BACK": Cause.REPAIR,
    "TERMINAL": Cause.PLATFORM,
    "GUARD": Cause.POLICY,
}


def plan(gone: Iterable[str] = ()) -> Any:
    left = dict.fromkeys(CAUSES, "y") | {name: "n" for name in gone if name != "CHOSEN"}
    if left["GUARDED"] == "n":
        left["GUARD"] = "n"
    choices = [Choice(n, v, True, (Reason(CAUSES[n], "trace:1", "why"),)) for n, v in left.items()]
    return SimpleNamespace(choices=tuple(choices), gone=set(gone))


class Bench:
    """Plans as Kconfig would make them, and machines that work while all of `needed` is in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, needed: set[str]) -> None:
        self.findings: Any = SimpleNamespace(trials=[])
        self.tried: list[set[str]] = []
        self._needed = needed
        monkeypatch.setattr(fitting, "planned", self._planned)
        monkeypatch.setattr(fitting, "attempt", self._attempt)

    def _planned(self, _: Any, repairs: Sequence[Repair], *, unneeded: Sequence[Repair]) -> Any:
        names = {one.symbol for one in unneeded}
        if "BELOW" in names and "ABOVE" not in names:
            raise BuildError("the configuration cannot have ABOVE")
        return plan(names)

    def _attempt(self, _: Any, made: Any, purpose: str, added: Sequence[str], removed: Sequence[str]) -> Any:
        self.tried.append(made.gone)
        failures = tuple(sorted(self._needed & made.gone))
        self.findings.trials.append(
            Trial(len(self.findings.trials) + 1, purpose, (), tuple(removed), not failures, failures, 1.0, 1.0)
        )
        return SimpleNamespace(plan=made, verification=SimpleNamespace(passed=not failures))

    def reduced(self) -> set[str]:
        fitted: Any = SimpleNamespace(plan=plan(), verification=None)
        return reducing.reduce(self.findings, fitted).plan.gone  # type: ignore[no-any-return, attr-defined]


def test_what_the_exercise_needs_stays_and_the_rest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, {"ASKED", "PUT_BACK"})
    assert bench.reduced() == {"SPARE", "ABOVE", "BELOW"}
    assert all({"TERMINAL", "GUARD", "GUARDED", "CHOSEN"}.isdisjoint(tried) for tried in bench.tried)
    assert {name for trial in bench.findings.trials if trial.passed for name in trial.removed} == {
        "SPARE", "ABOVE", "BELOW",
    }  # fmt: skip


def test_nothing_can_go(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, set(CAUSES))
    assert bench.reduced() == set()
    assert {name for tried in bench.tried if len(tried) == 1 for name in tried} == {
        "ASKED", "SPARE", "ABOVE", "PUT_BACK",
    }  # fmt: skip


def test_a_kernel_that_cannot_be_built_without_it_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, set())
    build: Callable[..., Any] = fitting.attempt

    def attempt(findings: Any, made: Any, *more: Any) -> Any:
        if "SPARE" in made.gone:
            raise BuildError("undefined reference")
        return build(findings, made, *more)

    monkeypatch.setattr(fitting, "attempt", attempt)
    assert bench.reduced() == {"ASKED", "ABOVE", "BELOW", "PUT_BACK"}
    failed = [trial for trial in bench.findings.trials if not trial.passed]
    assert failed and all(trial.failures == ("undefined reference",) for trial in failed)
    assert [trial.number for trial in bench.findings.trials] == list(range(1, len(bench.findings.trials) + 1))
