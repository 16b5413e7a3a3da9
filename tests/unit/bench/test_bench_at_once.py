# SPDX-License-Identifier: Apache-2.0
"""Several instances at once within a machine: what its guest is told, what is made of what it says, and the table that
stands beside the published one."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.bench_rows import FakeRow
from tests.unit.bench.test_bench_inside_machine import INSIDE, NAMES, WITHIN_JOB

from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files import records
from vmtailor.base.natives import elf_symbols, locate
from vmtailor.bench.analysis import data_n
from vmtailor.bench.analysis.benchmarks import INDEX
from vmtailor.bench.analysis.cells import cells
from vmtailor.bench.analysis.guest_rounds import CPU_SCORE, STEP, Said, about, figures, overlap, said, steps
from vmtailor.bench.cli.bench_command import counts_of, repeat_of
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import (
    VIRTUAL,
    BenchFigure,
    BenchHost,
    BenchResults,
    BenchTrial,
    HostRun,
    RuntimeIdentity,
    SuiteName,
)
from vmtailor.bench.pages.published_tables import data_n_page
from vmtailor.bench.run import harness, launch, rounds_boot
from vmtailor.bench.run.guest_engine import GuestEngine
from vmtailor.bench.run.harness import again as again_words
from vmtailor.bench.run.machine_counts import cannot_tell, machine_tests
from vmtailor.bench.run.rounds_boot import AtOnce, RoundsBoot
from vmtailor.bench.runtimes import description
from vmtailor.bench.runtimes.guest_runtime import at_once
from vmtailor.bench.suites.bench_run import TrialFailed
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.counters import Blocks, Counters, SpanReached, Stretch, Totals
from vmtailor.model.boots.ending import End, Ending, Gathered
from vmtailor.model.guest import GuestReport

ROWS = ("vm:engines/native", "vm:engines/podman")
JOB = replace(WITHIN_JOB, suites=(SuiteName.UNIXBENCH,), counts=(0, 1, 2), repeat=1, quick=True, at_once=True)


def line(test: str, score: float, units: float, began_s: float = 1.0, ended_s: float = 2.0, cpu_s: float = 0.5) -> str:
    row = {"test": test, "score": score, "units": units, "began_s": began_s, "ended_s": ended_s, "cpu_s": cpu_s}
    return json.dumps(row) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_every_runtime_begins_so_many_that_obey(name: str) -> None:
    script = at_once(description.load(name), 3, "bench:1", "/dev/vdb", "/dev/vdc")
    read = subprocess.run(["sh", "-n"], input=script.encode(), capture_output=True, timeout=20, check=False)
    assert read.returncode == 0, read.stderr
    lines = script.splitlines()
    begun = [text for text in lines if text.endswith(" &") and "daemon.log" not in text]
    assert len(begun) == 3 and all(f"bench{number}" in text for number, text in enumerate(begun))
    # Each has its own root or cgroup, and all the one folder of pipes; they are awaited after the last one.
    assert "conduct /run/vmtailor-bench-rounds 3 make" in script
    assert lines.index(begun[-1]) < next(at for at, text in enumerate(lines) if "3 there" in text)


def test_the_machine_itself_has_the_folder_in_its_root() -> None:
    script = at_once(description.load("native"), 1, "bench:1", "/dev/vdb", "/dev/vdc")
    assert "mount --bind /run/vmtailor-bench-rounds /var/lib/vmtailor-bench/native/bench0/root/callback" in script
    assert "/sys/fs/cgroup/bench0" not in script  # isolates nothing


def test_a_test_is_a_rest_and_a_round() -> None:
    exercise = RoundsBoot(2, (("pipe", 1.0), ("fstime", 3.0))).exercise(description.load("podman"))
    words = [step.argv for step in exercise.load]
    conduct = ("/run/vmtailor-tree/bench/bench", "conduct", "/run/vmtailor-bench-rounds", "2")
    assert words[1] == (*conduct, "pipe", "1") and words[3] == (*conduct, "fstime", "3")
    assert words[0] == words[2] == words[4] == ("sh", "-c", "sync; sleep 10") and words[5] == (*conduct, "end")
    (saying,) = RoundsBoot(20, (("pipe", 1.0),)).sayings()  # the attendant takes few, however many instances there are
    assert "echo instance 19; cat /run/vmtailor-bench-rounds/19.said" in saying.argv[2]
    assert exercise.load[1].expect.exit_code == 0 and exercise.load[0].expect.exit_code is None


def test_none_is_the_machine_itself_alone() -> None:
    planned = rounds_boot.planned(JOB, ROWS)
    assert {(one.runtime, one.test.count) for one in planned} == {(ROWS[0], 1), (ROWS[1], 1), (ROWS[1], 2)}
    assert len(planned) == 3 * 12 and {one.test.variant for one in planned} == {VIRTUAL}
    # Boot by boot: the tests that share one stand together.
    boots = [(one.runtime, one.test.count) for one in planned]
    assert all(len(set(boots[at : at + 12])) == 1 for at in range(0, 36, 12))
    without = rounds_boot.planned(replace(JOB, counts=(1, 2), only=("pipe",)), ROWS)
    assert {(one.runtime, one.test.count) for one in without} == {(row, count) for row in ROWS for count in (1, 2)}
    only_none = rounds_boot.planned(replace(JOB, counts=(0,)), ROWS)
    assert {one.runtime for one in only_none} == {ROWS[0]}
    assert not machine_tests(JOB) and not any("dhry2reg" in text for text in cannot_tell(JOB))


def test_cells_have_their_command() -> None:
    planned = rounds_boot.planned(JOB, ROWS)
    way = "--variant 'our set, 1 copy, virtual time' --repeat 1"
    assert f"--only dhry2reg --n 1 {way}" in shlex.join(again_words(JOB, planned[0]))
    assert f"--only dhry2reg --n 2 {way}" in shlex.join(again_words(JOB, planned[-12]))


@pytest.mark.parametrize(
    ("counts", "on", "inside", "words"),
    [((0, 1), ("podman",), True, "not in --on"), ((0, 1), ("native",), False, "there is none")],
)
def test_no_containers_need_a_machine_to_have_none(
    counts: tuple[int, ...], on: tuple[str, ...], inside: bool, words: str
) -> None:
    with pytest.raises(UserInputError, match=words):
        rounds_boot.check(counts, on, inside=inside)
    rounds_boot.check((0,), ("native",), inside=True)
    rounds_boot.check((1,), ("podman",), inside=False)


def test_numbers_and_repetitions_of_the_command_line() -> None:
    assert counts_of("4,0,1", least=0) == (0, 1, 4)
    with pytest.raises(UserInputError, match="not a list of numbers from 0"):
        counts_of("-1,2", least=0)
    assert repeat_of(None, quick=True, at_once=True) == 1 and repeat_of(3, quick=True, at_once=True) == 3
    assert repeat_of(None, quick=True, at_once=False) == 6 and repeat_of(1, quick=False, at_once=True) == 1
    with pytest.raises(UserInputError, match="says nothing"):
        repeat_of(1, quick=True, at_once=False)
    assert repeat_of(1, quick=True, at_once=False, inside=True) == 1  # counts do not vary


# --- what comes of it


def test_what_an_instance_says_is_read_by_line() -> None:
    text = "noise\n" + line("pipe", 10.0, 20.0) + '{"test": "rm", "score": 1}\n' + line("pipe", 12.0, 24.0, 3.0, 5.0)
    assert said(text) == {"pipe": Said("pipe", 12.0, 24.0, 3.0, 5.0, 0.5)}
    assert said('{"test": "pipe", "score": 1e999, "units": 1, "began_s": 0, "ended_s": 1, "cpu_s": 1}\n') == {}
    assert said(line("pipe", 1.0, 1.0, 2.0, 2.0)) == {} and said(line("spawn", 1.0, 1.0).replace("0.5", "true")) == {}


@pytest.mark.lengthy
@given(st.text(max_size=200))
def test_whatever_an_instance_says_is_read(text: str) -> None:
    assert all(name in INDEX for name in said(text)) and set(about(text)) <= {"our set compiler", "our set flags"}


def test_the_figures_of_a_round_are_of_each_instance_and_of_the_machine() -> None:
    two = [Said("whetstone-double", 30.0, 30.0, 1.0, 2.0, 0.5), Said("whetstone-double", 20.0, 20.0, 1.25, 2.25, 0.25)]
    found = figures(two, Totals(early=5, kernel=1000, user=4000, ports=30, mmio=20))
    values = {(one.name, one.instance): one.value for one in found}
    assert values["score", 0] == 30.0 and values["score", 1] == 20.0
    assert values[CPU_SCORE, 0] == 60.0 and values[CPU_SCORE, 1] == 80.0
    assert (
        values["kernel a unit", 0] == 20.0 and values["user a unit", 0] == 80.0 and values["devices a unit", 0] == 1.0
    )
    assert values["virtual time", 1] == 1.0 and values["processor time", 1] == 0.25
    assert overlap(two) == pytest.approx(0.75) == values["overlap", 0]
    assert {one.unit for one in found if one.name == "score"} == {"MWIPS"}
    assert overlap([two[0], replace(two[1], began_s=2.5, ended_s=3.5)]) == 0.0


def totals(executed: int) -> Totals:
    return Totals(kernel=executed, user=10 * executed)


def counters(spans: Sequence[int], *, complete: bool = True) -> Counters:
    none = np.empty(0, np.uint64)
    blocks = Blocks(none, none, none, none.astype(bool), none, none, none)  # type: ignore[arg-type]
    ends = (("load", 100), ("load_end", 900)) if complete else (("load", 100),)
    stretches = tuple(Stretch("", name, totals(at), (), (), none, none, none) for name, at in ends)  # type: ignore[arg-type]
    return Counters(True, True, True, blocks, stretches, tuple(SpanReached(STEP, totals(at)) for at in spans))


def test_steps_are_told_apart_by_where_they_begin() -> None:
    # The first one is the question whether the system is ready, which is no step of the load.
    found = steps(counters([50, 110, 200, 450]))
    assert [one.kernel for one in found] == [90, 250, 450] and [one.user for one in found] == [900, 2500, 4500]
    assert steps(counters([])) == [] and steps(counters([110], complete=False)) == []


def gathered(log: str, *told: str, spans: Sequence[int] = (110, 200, 450, 500, 700)) -> Gathered:
    said_ = "".join(f"instance {number}\n{text}" for number, text in enumerate(told))
    files = [("bench-log", log), ("bench-said", said_)]
    return Gathered(
        End(Ending.EXITED, "qemu", "", "", 1.0, 0), 0.0, GuestReport(files=tuple(files)), counters=counters(spans)
    )


BOOT = Boot(Outcome.READY, (), 1.0)


def test_a_round_that_one_instance_missed_is_a_failure_and_the_others_are_not() -> None:
    wanted = RoundsBoot(2, (("pipe", 1.0), ("spawn", 3.0)))
    both = line("pipe", 10.0, 10.0), line("pipe", 30.0, 30.0)
    found = wanted.figures(BOOT, gathered("", both[0] + line("spawn", 1.0, 1.0), both[1]))
    pipe, spawn = found["pipe"], found["spawn"]
    assert isinstance(pipe, tuple) and isinstance(spawn, TrialFailed) and "1 of 2 instances" in spawn.message
    # The round of `pipe` is the second step: from 200 to 450.
    assert {one.name: one.value for one in pipe}["kernel"] == 250.0
    late = wanted.figures(BOOT, gathered("", both[0], line("pipe", 1.0, 1.0, 1.9, 2.9)))["pipe"]
    assert isinstance(late, TrialFailed) and "10 % of it" in late.message
    uncounted = wanted.figures(BOOT, gathered("", *both, spans=()))["pipe"]
    assert isinstance(uncounted, TrialFailed) and "did not count" in uncounted.message


class Played(GuestEngine):
    """A machine whose boots are played."""

    log = ""

    def driven(self, *_: object, **__: object) -> tuple[Boot, Gathered]:
        self.facts["boots"] = self.facts.get("boots", "") + "x"
        if self.log == "dead":
            raise GuestError("it did not start")
        return BOOT, gathered(self.log, line("pipe", 10.0, 10.0) + line("spawn", 5.0, 5.0))


def test_the_tests_of_one_number_share_a_boot(tmp_path: Path) -> None:
    job = replace(JOB, counts=(0,), only=("pipe", "spawn"))
    left = rounds_boot.planned(job, ROWS)
    machine = Played(INSIDE, description.load("native"), tmp_path)
    together = AtOnce(job, lambda: left)
    scores = [{one.name: one.value for one in together.figures(trial, machine)}["score"] for trial in left]
    assert scores == [10.0, 5.0] and machine.facts["boots"] == "x"
    assert together.seconds(left[0]) == together.seconds(left[1])
    assert all(map(together.has, left))


def test_a_test_that_was_left_out_for_the_sake_of_time_and_comes_back_has_a_boot_of_its_own(tmp_path: Path) -> None:
    job = replace(JOB, counts=(0,), only=("pipe", "spawn"))
    pipe, spawn = rounds_boot.planned(job, ROWS)
    left = [pipe]
    machine = Played(INSIDE, description.load("native"), tmp_path)
    together = AtOnce(job, lambda: left)
    assert together.figures(pipe, machine) and not together.has(spawn)
    left = [spawn]
    assert together.figures(spawn, machine) and machine.facts["boots"] == "xx"


def test_a_machine_without_engines_does_nothing_at_once() -> None:
    job = replace(JOB, suites=(SuiteName.UNIXBENCH,), machines=(replace(INSIDE.machine, name="vm:stock"),))
    found = harness.planned_trials(
        job, [FakeRow("vm:stock", counted=True), *(FakeRow(name, within=True) for name in ROWS)]
    )
    assert found and {one.runtime for one in found} == set(ROWS)
    assert any(text.startswith("vm:stock: unixbench: cannot tell") for text in cannot_tell(job))


def test_the_command_of_a_cell_is_taken(tmp_path: Path) -> None:
    launch._check_tests(replace(JOB, only=("pipe",), variant=VIRTUAL), with_machines=False, inside=False)
    with pytest.raises(UserInputError, match="no test of unixbench is run in the way"):
        launch._check_tests(replace(JOB, only=("pipe",), variant="upside down"), with_machines=False, inside=False)
    planned = rounds_boot.planned(JOB, ROWS)
    words = again_words(replace(JOB, host_name="a b"), planned[0])
    assert words[-4:] == ["--host-name", "a b", "-o", "again.json"]


@pytest.mark.parametrize(
    ("log", "words"), [("failed: podman is not there\n", "podman is not there"), ("dead", "not start")]
)
def test_a_machine_that_does_not_get_ready_is_the_reason_of_all(tmp_path: Path, log: str, words: str) -> None:
    job = replace(JOB, counts=(0,), only=("pipe", "spawn"))
    left = rounds_boot.planned(job, ROWS)
    machine = Played(INSIDE, description.load("native"), tmp_path)
    object.__setattr__(machine, "log", log)
    together = AtOnce(job, lambda: left)
    for trial in left:
        with pytest.raises(TrialFailed, match=words):
            together.figures(trial, machine)
    assert machine.facts["boots"] == "x"


def test_the_attendant_says_where_its_steps_begin() -> None:
    assert 0x7C000000 <= elf_symbols(locate().attendant.read_bytes())["job_start"] < 0x80000000


@pytest.mark.attack
def test_a_line_that_is_no_json_and_a_number_beyond_all_are_passed_over() -> None:
    deep, large = "[" * 5000, line("pipe", 1.0, 1.0).replace(": 1.0", ": 1" + "0" * 400, 1)
    assert large != line("pipe", 1.0, 1.0)
    assert said(f"{deep}\n{large}\n{line('spawn', 1.0, 1.0)}").keys() == {"spawn"} and about(deep) == {}


# --- the table


def trial(test: str, runtime: str, count: int, block: int, *scores: float, cpu: float = 1.0) -> BenchTrial:
    found = [BenchFigure("score", value, INDEX[test].unit, True, at) for at, value in enumerate(scores)]
    found += [BenchFigure(CPU_SCORE, value * cpu, INDEX[test].unit, True, at) for at, value in enumerate(scores)]
    found += [BenchFigure("kernel a unit", 7.0, "instructions"), BenchFigure("user a unit", 40000.0, "instructions")]
    return BenchTrial(SuiteName.UNIXBENCH, test, runtime, count, VIRTUAL, block, 0.0, 1.0, tuple(found))


def table() -> list[BenchTrial]:
    found = [trial(test, ROWS[0], 1, 1, 10 * row.baseline) for test, row in INDEX.items()]
    found += [trial(test, ROWS[1], 1, 1, 11 * row.baseline) for test, row in INDEX.items()]
    for count in (2, 3):
        scores = [11 * INDEX["dhry2reg"].baseline / count] * count
        found.append(trial("dhry2reg", ROWS[1], count, 1, *scores))
        found.append(trial("whetstone-double", ROWS[1], count, 1, *([605.0 / count] * count), cpu=count))
    return found


def test_data_n_stands_beside_the_published_shapes() -> None:
    (sheet,) = data_n.sheets(cells(table()))
    assert sheet.engine == ROWS[1] and sheet.counts == (0, 1, 2, 3) and sheet.repetitions == (1, 1)
    assert sheet.spread is None and sheet.instances == 0.0
    scores = {name: dict(values) for name, _, values in sheet.scores}
    assert scores["overall"] == pytest.approx({0: 100.0, 1: 110.0})
    rows = {row[0]: row for row in data_n.score_rows(sheet)}
    assert rows["dhry2reg"][2:] == (
        "1,167,000", "1,283,700", "641,850 (50.0 %; published 54.7 %)", "427,900 (33.3 %; published 44.2 %)",
    )  # fmt: skip
    assert rows["whetstone-double, by its processor time"][-1] == "605.0 (100.0 %; published 100.0 %)"
    assert rows["whetstone-double"][-1] == "201.7 (33.3 %)" and rows["overall"][-1] == "–"
    shapes = {name: (published, here) for name, published, here in data_n.shapes(sheet)}
    assert shapes["Dhrystone in 2 containers, of one's"] == ("54.7 %", "50.0 %")
    assert shapes["one container against the machine itself: overall"] == ("+10.8 %", "+10.00 %")  # one CPU's
    assert shapes["Whetstone in 3 containers, by virtual time"] == ("–", "33.3 %")
    assert "Dhrystone in 4 containers, of one's" not in shapes
    costs = {row[0]: row[2:] for row in data_n.instruction_rows(sheet)}
    assert costs["dhry2reg"] == ("7 + 40,000",) * 4 and costs["pipe"] == ("7 + 40,000",) * 2 + ("–",) * 2


def test_repetitions_and_instances_have_their_spread() -> None:
    found = [trial("pipe", ROWS[1], 2, 1, 90.0, 110.0), trial("pipe", ROWS[1], 2, 2, 95.0, 125.0)]
    (sheet,) = data_n.sheets(cells(found))
    assert dict(sheet.scores[0][2]) == {2: 105.0}  # the mean of means
    assert sheet.spread == pytest.approx(10 / 105) and sheet.instances == pytest.approx(25 / 105)
    assert "2 repetitions" in data_n.caption(sheet, quick=True) and "a tenth" in data_n.caption(sheet, quick=True)
    assert data_n.sheets(cells([replace(one, variant="w") for one in found])) == []
    (alone,) = data_n.sheets(cells([trial("pipe", ROWS[0], 1, 1, 90.0)]))
    assert alone.counts == (1,)


def test_the_page_has_the_tables_and_their_conditions() -> None:
    host = BenchHost("h", "6.1", "cpu", 2, 1 << 30, "x86_64", "v2", False, True)
    identities = (RuntimeIdentity(ROWS[1], "podman 4 in Linux 6.1"),)
    run = HostRun(host, "sha256:1", True, 1, (("repeat", "1"), ("our set flags", "-O3")), identities, tuple(table()))
    page = data_n_page(BenchResults("1", (run,)), ["a.json"])
    for words in (
        "`vmtailor bench report a.json --data-n`", "| test | unit | machine itself | 1 container | 2 containers |",
        "each test at a tenth of its duration", "Published shapes", "podman 4 in Linux 6.1",
        "| our set flags | -O3 |",
    ):  # fmt: skip
        assert words in page
    assert data_n_page(BenchResults("1", (replace(run, trials=()),)), ["a.json"]) == ""


def test_a_job_at_once_is_kept(tmp_path: Path) -> None:
    records.save(JOB, tmp_path / "job.json")
    assert records.load(BenchJob, tmp_path / "job.json") == JOB


def test_an_image_that_runs_within_a_machine_alone_is_not_asked_on_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be for another processor."""
    run: Any = None
    within: Any = SimpleNamespace(runtimes=(), machines=())
    here: Any = SimpleNamespace(runtimes=("native",), machines=())
    monkeypatch.setattr(harness, "SUITES", {})
    assert harness._facts(within, run, SuiteName.UNIXBENCH) == ((), [])
    with pytest.raises(KeyError):
        harness._facts(here, run, SuiteName.UNIXBENCH)
