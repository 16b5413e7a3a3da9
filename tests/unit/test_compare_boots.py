# SPDX-License-Identifier: Apache-2.0
"""Comparing boots: what is gone, new, faster, slower, moved; and what cannot be told."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fakes.boot_data import series_boot
from typer.testing import CliRunner

from vmtailor.analysis.comparison.boot_differences import compare_boots, compare_sides
from vmtailor.analysis.comparison.comparison_page import compare_page
from vmtailor.analysis.comparison.sides import Saved, load_side, side_names
from vmtailor.analysis.guests.machine_variants import USUAL
from vmtailor.analysis.statistics.significance import Thresholds, compare, unstable
from vmtailor.analysis.timeline.boot_json import from_json, json_chunks
from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.base.errors import UserInputError
from vmtailor.base.files.records import from_bytes, save, to_bytes
from vmtailor.cli.compare import compare as compare_command
from vmtailor.cli.signature import of_verb
from vmtailor.model.boots.boot import Milestone, Outcome
from vmtailor.model.boots.comparison import Comparison
from vmtailor.model.boots.series import BootSeries, Variant
from vmtailor.model.boots.timeline import Timeline
from vmtailor.model.boots.workload import ReadyBy, ReadySignal
from vmtailor.model.change import Verdict
from vmtailor.model.machine import Accelerator, Clock, Machine


def log(calls: dict[str, int], config: str = "") -> str:
    now, lines = (
        200_000,
        ["[    0.000000] Linux version 6.1.0 (gcc) #1", "[    0.100000] clocksource: Switched to clocksource tsc"],
    )
    for name, us in calls.items():
        lines.append(f"[{now / 1e6:12.6f}] calling  {name}+0x0/0x10 @ 1")
        now += us + 10
        lines.append(f"[{now / 1e6:12.6f}] initcall {name}+0x0/0x10 returned 0 after {us} usecs")
        now += 10
    lines.append(f"[{now / 1e6:12.6f}] Run /sbin/init as init process")
    if config:
        return f"== GRAB-BOOT-DATA INFO ==\n== CONFIG ==\n{config}\n== KERNEL MESSAGES ==\n" + "\n".join(lines) + "\n"
    return "\n".join(lines) + "\n"


def boots(folder: Path, name: str, *logs: str) -> Path:
    path = folder / name
    path.mkdir()
    for n, text in enumerate(logs):
        (path / f"{n}.log").write_text(text)
    return path


def load(path: Path) -> list[Timeline]:
    return load_side([path]).timelines


def test_a_side_is_what_analyze_reads_without_what_only_a_reader_wants(tmp_path: Path) -> None:
    path = tmp_path / "boot.log"
    path.write_text(log({"raid6_select_algo": 900_000}))
    (side,) = load_side([path]).timelines
    shown = analyze([path])
    assert shown.hotspots and shown.advice
    assert side == msgspec.structs.replace(shown, hotspots=(), advice=(), lines=(), unused=())


NOISE = (0, 120, -90, 60, -40, 80)


def test_repeated_boots_tell_what_is_real(tmp_path: Path) -> None:
    before = [log({"a_init": 20_000 + d, "b_init": 5_000 + d, "c_init": 9_000 + d, "gone_init": 3_000}) for d in NOISE]
    after = [log({"a_init": 8_000 + d, "b_init": 5_030 - d, "c_init": 19_000 + d, "new_init": 4_000}) for d in NOISE]
    found = compare_boots(load(boots(tmp_path, "a", *before)), load(boots(tmp_path, "b", *after)), ("a", "b"))
    rows = {r.name: r for r in found.items}
    assert {name: row.verdict for name, row in rows.items()} == {
        "a_init": "faster",
        "b_init": "below threshold",
        "c_init": "slower",
        "gone_init": "gone",
        "new_init": "new",
    }
    faster = rows["a_init"]
    assert faster.change == -12_000
    assert faster.low is not None
    assert faster.high is not None
    assert faster.low <= -12_000 <= faster.high < 0
    assert faster.p is not None
    assert faster.p < 0.05
    assert faster.boots == (6, 6)
    assert found.warnings == ()


def test_boots_that_overlap_are_undecided(tmp_path: Path) -> None:
    before = [log({"a_init": us}) for us in (5_000, 19_000, 7_000, 22_000, 6_000)]
    after = [log({"a_init": us}) for us in (9_000, 21_000, 8_000, 5_500, 30_000)]
    found = compare_boots(load(boots(tmp_path, "a", *before)), load(boots(tmp_path, "b", *after)), ("a", "b"))
    (row,) = found.items
    assert row.verdict == "undecided"
    assert row.direction in ("faster", "slower")


def test_a_single_boot_decides_nothing(tmp_path: Path) -> None:
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    a.write_text(log({"a_init": 20_000, "b_init": 3_000}))
    b.write_text(log({"a_init": 8_000, "c_init": 3_000}))
    found = compare_boots(load(a), load(b), ("a", "b"))
    assert {r.name: (r.verdict, r.direction) for r in found.items} == {
        "a_init": ("undecided", "faster"),
        "b_init": ("gone", ""),
        "c_init": ("new", ""),
    }
    assert [w.code for w in found.warnings] == ["single-boots"]


def test_an_item_that_runs_elsewhere_has_moved(tmp_path: Path) -> None:
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    a.write_text(log({"a_init": 2_000, "b_init": 2_000, "c_init": 2_000, "d_init": 2_000}))
    b.write_text(log({"b_init": 2_000, "c_init": 2_000, "d_init": 2_000, "a_init": 2_000}))
    found = compare_boots(load(a), load(b), ("a", "b"))
    assert {r.name for r in found.items if r.verdict == "moved"} == {"a_init"}


def test_the_configurations_are_compared_too(tmp_path: Path) -> None:
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    a.write_text(log({"a_init": 2_000}, "CONFIG_HZ=100\nCONFIG_AUDIT=y\nCONFIG_NET=y"))
    b.write_text(log({"a_init": 2_000}, "CONFIG_HZ=250\n# CONFIG_AUDIT is not set\nCONFIG_NET=y"))
    found = compare_boots(load(a), load(b), ("a", "b"))
    assert [(c.symbol, c.before, c.after) for c in found.config] == [("AUDIT", "y", None), ("HZ", "100", "250")]


def test_a_saved_analysis_compares_as_its_log(tmp_path: Path) -> None:
    path, saved = tmp_path / "a.log", tmp_path / "a.json"
    path.write_text(log({"a_init": 20_000}))
    (timeline,) = load(path)
    saved.write_bytes(b"".join(json_chunks(timeline)))
    assert load(saved) == [timeline]
    assert all(r.verdict == "same" for r in compare_boots(load(path), load(saved), ("a", "b")).phases)
    with pytest.raises(UserInputError, match="damaged"):
        from_json(saved.read_bytes()[:-20], "x")


def test_a_comparison_survives_saving_and_has_a_page(tmp_path: Path) -> None:
    a = tmp_path / "a.log"
    a.write_text(log({"a_init": 20_000}))
    found = compare_boots(load(a), load(a), ("<img src=x onerror=alert(1)>", "b"))
    assert from_bytes(Comparison, to_bytes(found)) == found
    page = compare_page(found)
    assert "<img src=x" not in page
    assert "https://" not in page


def test_empty_folders_are_no_side(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="no boots"):
        load(boots(tmp_path, "empty"))


def test_thresholds() -> None:
    steady = [100.0, 101.0, 99.0, 100.0, 100.5]
    assert compare(steady, [x + 2 for x in steady], Thresholds(0.05)).verdict == Verdict.SAME
    assert compare(steady, [x - 30 for x in steady], Thresholds(0.05)).verdict == Verdict.BETTER
    assert compare(steady, [x + 30 for x in steady], Thresholds(0.05)).verdict == Verdict.WORSE
    assert compare(steady, [x + 30 for x in steady], Thresholds(0.05, absolute=50)).verdict == Verdict.SAME
    assert compare(steady, [130.0], Thresholds(0.05)).verdict == Verdict.UNDECIDED
    assert unstable([1, 2, 3])
    assert not unstable(steady)


def test_sides_are_the_same_where_a_difference_that_matters_is_ruled_out() -> None:
    left = [96.0, 98.0, 100.0, 101.0, 103.0, 104.0] * 3
    close, far = [x + 0.5 for x in left], [x + 4 for x in left]
    assert compare(left, close, Thresholds(0.02)).verdict == Verdict.UNDECIDED
    assert compare(left, close, Thresholds(0.02, alike=5.0)).verdict == Verdict.SAME
    # What was found is not the same, however little it may be; and a change of interest is not ruled out by the share.
    assert compare(left, far, Thresholds(0.02, alike=0.10)).verdict == Verdict.WORSE
    assert compare(left, [x + 4 for x in left[:3]], Thresholds(0.02, alike=5.0)).verdict == Verdict.UNDECIDED


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(1, 1e6), min_size=2, max_size=6), st.floats(0.5, 2))
def test_a_set_is_never_better_or_worse_than_itself(values: list[float], factor: float) -> None:
    assert compare(values, values).verdict in (Verdict.SAME, Verdict.UNDECIDED)
    one = compare(values, [v * factor for v in values])
    other = compare([v * factor for v in values], values)
    opposite = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}
    assert (
        opposite.get(one.verdict) == other.verdict
        or Verdict.UNDECIDED in (one.verdict, other.verdict)
        or ({one.verdict, other.verdict} == {Verdict.SAME})
    )


def series(folder: Path, ready_s: list[float], machine: Machine = USUAL) -> Path:
    folder.mkdir()
    boots = []
    for n, seconds in enumerate(ready_s):
        (folder / f"b{n}").mkdir()
        (folder / f"b{n}" / "console.log").write_text(log({"a_init": 20_000 + n}))
        marks = (Milestone("ready", wall_s=seconds, virtual_ns=3500, executed=1000 + n),)
        boots.append(series_boot("base", n, Outcome.READY, marks, seconds, folder=f"b{n}"))
    boots.append(series_boot("base", 99, Outcome.PANIC, (Milestone("ready", wall_s=99.0),), 99.0, folder="b0"))
    record = BootSeries("0", "x", ReadySignal(ReadyBy.LOGIN), 60.0, (Variant("base", machine, "qemu"),), tuple(boots))
    save(record, folder / "boots.json")
    return folder


def test_saved_boots_are_compared_by_their_milestones(tmp_path: Path) -> None:
    fast = load_side([series(tmp_path / "fast", [1.0, 1.01, 0.99, 1.0, 1.02])])
    slow = load_side([series(tmp_path / "slow", [2.0, 2.01, 1.99, 2.0, 2.02])])
    found = compare_sides(fast, slow, ("fast", "slow"))
    rows = {(r.kind, r.name, r.unit): r for r in found.phases}
    wall = rows["milestone", "ready", "µs"]
    assert (wall.verdict, wall.before, wall.after, wall.boots) == ("slower", 1_000_000, 2_000_000, (5, 5))
    assert rows["milestone", "ready", "instructions"].verdict == "same"
    assert found.before.boots == 5
    assert {r.name for r in found.items} == {"a_init"}


def test_times_of_different_clocks_are_not_compared(tmp_path: Path) -> None:
    wall = load_side([series(tmp_path / "wall", [1.0, 1.01])])
    under_kvm = load_side([series(tmp_path / "kvm", [0.2, 0.21], replace(USUAL, accelerator=Accelerator.KVM))])
    counted = load_side([series(tmp_path / "counted", [5.0, 9.0], replace(USUAL, clock=Clock.INSTRUCTIONS))])
    for other, words in ((under_kvm, "wall clock, kvm"), (counted, "instructions clock, tcg")):
        with pytest.raises(UserInputError, match=f"other on the {words}"):
            compare_sides(wall, other, ("one", "other"))
    found = compare_sides(counted, counted, ("a", "b"))
    ready = {(r.name, r.unit): r for r in found.phases if r.kind == "milestone"}
    assert ready.keys() == {("ready, virtual", "µs"), ("ready", "instructions")}  # no seconds of the host
    assert "ready" not in {name for _, name, unit in counted.samples if unit == "µs"}
    assert not [name for _, name, _ in wall.samples if "virtual" in name]  # a figure of the instruction clock alone
    assert ready["ready, virtual", "µs"].before == 3.5 and ready["ready, virtual", "µs"].verdict == "same"


def test_what_one_sides_files_cannot_show_is_not_gone(tmp_path: Path) -> None:
    plain = log({}).replace("initcall_debug", "")
    detailed, bare = boots(tmp_path, "detailed", log({"a_init": 20_000})), boots(tmp_path, "bare", plain)
    found = compare_boots(load(detailed), load(bare), ("detailed", "bare"))
    assert not [one for one in found.items if one.kind == "initcall"]
    assert any("bare has no initcalls that are timed" in one.text for one in found.warnings)


def test_different_kinds_are_not_compared(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="different kinds"):
        compare_sides(Saved(samples={("figure", "x", "bytes"): [1.0]}), Saved(), ("a", "b"))
    exact = compare_sides(
        Saved(samples={("figure", "x", "bytes"): [1000.0]}, config={"A": "y"}),
        Saved(samples={("figure", "x", "bytes"): [900.0]}, config={"B": "y"}),
        ("a", "b"),
    )
    assert [(r.name, r.verdict, r.unit) for r in exact.items] == [("x", "faster", "bytes")]
    assert [c.symbol for c in exact.config] == ["A", "B"]
    assert 'false,"bytes",[1,1],[1,1]]' in compare_page(exact)


def many(folder: Path, name: str, us: Sequence[int], item: str = "a_init") -> list[Timeline]:
    return load(boots(folder, name, *(log({item: one}) for one in us)))


def test_a_clear_difference_that_is_too_small_is_said_to_be_that(tmp_path: Path) -> None:
    before = [20_000 + n for n in range(8)]
    left, right = many(tmp_path, "a", before), many(tmp_path, "b", [us + 500 for us in before])
    (row,) = compare_boots(left, right, ("a", "b")).items
    assert (row.verdict, row.direction) == ("below threshold", "slower")
    assert row.low is not None and row.low > 0
    # The same figures with other thresholds.
    (fine,) = compare_boots(left, right, ("a", "b"), Thresholds(0.01, 100.0)).items
    assert (fine.verdict, fine.direction) == ("slower", "")
    (same,) = compare_boots(left, left, ("a", "a")).items
    assert (same.verdict, same.direction) == ("below threshold", "")
    steady = many(tmp_path, "c", [20_000] * 8)
    assert [r.verdict for r in compare_boots(steady, steady, ("c", "c")).items] == ["same"]


def test_both_thresholds_are_shown_and_can_be_set(tmp_path: Path) -> None:
    before = [20_000 + n for n in range(8)]
    many(tmp_path, "old", before), many(tmp_path, "new", [us + 500 for us in before])
    app = typer.Typer()
    app.command()(of_verb("compare", compare_command))
    sides = [str(tmp_path / "old"), str(tmp_path / "new")]
    usual = CliRunner().invoke(app, sides, env={"COLUMNS": "160"})
    assert "threshold: 5 % and 1 ms" in usual.output and "a_init" not in usual.output
    fine = CliRunner().invoke(
        app, [*sides, "--threshold", "1", "--threshold-ms", "0.1", "--name-before", "6.1"], env={"COLUMNS": "160"}
    )
    assert "threshold: 1 % and 0.1 ms" in fine.output and "slower" in fine.output
    assert "before 6.1" in fine.output and "after  new" in fine.output
    found = CliRunner().invoke(app, [*sides, "--json", "--threshold-ms", "0.1"])
    document = json.loads(found.output)
    assert (document["threshold_share"], document["threshold_us"]) == (0.05, 100.0)


def test_an_item_of_some_boots_is_not_new(tmp_path: Path) -> None:
    usual, seldom = log({"a_init": 9_000}), log({"a_init": 9_000, "fsck_init": 30_000})
    left = load(boots(tmp_path, "a", *[usual] * 5))
    right = load(boots(tmp_path, "b", *[usual] * 4, seldom))
    rows = {r.name: r for r in compare_boots(left, right, ("a", "b")).items}
    assert (rows["fsck_init"].verdict, rows["fsck_init"].boots, rows["fsck_init"].of) == (
        "in some boots",
        (0, 1),
        (5, 5),
    )
    app = typer.Typer()
    app.command()(of_verb("compare", compare_command))
    shown = CliRunner().invoke(app, [str(tmp_path / "a"), str(tmp_path / "b")], env={"COLUMNS": "160"}).output
    assert "in 1 of 5" in shown
    always = load(boots(tmp_path, "c", *[seldom] * 5))
    assert {r.name: r.verdict for r in compare_boots(left, always, ("a", "c")).items}["fsck_init"] == "new"
    both = {r.name: r for r in compare_boots(right, always, ("b", "c")).items}
    assert both["fsck_init"].verdict == "in some boots"  # in 1 of 5 and in 5 of 5


def test_two_modes_of_a_phase_are_said(tmp_path: Path) -> None:
    quick, slow = [1_858_000 + 400 * n for n in range(8)], [2_078_000 + 400 * n for n in range(8)]
    mixed = many(tmp_path, "mixed", [us for pair in zip(quick, slow, strict=True) for us in pair])
    plain = many(tmp_path, "plain", quick * 2)
    found = compare_boots(plain, mixed, ("plain", "mixed"))
    (kernel,) = [row for row in found.phases if row.name == "kernel"]
    assert kernel.before_modes == ()
    assert [(round(mode.median / 1e6, 2), mode.boots) for mode in kernel.after_modes] == [(2.06, 8), (2.28, 8)]
    (warning,) = [w for w in found.warnings if w.code == "two-modes"]
    assert "kernel of mixed is 2.059 s (8 boots)" in warning.text and "2.279 s" in warning.text
    assert "mixed: 2.06" in compare_page(found)


def test_sides_are_named_so_that_they_differ() -> None:
    for before, after, names in [
        ("old/boots.json", "new/boots.json", ("old", "new")),
        ("a/dmesg.txt", "b/dmesg.txt", ("a", "b")),
        ("x/before", "x/after", ("before", "after")),
        ("x/1/boot/log", "x/2/boot/log", ("1", "2")),
        ("one.log", "two.log", ("one.log", "two.log")),
    ]:
        assert side_names(Path(before), Path(after)) == names


def test_a_plain_folder_holds_one_boot_a_file_or_a_folder(tmp_path: Path) -> None:
    folder = boots(tmp_path, "a", log({"a_init": 9_000}), log({"a_init": 9_100}))
    (folder / "README").write_text("Three boots, made on a Monday.\n")
    (folder / "third").mkdir()
    (folder / "third" / "dmesg").write_text(log({"a_init": 9_200}))
    (folder / "third" / "blame").write_text(" 5.1s a.service\n 2.0s b.service\n")
    side = load_side([folder])
    assert len(side.timelines) == 3
    assert [len(boot.units) for boot in side.timelines] == [0, 0, 2]
    assert side.left_out == ["README"]
    found = compare_sides(side, side, ("a", "a"))
    assert any("README of a holds nothing" in w.text for w in found.warnings)


def test_names_with_brackets_reach_the_terminal_whole(tmp_path: Path) -> None:
    a, b = tmp_path / "a.log", tmp_path / "b.log"
    a.write_text(log({"a_init": 20_000}).replace("a_init+0x0/0x10", "a_init+0x0/0x10 [bus]"))
    b.write_text(log({"b_init": 20_000}))
    app = typer.Typer()
    app.command()(of_verb("compare", compare_command))
    result = CliRunner().invoke(app, [str(a), str(b)], env={"COLUMNS": "160"})
    assert result.exit_code == 0
    assert "a_init [bus]" in result.output
