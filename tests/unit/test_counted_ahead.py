# SPDX-License-Identifier: Apache-2.0
"""Machines counted before their figures are asked for: each once, yielding to others, and ended when given up."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vmtailor.base import concurrency
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import GuestError
from vmtailor.base.process import spawn
from vmtailor.model.trial import Purpose, Trial, Verification
from vmtailor.pipeline import kernel_repair, kernel_trials, measured_machines
from vmtailor.pipeline.measured_machines import MeasureRequest
from vmtailor.pipeline.subject import Fitted
from vmtailor.stages.measure import Usual


class Counting:
    """In place of the boots of a machine: a program that runs until it is ended, or a result at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.nice: list[int] = []
        self.ended: list[str] = []
        self.endless: set[str] = set()
        self.running = threading.Event()
        monkeypatch.setattr(measured_machines, "counted", self)

    def __call__(self, asked: MeasureRequest, *_: object) -> Any:
        self.asked.append(asked.key)
        self.nice.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        if asked.key == "broken":
            raise GuestError("it does not boot")
        if asked.key in self.endless:
            try:
                with spawn(["sleep", "300"]) as process:
                    self.running.set()
                    process.wait()
                    raise AssertionError("nobody ended it")
            finally:
                self.ended.append(asked.key)
        return SimpleNamespace(of=asked.key, usual=None)


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(monkeypatch)


def asked(key: str) -> MeasureRequest:
    return MeasureRequest(
        key, key, 3, Store(Path("/nowhere")), Path("/nowhere"), lambda _: pytest.fail("not asked for")
    )


def test_one_is_counted_once_and_yields(counting: Counting) -> None:
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    with measured_machines.ahead() as begun:
        begun.begin(asked("a"))
        begun.begin(asked("a"))
        found: list[Any] = [begun.counted(asked("a")), begun.counted(asked("a")), begun.counted(asked("b"))]
    assert [one.of for one in found] == ["a", "a", "b"] and counting.asked == ["a", "b"]
    assert counting.nice == [min(19, own + 5)] * 2  # 19 is the most that there is
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == own


def test_what_went_wrong_is_raised_where_it_is_asked_for(counting: Counting) -> None:
    with measured_machines.ahead() as begun:
        begun.begin(asked("broken"))  # nobody may want it
        with pytest.raises(GuestError, match="does not boot"):
            begun.counted(asked("broken"))


def test_all_but_one_are_given_up(counting: Counting) -> None:
    counting.endless = {"wrong"}
    with measured_machines.ahead() as begun:
        begun.begin(asked("wrong"))
        begun.begin(asked("right"))
        assert counting.running.wait(30)
        begun.keep_only("right")
        assert counting.ended == ["wrong"]
        found: Any = begun.counted(asked("right"))
        assert found.of == "right"
    assert counting.asked.count("right") == 1


def test_who_has_not_ended_when_the_block_is_left_is_given_up(counting: Counting) -> None:
    counting.endless = {"a"}
    with pytest.raises(KeyboardInterrupt), measured_machines.ahead() as begun:
        begun.begin(asked("a"))
        assert counting.running.wait(30)
        raise KeyboardInterrupt
    assert counting.ended == ["a"]


def test_work_that_begins_one_and_ends_does_not_end_it(counting: Counting) -> None:
    """The trace begins the baseline's in a thread that is over long before its boots are."""
    counting.endless = {"a"}
    with measured_machines.ahead() as begun:
        with concurrency.beside(lambda: begun.begin(asked("a"))) as work:
            work.wait()
            assert counting.running.wait(30)
        assert counting.ended == []
    assert counting.ended == ["a"]


@pytest.mark.parametrize("first", ["counted", "found", "fails"])
def test_one_set_beside_another_is_told_what_that_takes(first: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Usual(1.0, 9.0)
    told: list[object] = []
    second_begun = threading.Event()

    def counted(one: MeasureRequest, beside: Callable[[], Usual | None], on_usual: Callable[[Usual], None]) -> Any:
        if one.key == "b":
            second_begun.set()
            told.append(beside())
        elif first == "fails":
            raise GuestError("it does not boot")
        elif first == "counted":
            assert second_begun.wait(30)  # both run at the same time
            on_usual(usual)
        return SimpleNamespace(exact=(), initcalls=(), min_memory_bytes=9, memory=None, usual=usual)

    monkeypatch.setattr(measured_machines, "counted", counted)
    monkeypatch.setattr(measured_machines, "timed", lambda one: SimpleNamespace(wall=()))
    second = replace(asked("b"), beside=asked("a"))
    if first == "fails":
        with pytest.raises(GuestError):
            measured_machines.both(asked("a"), second)
    else:
        measured_machines.both(asked("a"), second)
    assert told == [None if first == "fails" else usual]


def test_one_set_beside_another_that_has_been_counted_is_told_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []

    def counted(one: MeasureRequest, beside: Callable[[], Usual | None], on_usual: Callable[[Usual], None]) -> Any:
        told.append(beside())
        on_usual(Usual(1.0, 9.0))
        return SimpleNamespace(usual=Usual(1.0, 9.0, 56 << 20))

    monkeypatch.setattr(measured_machines, "counted", counted)
    with measured_machines.ahead() as begun:
        begun.counted(asked("a"))
        begun.counted(replace(asked("b"), beside=asked("a")))
    assert told == [None, Usual(1.0, 9.0, 56 << 20)]


@pytest.mark.parametrize("passes", [True, False])
def test_the_first_machine_is_told_before_it_is_verified(passes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    findings: Any = SimpleNamespace(trials=list[Trial](), machine_of=lambda *_: "the machine")
    findings.planned = lambda *_: SimpleNamespace(prompted_y=9)

    def verified(*_: object) -> Verification:
        told.append("verified")
        return Verification(() if passes else ("no answer",))

    findings.verified = verified
    monkeypatch.setattr(kernel_trials, "built", lambda *_: None)

    def repaired(_: object, failing: Fitted) -> Fitted:
        told.append("repaired")
        return failing

    monkeypatch.setattr(kernel_repair, "repaired", repaired)
    found = kernel_repair.fit_kernel(
        findings, lambda first: told.append(f"built {first.machine}"), lambda: told.append("failed")
    )
    assert found.verification.passed is passes and [trial.purpose for trial in findings.trials] == [Purpose.FIRST]
    assert told == ["built the machine", "verified", *([] if passes else ["failed", "repaired"])]
