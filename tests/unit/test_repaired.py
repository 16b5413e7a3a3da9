# SPDX-License-Identifier: Apache-2.0
"""Repair in the pipeline: what a trial that cannot be built means for the search."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from vmtailor.analysis.explain import nearest
from vmtailor.analysis.explain.nearest import Nearest
from vmtailor.base.errors import BuildError
from vmtailor.model.change import Change, Verdict
from vmtailor.model.syscalls import FailedCall
from vmtailor.model.trial import Purpose, Trial, Verification
from vmtailor.pipeline import kernel_repair, kernel_trials


def test_symbols_that_cannot_be_had_together_are_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, ...]] = []
    findings: Any = SimpleNamespace(
        tree=SimpleNamespace(architecture="x86_64", facts=None, kconfig=SimpleNamespace(known=lambda name: True)),
        options=SimpleNamespace(budget=12),
        machine_of=lambda *_: None,
        trials=[Trial(1, Purpose.FIRST, (), False, ("no answer",), 1.0, 1.0)],
    )
    failing: Any = SimpleNamespace(
        verification=Verification(("no answer",)), plan=SimpleNamespace(left_out=(), fragment=(), prompted_y=9)
    )
    monkeypatch.setattr(nearest, "nearest", lambda *_: Nearest(("CLASHES", "NEEDED")))

    def planned(changes: Sequence[Change], drop: Sequence[str]) -> Any:
        names = tuple(change.id for change in changes)
        tried.append(names)
        if "CLASHES" in names and "NEEDED" not in names:
            raise BuildError("the configuration cannot have CLASHES")
        return SimpleNamespace(names=names, prompted_y=9 + len(names))

    monkeypatch.setattr(kernel_repair, "addable", lambda _, fragment, names: tuple(names))
    monkeypatch.setattr(kernel_trials, "built", lambda *_: None)
    findings.planned = planned
    findings.verified = lambda made, machine: Verification(()) if "NEEDED" in made.names else failing.verification
    found: Any = kernel_repair.repaired(findings, failing)
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


def call(name: str, error: str = "ENOSYS") -> FailedCall:
    return FailedCall(name, "", error)


def test_where_one_failure_is_mended_the_next_is_looked_at(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that gets further fails elsewhere: what helped stays, and the order is made again. Each failing call is
    told before the kernel that is tried for it."""
    asked_about: list[str] = []

    def nearest_to(failed: Sequence[FailedCall], *_: Any) -> Nearest:
        asked_about.extend(one.name for one in failed)
        return Nearest((failed[0].name.upper(), "OTHER"), 1)

    def verified(made: Any, machine: Any) -> Verification:
        missing = next((name for name in ("FIRST", "SECOND") if name not in made.names), None)
        if missing is None:
            return Verification(())
        return Verification((f"{missing.lower()}() newly fails with ENOSYS",), (call(missing.lower()),))

    findings: Any = SimpleNamespace(
        tree=SimpleNamespace(architecture="x86_64", facts=None, kconfig=SimpleNamespace(known=lambda name: True)),
        options=SimpleNamespace(budget=12),
        machine_of=lambda *_: None,
        trials=[Trial(1, Purpose.FIRST, (), False, ("no answer",), 1.0, 1.0)],
    )

    def planned(changes: Sequence[Change], drop: Sequence[str]) -> Any:
        return SimpleNamespace(names=tuple(c.id for c in changes), left_out=(), fragment=(), prompted_y=9)

    monkeypatch.setattr(nearest, "nearest", nearest_to)
    monkeypatch.setattr(kernel_repair, "addable", lambda _, fragment, names: tuple(names))
    monkeypatch.setattr(kernel_trials, "built", lambda *_: None)
    findings.planned, findings.verified = planned, verified
    first: Any = SimpleNamespace(
        verification=verified(SimpleNamespace(names=()), None),
        plan=SimpleNamespace(left_out=(), fragment=(), prompted_y=9, names=()),
    )
    found: Any = kernel_repair.repaired(findings, first)
    assert found.plan.names == ("FIRST", "SECOND")
    assert asked_about == ["first", "second"]
    assert len(findings.trials) == 3, "one kernel for each failure"
    told = [line for line in capsys.readouterr().err.splitlines() if "fails" in line]
    assert told == ["  it fails: first() newly fails with ENOSYS", "  it fails: second() newly fails with ENOSYS"]


def test_what_did_not_mend_the_failure_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial fails with the call that it was made for and with another one: it helped nothing, so the search goes on
    from the first failure, without what that trial put back."""
    asked_about: list[tuple[str, ...]] = []

    def nearest_to(failed: Sequence[FailedCall], *_: Any) -> Nearest:
        asked_about.append(tuple(one.name for one in failed))
        return Nearest(("OTHER", "NEEDED"), 1)

    def verified(made: Any, machine: Any) -> Verification:
        calls = [call("first"), call("other")] if "OTHER" in made.names else [call("first")]
        calls = [] if "NEEDED" in made.names else calls
        return Verification(tuple(one.name for one in calls), tuple(calls))

    findings: Any = SimpleNamespace(
        tree=SimpleNamespace(architecture="x86_64", facts=None, kconfig=SimpleNamespace(known=lambda name: True)),
        options=SimpleNamespace(budget=12),
        machine_of=lambda *_: None,
        trials=[Trial(1, Purpose.FIRST, (), False, ("no answer",), 1.0, 1.0)],
        planned=lambda changes, drop: SimpleNamespace(
            names=tuple(change.id for change in changes), left_out=(), fragment=(), prompted_y=9
        ),
        verified=verified,
    )
    monkeypatch.setattr(nearest, "nearest", nearest_to)
    monkeypatch.setattr(kernel_repair, "addable", lambda _, fragment, names: tuple(names))
    monkeypatch.setattr(kernel_trials, "built", lambda *_: None)
    first: Any = SimpleNamespace(
        verification=Verification(("first",), (call("first"),)),
        plan=SimpleNamespace(left_out=(), fragment=(), prompted_y=9, names=()),
    )
    found: Any = kernel_repair.repaired(findings, first)
    assert found.plan.names == ("NEEDED",) and found.verification.passed
    assert asked_about == [("first",)]
