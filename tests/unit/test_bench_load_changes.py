# SPDX-License-Identifier: Apache-2.0
"""The table of `make bench-load-changes`."""

from __future__ import annotations

from types import ModuleType

import pytest
from tests.fakes.tools import load_tool

from vmtailor.analysis.changes.load_catalogue import catalogue
from vmtailor.model.change import Figure


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load_tool("bench_load_changes")


def test_each_change_has_a_row_with_what_it_saved_or_why_not(bench: ModuleType) -> None:
    changes = [one for one in catalogue() if one.id in ("optimise-more", "scheduler-deadline", "patch-one-user")]
    measured = [{"figure": str(Figure.REQUEST_KERNEL), "value": -1234.0}]
    trials = [
        {"id": "optimise-more", "measured": measured, "verdict": "better"},
        {"id": "scheduler-deadline", "measured": [], "problem": "this kernel does not set it", "verdict": "worse"},
        {"id": "together", "measured": measured, "verdict": "better"},
    ]
    text = bench.table(changes, {"lighttpd": {"trials": trials}})
    rows = {line.split(" | ")[0].strip("| `"): line for line in text.splitlines()[2:]}
    assert "-1.23 k, better | yes" in rows["optimise-more"]
    assert "this kernel does not set it" in rows["scheduler-deadline"] and "collapse" in rows["scheduler-deadline"]
    assert "not tried | no | 15.8 %" in rows["patch-one-user"]
    assert "-1.23 k" in rows["all that are proposed and were better, together"]


def test_hours_are_of_what_is_compiled(bench: ModuleType) -> None:
    by_id = {one.id: one for one in catalogue()}
    assert bench.compiles(by_id["optimise-more"]) and not bench.compiles(by_id["no-route-metrics"])
    assert bench.kernels(by_id["clang-profile"]) == 2
    assert bench.hours(2, [by_id["optimise-more"]]) == 2 * (bench.FIT_S + bench.KERNEL_S + bench.BOOT_S) / 3600


def test_protections_are_no_part_of_what_saves_together(bench: ModuleType) -> None:
    proposed = {"subject": "x", "trials": [{"id": "optimise-more"}, {"id": "together", "verdict": "better"}]}
    others = {"subject": "y", "trials": [{"id": "no-init-on-alloc"}, {"id": "together", "verdict": "worse"}]}
    document = bench.merged(proposed, others)
    assert document["subject"] == "x"
    assert [one["id"] for one in document["trials"]] == ["optimise-more", "together", "no-init-on-alloc"]
    assert document["trials"][1]["verdict"] == "better"
