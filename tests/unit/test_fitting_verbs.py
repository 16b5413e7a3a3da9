# SPDX-License-Identifier: Apache-2.0
"""`fit` and `refit` as verbs: what is asked, shown and answered. Nothing is fitted."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from tests.fakes.fit_run_data import fit_run

from vmtailor.base.errors import AnswerNo, UserInputError
from vmtailor.cli import fit as fit_verb
from vmtailor.cli import refit as refit_verb
from vmtailor.model.change import symbol
from vmtailor.model.systems.units import UnitsMode
from vmtailor.pipeline import second_fit
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.second_fit import RefitRequest, Replanned
from vmtailor.stages import report

GOOD = replace(fit_run(), verified=True)
BAD = replace(GOOD, verified=False)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    seen: list[Any] = []
    monkeypatch.setattr(report, "show", lambda run, *, json, verbose: seen.append((run, json or verbose)))
    return seen


# ---- fit


def test_fit_shows_its_result_and_answers_no_where_it_does_not_work(
    shown: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    results, asked = [GOOD, BAD], []

    def run_fit(options: FitOptions, ask: Any) -> Any:
        asked.append(options)
        return results.pop(0)

    monkeypatch.setattr(fit_verb, "run_fit", run_fit)
    options = FitOptions("oci:x", Path("made"))
    fit_verb.fit(options, json=True)
    with pytest.raises(AnswerNo, match="the container does not work in the tailored machine") as error:
        fit_verb.fit(options)
    assert (error.value.hint or "").startswith("made/report.html has every trial")
    assert shown == [(GOOD, True), (BAD, False)] and asked == [options, options]


def test_units_are_asked_for_at_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for here, there in ((True, False), (False, True)):
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda here=here: here))
        monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda there=there: there))
        with pytest.raises(UserInputError, match="needs a terminal to ask at"):
            fit_verb.fit(FitOptions("disk:x", units=UnitsMode.ASK))


def test_units_that_nobody_wants_are_named_before_the_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, bool]] = []

    def confirm(text: str, err: bool) -> bool:
        asked.append((text, err))
        return True

    monkeypatch.setattr(typer, "confirm", confirm)
    units: Any = (SimpleNamespace(name="a.service", start_s=0.25), SimpleNamespace(name="b.timer", start_s=None))
    assert fit_verb._may_be_masked(units) and not fit_verb._may_be_masked(())
    assert capsys.readouterr().err == "  a.service, started in 0.250 s\n  b.timer\n"
    assert asked == [("Try to mask 2 units that nothing in the exercise wants?", True)]


# ---- refit

BEFORE = replace(fit_run().plan, changes=(symbol("A", "y"),))
AFTER = replace(BEFORE, changes=(symbol("A", "y"), symbol("B", "y")))


@pytest.fixture
def refits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """`refit` of a bundle with the plan after; gives the requests, and how many fits were made."""
    monkeypatch.chdir(tmp_path)
    state = SimpleNamespace(after=AFTER, result=GOOD, requests=[], fitted=0)

    @contextlib.contextmanager
    def prepare(request: RefitRequest) -> Iterator[Replanned]:
        state.requests.append(request)
        yield Replanned(None, BEFORE, state.after, None, ("sh -c x",), ("curl", "nc"))  # type: ignore[arg-type]

    def refit(prepared: Replanned) -> Any:
        state.fitted += 1
        return state.result

    monkeypatch.setattr(second_fit, "prepare", prepare)
    monkeypatch.setattr(second_fit, "refit", refit)
    return state


def test_refit_shows_the_difference_then_the_result(
    refits: Any, shown: list[Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    refit_verb.refit(RefitRequest(Path("made")), FitOptions("x", keep=("B",)))
    out, err = capsys.readouterr()
    assert "B" in out and shown == [(GOOD, False)] and refits.fitted == 1
    assert err.splitlines()[0] == "will be run on this host: sh -c x"
    assert "without 2 programs that the bundle would run on this host: curl; nc" in err
    (request,) = refits.requests
    assert request.options.out == tmp_path / "made-refit" and request.options.keep == ("B",)
    refit_verb.refit(RefitRequest(Path("made"), out=tmp_path / "other"), FitOptions("x"), json=True)
    assert refits.requests[1].options.out == tmp_path / "other" and shown[1] == (GOOD, True)
    assert capsys.readouterr().out == ""  # the result is the one document


def test_refit_builds_nothing_where_it_is_dry_or_the_plan_is_the_same(
    refits: Any, shown: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    refit_verb.refit(RefitRequest(Path("made"), dry_run=True), FitOptions("x"), json=True)
    assert [row["symbol"] for row in json.loads(capsys.readouterr().out)["comes"]] == ["B"]
    refits.after = BEFORE
    refit_verb.refit(RefitRequest(Path("made")), FitOptions("x"), json=True)
    out, err = capsys.readouterr()
    assert json.loads(out)["comes"] == [] and "nothing is built" in err
    refit_verb.refit(RefitRequest(Path("made")), FitOptions("x"))
    assert "the plan is the same" in capsys.readouterr().out
    assert refits.fitted == 0 and shown == []


def test_refit_answers_no_where_the_new_machine_does_not_work(refits: Any, shown: list[Any], tmp_path: Path) -> None:
    refits.result = replace(BAD, reference="oci:x\x1b[31m")
    with pytest.raises(AnswerNo, match=r"^oci:x.* does not work in the tailored machine$") as error:
        refit_verb.refit(RefitRequest(Path("made")), FitOptions("x"))
    assert "\x1b" not in error.value.message and shown == [(refits.result, False)]
    assert (error.value.hint or "").startswith(f"{tmp_path / 'made-refit'}/report.html")


def test_refit_refuses_a_place_that_holds_something_else(refits: Any, tmp_path: Path) -> None:
    (tmp_path / "made-refit").mkdir()
    (tmp_path / "made-refit" / "letter").write_text("mine")
    with pytest.raises(UserInputError, match="made-refit exists and is not a bundle"):
        refit_verb.refit(RefitRequest(Path("made")), FitOptions("x"))
    assert refits.requests == []
    refit_verb.refit(RefitRequest(Path("made"), dry_run=True), FitOptions("x"))
