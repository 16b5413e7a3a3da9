# SPDX-License-Identifier: Apache-2.0
"""The order of trials: balanced, random, the same again for the same seed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.bench.analysis.benchmarks import BenchTest
from vmtailor.bench.analysis.schedule import is_way, orders, plan
from vmtailor.bench.model.results import SuiteName

NAMES = st.lists(st.sampled_from(["native", "docker", "podman", "lxc", "nspawn"]), min_size=1, max_size=5, unique=True)


@given(NAMES, st.integers(1, 12), st.text(max_size=5))
def test_each_runtime_is_once_in_each_block_and_pairs_mirror(names: list[str], repeat: int, seed: str) -> None:
    found = list(orders(names, repeat, seed))
    assert len(found) == repeat
    assert all(Counter(order) == Counter(names) for order in found)
    assert all(found[i + 1] == found[i][::-1] for i in range(0, repeat - 1, 2))


@given(NAMES, st.integers(1, 6))
def test_what_drifts_evenly_meets_all_alike(names: list[str], pairs: int) -> None:
    """With an even number of repetitions, the places of every runtime sum to the same."""
    places: Counter[str] = Counter()
    for block, order in enumerate(orders(names, 2 * pairs, "drift")):
        for place, name in enumerate(order):
            places[name] += block * len(names) + place
    assert len(set(places.values())) == 1


def test_orders_differ_between_pairs_and_seeds() -> None:
    names = [f"r{i}" for i in range(8)]
    found = list(orders(names, 40, "1"))
    assert len(set(found[::2])) > 10
    assert found != list(orders(names, 40, "2")) and found == list(orders(names, 40, "1"))


def test_a_plan_warms_up_each_runtime_of_each_test_and_names_every_trial_once() -> None:
    tests = [BenchTest(SuiteName.STARTUP, "report", 1, v) for v in ("warm", "cold")]
    found = plan(tests, ["native", "docker"], 4, 7)
    assert len(found) == 2 * 2 * (4 + 1) == len({one.key for one in found})
    warm_ups = [one for one in found if one.block == 0]
    assert [(one.test.variant, one.runtime) for one in warm_ups] == [
        (variant, name) for variant in ("warm", "cold") for name in ("native", "docker")
    ]
    assert [one.test.variant for one in found] == ["warm"] * 10 + ["cold"] * 10


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("", True),
        ("1 copy", True),
        ("one core", True),
        ("1 copy, one core", True),
        ("our set, 1 copy, one core", True),
        ("all cores", False),
        ("1 copy, all cores", False),
        ("core", False),
    ],
)
def test_some_of_the_words_of_a_way_mean_it(asked: str, meant: bool) -> None:
    assert is_way("our set, 1 copy, one core", asked) is meant
