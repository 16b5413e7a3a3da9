# SPDX-License-Identifier: Apache-2.0
"""Repair in the pipeline: what a trial that cannot be built means for the search."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from vmtailor.analysis.explain import explain
from vmtailor.base.errors import BuildError
from vmtailor.model.fit import Trial
from vmtailor.pipeline import fitting
from vmtailor.stages.verify import Verification


def test_symbols_that_cannot_be_had_together_are_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, ...]] = []
    findings: Any = SimpleNamespace(
        tree=SimpleNamespace(facts=None, kconfig=SimpleNamespace(known=lambda name: True)),
        ground=SimpleNamespace(options=SimpleNamespace(budget=12)),
        trials=[Trial(1, "first build", (), (), False, ("no answer",), 1.0, 1.0)],
    )
    failing: Any = SimpleNamespace(
        verification=Verification(("no answer",)),
        plan=SimpleNamespace(left_out=(), fragment=()),
        kernel=None,
        machine=None,
    )

    def attempt(_: Any, made: tuple[str, ...], purpose: str, added: Sequence[str], removed: Sequence[str]) -> Any:
        tried.append(made)
        findings.trials.append(Trial(len(findings.trials) + 1, purpose, (), (), "NEEDED" in made, (), 1.0, 1.0))
        return SimpleNamespace(plan=made, verification=Verification(() if "NEEDED" in made else ("no answer",)))

    monkeypatch.setattr(explain, "nearest", lambda *_: ["CLASHES", "NEEDED"])

    def planned(_: Any, repairs: Sequence[Any]) -> tuple[str, ...]:
        names = tuple(repair.symbol for repair in repairs)
        if "CLASHES" in names and "NEEDED" not in names:
            raise BuildError("the configuration cannot have CLASHES")
        return names

    monkeypatch.setattr(fitting, "addable", lambda _, fragment, names: tuple(names))
    monkeypatch.setattr(fitting, "planned", planned)
    monkeypatch.setattr(fitting, "attempt", attempt)
    found: Any = fitting.repaired(findings, failing)
    assert found.verification.passed
    assert found.plan == ("NEEDED",)
    assert tried == [("CLASHES", "NEEDED"), ("NEEDED",)]
    assert findings.trials[1].failures == ("the configuration cannot have CLASHES",)
    assert not findings.trials[1].passed
