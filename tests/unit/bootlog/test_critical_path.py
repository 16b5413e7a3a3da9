# SPDX-License-Identifier: Apache-2.0
"""User space by its critical path: what overlaps does not vanish, and what ran beside is not waited for."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.bootlog.reading import timeline_of, unit

from vmtailor.analysis.timeline.own_time import TOLERANCE_US, critical_path, own_time
from vmtailor.model.boots.timeline import UnitSpan


def plot(*rows: tuple[str, int, int]) -> str:
    """systemd-analyze plot --json of units: name, start and duration in milliseconds."""
    return json.dumps(
        [
            {"name": name, "activating": start * 1000, "activated": (start + took) * 1000, "time": took * 1000,
             "deactivated": 0, "deactivating": 0}
            for name, start, took in rows
        ]
    )  # fmt: skip


def test_a_long_service_that_others_overlap_does_not_vanish(tmp_path: Path) -> None:
    small = [(f"small-{n}.service", 3000 + n * 100, 150) for n in range(150)]
    timeline = timeline_of(
        tmp_path,
        plot(("early.service", 1000, 1900), ("wait-online.service", 3000, 15_100), *small,
             ("last.service", 18_200, 300), ("graphical.target", 18_500, 0)),
    )  # fmt: skip
    long = unit(timeline, "wait-online.service")
    assert (long.duration_us, long.critical, long.path_us) == (15_100_000, True, 15_100_000)
    assert long.exclusive_us is not None and long.exclusive_us < 200_000  # nearly always something else was starting
    spot = timeline.hotspots[0]
    assert (spot.name, spot.duration_us, spot.exclusive_us) == ("wait-online.service", 15_100_000, 15_100_000)
    assert [u.name for u in timeline.units if u.critical] == [
        "early.service", "wait-online.service", "last.service",
    ]  # fmt: skip
    assert unit(timeline, "small-20.service").critical is False
    named = {r.id: r.saving_us for r in timeline.advice}
    assert named["slow-units"] == 1_900_000 + 15_100_000  # each as far as it is waited for


def test_what_comes_after_the_target_is_not_on_the_path(tmp_path: Path) -> None:
    timeline = timeline_of(
        tmp_path, plot(("a.service", 100, 2000), ("multi-user.target", 2100, 0), ("backup.service", 1000, 60_000))
    )
    assert [u.name for u in timeline.units if u.critical] == ["a.service"]
    late = unit(timeline, "backup.service")
    assert (late.critical, late.path_us) == (False, None)
    # It is there to be seen, as beside the boot, and nothing is promised for it.
    assert [(s.name, s.path) for s in timeline.hotspots if s.name == "backup.service"] == [("backup.service", "beside")]


def test_a_printed_chain_is_believed(tmp_path: Path) -> None:
    chain = (
        "graphical.target @9.0s\n└─multi-user.target @9.0s\n"
        "  └─app.service @5.0s +4.0s\n    └─net.service @1.0s +3.9s\n"
    )
    blame = "20.0s huge.service\n4.0s app.service\n3.9s net.service\n"
    timeline = timeline_of(tmp_path, chain, blame)
    assert {u.name for u in timeline.units if u.critical and u.duration_us} == {"app.service", "net.service"}
    assert unit(timeline, "app.service").path_us == 4_000_000
    assert unit(timeline, "huge.service").critical is False


def test_starts_that_are_not_known_have_no_path(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, "15.1s a.service\n 2.0s b.service\n")
    assert [(u.name, u.critical, u.path_us) for u in timeline.units] == [
        ("a.service", None, None), ("b.service", None, None),
    ]  # fmt: skip
    assert timeline.hotspots[0].name == "a.service"


SPANS = st.lists(st.tuples(st.integers(0, 10**7), st.integers(1, 10**7)), max_size=25)


@given(SPANS)
def test_the_path_is_a_chain_within_the_boot(spans: list[tuple[int, int]]) -> None:
    units = [
        UnitSpan(f"{n}.service", start, start + took, took, None, "reported") for n, (start, took) in enumerate(spans)
    ]
    found = critical_path(own_time(units), None)
    path = sorted(
        (u.start_us, u.start_us + u.duration_us)
        for u in found
        if u.critical and u.start_us is not None and u.duration_us
    )
    assert bool(path) == bool(units)
    for (_, end), (start, _) in pairwise(path):
        assert start + TOLERANCE_US >= end
    waited = sum(u.path_us or 0 for u in found)
    assert waited <= (max((e for _, e in path), default=0) - min((s for s, _ in path), default=0))
    assert all((u.path_us or 0) <= (u.duration_us or 0) for u in found)
    longest = max((took for _, took in spans), default=0)
    assert waited + TOLERANCE_US * len(path) >= longest  # no single unit would fill more
