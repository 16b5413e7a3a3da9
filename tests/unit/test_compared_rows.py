# SPDX-License-Identifier: Apache-2.0
"""Rows of a comparison: the verdict of every kind of row, their order, and what the sides are warned of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.fakes.fit_run_data import fit_run

from vmtailor.analysis.comparison.boot_differences import compare_boots, compare_sides, moved, row
from vmtailor.analysis.comparison.comparison_page import compare_page
from vmtailor.analysis.comparison.sides import Saved, load_side, side_names
from vmtailor.analysis.statistics.significance import Thresholds
from vmtailor.analysis.timeline.boot_json import json_chunks
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.model.boots.comparison import Comparison
from vmtailor.model.boots.timeline import Initcall, KernelInfo, PhaseSpan, Probe, Process, Timeline, UnitSpan

THRESHOLDS = Thresholds(relative=0.05, absolute=1000.0)
NAMES = ("old", "new")


def call(name: str, us: int, start: int = 0, path: str = "critical", module: str | None = None) -> Initcall:
    return Initcall(name, module, 1, start, us, us, "reported", us, 0, path=path)


def probe(name: str, us: int | None) -> Probe:
    return Probe(name, name, None, 1, 0, us, us, "reported", us, 0)


def unit(name: str, us: int, start: int = 0) -> UnitSpan:
    return UnitSpan(name, start, start + us, us, us, "reported")


def process(name: str, us: int | None, observer: bool = False) -> Process:
    return Process(name, 1, 0, 0, 10, 10, us, "samples", observer)


def phase(name: str, start: int | None, end: int | None) -> PhaseSpan:
    return PhaseSpan(name, start, end, "log")


def boot(*calls: Initcall, arch: str = "x86_64", **more: object) -> Timeline:
    return msgspec.structs.replace(Timeline(KernelInfo("6.1", arch, "quiet"), initcalls=list(calls)), **more)


def rows(before: Sequence[Timeline], after: Sequence[Timeline]) -> list[tuple[str, str, float | None, str]]:
    found = compare_boots(before, after, NAMES, THRESHOLDS)
    return [(one.kind, one.name, one.change, one.verdict) for one in (*found.phases, *found.items)]


def warned(before: Sequence[Timeline], after: Sequence[Timeline]) -> list[tuple[str, str]]:
    return [(one.code, one.text[:46]) for one in compare_boots(before, after, NAMES, THRESHOLDS).warnings]


@pytest.mark.parametrize(
    ("left", "right", "of", "verdict", "direction"),
    [
        ([], [5000.0] * 4, (4, 4), "new", ""),
        ([], [5000.0] * 3, (4, 4), "in some boots", ""),
        ([5000.0] * 4, [], (4, 4), "gone", ""),
        ([5000.0], [], (4, 4), "in some boots", ""),
        # Half of a side's boots are too few, one more is enough.
        ([5000.0] * 2, [9000.0] * 4, (4, 4), "in some boots", ""),
        ([5000.0] * 4, [9000.0] * 4, (4, 8), "in some boots", ""),
        ([5000.0] * 4, [9000.0] * 5, (4, 8), "slower", ""),
        ([9000.0] * 4, [5000.0] * 4, (4, 4), "faster", ""),
        # A single boot a side has no spread: it only leans.
        ([5000.0], [9000.0], (1, 1), "undecided", "slower"),
        ([9000.0], [5000.0], (1, 1), "undecided", "faster"),
        ([5000.0], [6000.0], (1, 1), "undecided", "slower"),  # as much as the threshold
        ([5000.0], [5999.0], (1, 1), "below threshold", ""),
        ([5000.0], [5000.0], (1, 1), "same", ""),
        ([5000.0] * 4, [5000.0] * 4, (4, 4), "same", ""),
        # A clear difference below the threshold says which way; one that is not clear does not.
        ([5000.0, 5001.0, 5002.0, 5003.0], [5500.0, 5501.0, 5502.0, 5503.0], (4, 4), "below threshold", "slower"),
        ([5000.0, 5001.0, 5002.0, 5003.0], [5003.0, 5002.0, 5001.0, 5000.0], (4, 4), "below threshold", ""),
        # Three boots a side never decide, however far apart they are.
        ([5000.0, 5001.0, 5002.0], [5500.0, 5501.0, 5502.0], (3, 3), "below threshold", ""),
        ([5000.0, 5001.0, 5002.0], [9000.0, 9001.0, 9002.0], (3, 3), "undecided", "slower"),
        ([5000.0, 9000.0, 5000.0, 9000.0], [6000.0, 9000.0, 9000.0, 9000.0], (4, 4), "undecided", "slower"),
    ],
)
def test_the_verdict_of_a_row(
    left: list[float], right: list[float], of: tuple[int, int], verdict: str, direction: str
) -> None:
    found = row(("initcall", "a", 1), left, right, of, THRESHOLDS)
    assert (found.verdict, found.direction) == (verdict, direction)
    assert (found.boots, found.of, found.moved) == ((len(left), len(right)), of, False)


def test_what_only_one_side_has_is_its_whole_median() -> None:
    key, there = ("unit", "a", 1), [1.0, 2.0, 9.0]
    new, gone = row(key, [], there, (3, 3), THRESHOLDS), row(key, there, [], (3, 3), THRESHOLDS)
    assert (new.before, new.after, new.change) == (None, 2, 2)
    assert (gone.before, gone.after, gone.change) == (2, None, -2)


def test_the_largest_change_stands_first_and_what_is_never_long_is_left_out() -> None:
    before = boot(
        call("quick", 99), call("gone", 3000), call("slower", 5000), call("near", 100), call("bus", 7, module="m")
    )
    after = boot(
        call("quick", 9), call("slower", 9000), call("near", 50), call("tiny", 1), call("bus", 200, module="m")
    )
    assert rows([before], [after]) == [
        ("initcall", "slower", 4000, "undecided"),
        ("initcall", "gone", -3000, "gone"),
        ("initcall", "bus [m]", 193, "below threshold"),
        ("initcall", "near", -50, "below threshold"),
        ("initcall", "tiny", 1, "new"),
    ]


def test_every_kind_of_item_is_compared_by_its_own_time() -> None:
    def side(factor: int) -> Timeline:
        return boot(
            probes=[probe("0000:00:01", 1000 * factor), probe("unknown", None)],
            units=[unit("a.service", 2000 * factor)],
            # What two processes of one name use is added up; what the collector uses is not the boot's.
            processes=[process("sh", 3000 * factor), process("sh", 100), process("log", 9, True), process("x", None)],
        )

    assert rows([side(1)], [side(3)]) == [
        ("process", "sh", 6000, "undecided"),
        ("unit", "a.service", 4000, "undecided"),
        ("probe", "0000:00:01", 2000, "undecided"),
    ]


def test_phases_have_lengths_and_ready_counts_from_where_the_boot_began() -> None:
    def side(ready: int) -> Timeline:
        spans = (
            phase("firmware", -500_000, 0), phase("kernel", 0, 900_000), phase("initrd", 900_000, None),
            phase("ready", ready, ready), phase("loader", None, None),
        )  # fmt: skip
        return boot(phases=spans, total_us=ready + 500_000)

    found = compare_boots([side(2_000_000)], [side(1_000_000)], NAMES, THRESHOLDS)
    assert [(one.name, one.before, one.after) for one in found.phases] == [
        ("firmware", 500_000, 500_000),
        ("kernel", 900_000, 900_000),
        ("ready", 2_500_000, 1_500_000),
        ("total", 2_500_000, 1_500_000),
    ]
    assert (found.before.name, found.before.boots, found.before.version) == ("old", 1, "6.1")
    assert found.before.command_line == "quiet" and found.before.phases == side(2_000_000).phases
    assert (found.threshold_share, found.threshold_us) == (0.05, 1000.0)
    unknown = msgspec.structs.replace(side(1_000_000), total_us=None)
    assert "total" not in {one.name for one in compare_boots([side(1)], [unknown], NAMES, THRESHOLDS).phases}
    # Both sides are drawn to one scale.
    page = compare_page(found)
    assert "old" in page and "new" in page and "firmware" in page


def test_an_item_has_moved_where_it_leaves_the_order_or_the_path() -> None:
    def ordered(*names: str) -> dict[tuple[str, str, int], int]:
        return {("initcall", name, 1): at for at, name in enumerate(names)}

    assert moved(ordered("a", "b", "c", "d"), ordered("b", "c", "d", "a")) == {("initcall", "a", 1)}
    assert moved(ordered("a", "b", "c"), ordered("a", "x", "b", "c")) == set()
    assert moved({("probe", "a", 1): 1, ("probe", "b", 1): 2}, {("probe", "a", 1): 2, ("probe", "b", 1): 1}) == set()
    assert moved({}, ordered("a")) == set()

    before = boot(call("a", 5000, 0), call("b", 5000, 10_000), call("c", 5000, 20_000), call("d", 9, 30_000))
    after = boot(
        call("b", 5000, 0), call("c", 5000, 10_000, "beside"), call("a", 5000, 20_000), call("d", 9, 30_000)
    )  # fmt: skip
    found = {one.name: one for one in compare_boots([before], [after], NAMES, THRESHOLDS).items}
    assert {name: (one.verdict, one.moved) for name, one in found.items()} == {
        "a": ("moved", True),
        "b": ("same", False),
        "c": ("moved", True),
    }
    assert (found["c"].before_path, found["c"].after_path) == ("critical", "beside")


def test_what_is_longer_and_elsewhere_is_longer() -> None:
    before = boot(call("a", 5000, 0), call("b", 5000, 10_000), call("c", 5000, 20_000))
    after = boot(call("b", 5000, 0), call("c", 5000, 10_000), call("a", 9000, 20_000))
    assert rows([before], [after])[0] == ("initcall", "a", 4000, "undecided")


@pytest.mark.parametrize(
    ("counts", "code"),
    [((1, 9), "single-boots"), ((9, 1), "single-boots"), ((2, 2), "few-boots"), ((3, 3), "few-boots"), ((4, 4), None)],
)
def test_too_few_boots_are_said(counts: tuple[int, int], code: str | None) -> None:
    one = boot(call("a", 5000))
    assert [found for found, _ in warned([one] * counts[0], [one] * counts[1])] == ([] if code is None else [code])


def test_sides_that_are_unlike_are_said() -> None:
    arm, pc = boot(call("a", 5000), arch="arm64"), boot(call("a", 5000), units=[unit("b.service", 5000)])
    found = warned([pc] * 4, [arm] * 4)
    assert found == [
        ("unlike", "the sides are of different architectures: arm6"),
        ("unlike", "new has no units that are timed, so they are n"),
    ]
    # One boot of many with a unit is enough to compare them.
    assert warned([pc] * 4, [*[boot(call("a", 5000))] * 3, pc]) == []


def compared(before: Saved, after: Saved) -> Comparison:
    return compare_sides(before, after, NAMES, THRESHOLDS)


def test_figures_of_records_have_units_and_exact_ones_need_one_value() -> None:
    before = Saved(
        samples={
            ("figure", "kernel", "bytes"): [1000.0],
            ("figure", "gone", "bytes"): [7.0],
            ("milestone", "ready", "µs"): [5000.0],
            ("milestone", "ready, virtual", "µs"): [5000.0],
        },
        version="6.1",
    )
    after = Saved(
        samples={
            ("figure", "kernel", "bytes"): [1100.0],
            ("milestone", "ready", "µs"): [9000.0],
            ("milestone", "ready, virtual", "µs"): [9000.0],
            ("figure", "new", ""): [3.0],
        }
    )
    found = compared(before, after)
    assert [(one.name, one.unit, one.verdict, one.direction) for one in found.phases] == [
        ("ready", "µs", "undecided", "slower"),
        ("ready, virtual", "µs", "slower", ""),
    ]
    assert [(one.name, one.unit, one.verdict) for one in found.items] == [
        ("kernel", "bytes", "slower"),
        ("gone", "bytes", "gone"),
        ("new", "", "new"),
    ]
    assert (found.before.version, found.after.version, found.before.boots) == ("6.1", None, 0)
    assert (found.threshold_share, found.threshold_us) == (0.05, 1000.0)


def test_milestones_of_saved_boots_fall_into_groups() -> None:
    mixed = [1_858_000.0 + 400 * n for n in range(8)] + [2_078_000.0 + 400 * n for n in range(8)]
    key = ("milestone", "ready", "µs")
    (found,) = compared(Saved(samples={key: mixed}), Saved(samples={key: mixed[:8]})).phases
    assert [mode.boots for mode in found.before_modes] == [8, 8] and found.after_modes == ()


def test_what_was_left_out_is_said_of_its_side() -> None:
    key = ("figure", "x", "bytes")
    found = compared(Saved(samples={key: [1.0]}, left_out=["README"]), Saved(samples={key: [1.0]}, left_out=["notes"]))
    assert [one.text.partition(" holds")[0] for one in found.warnings] == ["README of old", "notes of new"]


def test_a_side_of_a_fit_is_its_figures_by_unit(tmp_path: Path) -> None:
    run = fit_run()
    records.save(run, tmp_path / "run.json")
    side = load_side([tmp_path])
    units = {name: (unit, values) for (kind, name, unit), values in side.samples.items() if kind == "figure"}
    assert units["kernel_bytes"] == ("bytes", [run.tailored.kernel_bytes])
    assert units["init_instructions"] == ("instructions", [run.tailored.init_instructions])
    assert units["init_virtual_us"] == ("µs", [run.tailored.init_virtual_us])
    assert units["symbols_y"] == ("", [run.tailored.symbols_y])
    assert "boots" not in units and "kernel" not in units
    calls = {
        name: values
        for (kind, name, unit), values in side.samples.items()
        if (kind, unit) == ("initcall", "instructions")
    }
    assert calls == {name: [count] for name, count in run.tailored.initcalls}
    assert side.version == run.plan.kernel_version and side.clocks == "" and side.timelines == []
    assert side.config == {one.id: one.value for one in run.plan.symbols}
    twice = load_side([tmp_path, tmp_path / "run.json"])
    assert twice.samples["figure", "kernel_bytes", "bytes"] == [run.tailored.kernel_bytes] * 2


LOG = "[    0.000000] Linux version 6.1.0 (gcc) #1\n[    1.000000] Run /sbin/init as init process\n"


def test_a_folder_of_boots_leaves_out_hidden_files_and_cannot_be_empty(tmp_path: Path) -> None:
    (tmp_path / ".hidden").write_text(LOG.replace("6.1.0", "5.0.0"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserInputError, match="holds no boots"):
        load_side([tmp_path])
    (tmp_path / "b").write_text(LOG.replace("6.1.0", "6.2.0"))
    (tmp_path / "a").write_text(LOG)
    side = load_side([tmp_path])
    assert [one.kernel.version for one in side.timelines] == ["6.1.0", "6.2.0"] and side.left_out == ["empty"]


def test_a_saved_analysis_is_read_wherever_it_begins(tmp_path: Path) -> None:
    saved = boot(call("a", 5000), phases=(phase("kernel", 0, 900_000),))
    path = tmp_path / "saved.json"
    path.write_bytes(b"\n  " + b"".join(json_chunks(saved)))
    (found,) = load_side([path]).timelines
    assert [one.name for one in found.initcalls] == ["a"] and found.phases == saved.phases


def test_a_side_that_is_compared_with_itself_has_one_name(tmp_path: Path) -> None:
    assert side_names(tmp_path, tmp_path) == (tmp_path.name, tmp_path.name)
    assert side_names(Path("/"), Path("/")) == ("/", "/")
