# SPDX-License-Identifier: Apache-2.0
"""Thorough effort: what goes, what stays, and what is never asked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from vmtailor.base.errors import BuildError
from vmtailor.model.change import Cause, Change, Reason, Verdict, symbol
from vmtailor.model.trial import Verification
from vmtailor.pipeline import kernel_trials, reduction

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
    symbols = [symbol(n, v, Reason(CAUSES[n], "trace:1", "why")) for n, v in left.items()]
    return SimpleNamespace(symbols=tuple(symbols), gone=set(gone), prompted_y=len(CAUSES) - len(set(gone)))


class Bench:
    """Plans as Kconfig would make them, and machines that work while all of `needed` is in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, needed: set[str]) -> None:
        self.findings: Any = SimpleNamespace(
            trials=[], options=None, planned=self._planned, verified=self._verified, machine_of=lambda *_: None
        )
        self.tried: list[set[str]] = []
        self.unbuildable: set[str] = set()
        self._needed = needed
        monkeypatch.setattr(kernel_trials, "built", self._built)

    def _planned(self, changes: Sequence[Change], drop: Sequence[str]) -> Any:
        names = {change.id for change in changes if change.value == "n"}
        if "BELOW" in names and "ABOVE" not in names:
            raise BuildError("the configuration cannot have ABOVE")
        return plan(names)

    def _built(self, _: Any, made: Any) -> None:
        if made.gone & self.unbuildable:
            raise BuildError("undefined reference")
        self.tried.append(made.gone)

    def _verified(self, made: Any, machine: Any) -> Verification:
        return Verification(tuple(sorted(self._needed & made.gone)))

    def reduced(self) -> set[str]:
        fitted: Any = SimpleNamespace(plan=plan(), verification=Verification(()))
        made: Any = reduction.reduce(self.findings, fitted).plan
        return set(made.gone)


def test_what_the_exercise_needs_stays_and_the_rest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, {"ASKED", "PUT_BACK"})
    assert bench.reduced() == {"SPARE", "ABOVE", "BELOW"}
    assert all({"TERMINAL", "GUARD", "GUARDED", "CHOSEN"}.isdisjoint(tried) for tried in bench.tried)
    assert {
        change.id for trial in bench.findings.trials if trial.passed for change in trial.changes
    } == {
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
    bench.unbuildable = {"SPARE"}
    assert bench.reduced() == {"ASKED", "ABOVE", "BELOW", "PUT_BACK"}
    failed = [trial for trial in bench.findings.trials if not trial.passed]
    assert failed and all(trial.failures == ("undefined reference",) for trial in failed)
    assert [trial.number for trial in bench.findings.trials] == list(range(1, len(bench.findings.trials) + 1))
    assert all(change.verdict is Verdict.BETTER for trial in bench.findings.trials if trial.passed
               for change in trial.changes)  # fmt: skip
