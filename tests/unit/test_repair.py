# SPDX-License-Identifier: Apache-2.0
"""The search for what to put back: it finds what is needed, and asks for few trials."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.changes.repair import minimise, search


def drive(steps: Generator[tuple[str, ...], bool, Any], needed: set[str], trials: list[set[str]]) -> Any:
    """Answer a search as a build would: it passes when all that is needed is in."""
    answer: bool | None = None
    while True:
        try:
            tried = steps.send(answer)  # type: ignore[arg-type]
        except StopIteration as stop:
            return stop.value
        trials.append(set(tried))
        answer = needed <= set(tried)


@given(st.integers(1, 200), st.data())
def test_exactly_the_needed_symbols_are_found(count: int, data: st.DataObject) -> None:
    names = [f"S{i}" for i in range(count)]
    needed = set(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)))
    trials: list[set[str]] = []
    assert set(drive(search(names), needed, trials)) == needed
    assert len(trials) <= 3 * 14 + 3


def test_the_nearest_is_one_trial_away() -> None:
    trials: list[set[str]] = []
    assert drive(search(["EPOLL", "A", "B"]), {"EPOLL"}, trials) == ("EPOLL",)
    assert trials == [{"EPOLL"}]


def test_what_failing_calls_ask_for_by_name_is_one_trial() -> None:
    trials: list[set[str]] = []
    assert drive(search(["A", "B", "C", "D"], asked=2), {"A", "B"}, trials) == ("A", "B")
    assert trials == [{"A", "B"}]
    assert drive(search(["A", "B", "C", "D"], asked=2), {"B"}, trials) == ("A", "B")  # none is worth a kernel


@given(st.integers(1, 60), st.integers(0, 60), st.data())
def test_where_that_does_not_help_the_search_goes_on(count: int, asked: int, data: st.DataObject) -> None:
    names = [f"S{i}" for i in range(count)]
    needed = set(data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=3)))
    trials: list[set[str]] = []
    found = drive(search(names, asked), needed, trials)
    assert needed <= set(found)
    assert set(found) == needed or found == tuple(names[:asked])


def test_it_gives_up_when_nothing_helps() -> None:
    trials: list[set[str]] = []
    assert drive(search([f"S{i}" for i in range(20)]), {"elsewhere"}, trials) is None
    assert len(trials) == 4
    assert drive(search([]), {"x"}, trials) is None


@given(st.integers(1, 40), st.integers(1, 10), st.data())
def test_all_that_can_go_goes(count: int, group: int, data: st.DataObject) -> None:
    names = [f"S{i}" for i in range(count)]
    needed = set(data.draw(st.lists(st.sampled_from(names), max_size=5)))
    steps = minimise(names, group)
    answer: bool | None = None
    while True:
        try:
            tried = steps.send(answer)  # type: ignore[arg-type]
        except StopIteration as stop:
            assert set(stop.value) == set(names) - needed
            return
        answer = not needed & set(tried)


@pytest.mark.parametrize(("count", "asked"), [(8, 1), (9, 2), (25, 2), (32, 2), (33, 3), (34, 3)])
def test_a_small_rest_goes_with_the_group_before(count: int, asked: int) -> None:
    steps = minimise([f"S{i}" for i in range(count)], 8)
    trials = [len(next(steps))]
    with pytest.raises(StopIteration):
        while True:
            trials.append(len(steps.send(True)))
    assert trials[-1] == count
    assert len(trials) == asked


def test_where_all_candidates_were_asked_for_they_are_tried_once() -> None:
    trials: list[set[str]] = []
    assert drive(search(["A", "B", "C"], asked=3), {"elsewhere"}, trials) is None
    assert trials == [{"A", "B", "C"}]
