# SPDX-License-Identifier: Apache-2.0
"""Repair in the pipeline: what a trial that cannot be built means for the search."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from vmtailor.analysis.explain import explain
from vmtailor.base.errors import BuildError
from vmtailor.model.change import Change
from vmtailor.model.trial import Purpose, Trial
from vmtailor.model.verdict import Verdict
from vmtailor.pipeline import fitting, repairing
from vmtailor.stages.verify import Verification


def test_symbols_that_cannot_be_had_together_are_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, ...]] = []
    findings: Any = SimpleNamespace(
        tree=SimpleNamespace(facts=None, kconfig=SimpleNamespace(known=lambda name: True)),
        inputs=SimpleNamespace(options=SimpleNamespace(budget=12), root=None),
        trials=[Trial(1, Purpose.FIRST, (), False, ("no answer",), 1.0, 1.0)],
    )
    failing: Any = SimpleNamespace(
        verification=Verification(("no answer",)), plan=SimpleNamespace(left_out=(), fragment=(), prompted_y=9)
    )
    monkeypatch.setattr(explain, "nearest", lambda *_: ["CLASHES", "NEEDED"])

    def planned(_: Any, changes: Sequence[Change], drop: Sequence[str]) -> Any:
        names = tuple(change.id for change in changes)
        tried.append(names)
        if "CLASHES" in names and "NEEDED" not in names:
            raise BuildError("the configuration cannot have CLASHES")
        return SimpleNamespace(names=names, prompted_y=9 + len(names))

    monkeypatch.setattr(repairing, "addable", lambda _, fragment, names: tuple(names))
    monkeypatch.setattr(fitting, "planned", planned)
    monkeypatch.setattr(fitting, "built", lambda *_: None)
    monkeypatch.setattr(fitting, "machine_of", lambda *_: None)
    passes = Verification(())
    monkeypatch.setattr(
        fitting, "verified", lambda _, made, machine: passes if "NEEDED" in made.names else failing.verification
    )
    found: Any = repairing.repaired(findings, failing)
    assert found.verification.passed
    assert found.plan.names == ("NEEDED",)
    assert tried == [("CLASHES",), ("CLASHES", "NEEDED"), ("NEEDED",)]
    first, *_, last = findings.trials[1:]
    assert not first.passed and first.failures == ("the configuration cannot have CLASHES",)
    assert first.changes[0].problem == "the configuration cannot have CLASHES"
    assert last.passed and [(c.id, c.value) for c in last.changes] == [("CLASHES", "n")]  # taken back again
    put_back = findings.trials[2]
    assert [(c.id, c.value, c.verdict) for c in put_back.changes] == [("NEEDED", "y", Verdict.BETTER)]
    assert put_back.changes[0].reasons[0].reference == "repair:trial:3"
    assert [trial.number for trial in findings.trials] == [1, 2, 3, 4]
