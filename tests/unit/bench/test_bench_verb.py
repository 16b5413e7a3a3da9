# SPDX-License-Identifier: Apache-2.0
"""`vmtailor bench`: what it is told, refused before anything is started; and results shown without root."""

from __future__ import annotations

import json
import os
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.fakes.bench_rows import FakeRow

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.bench.analysis.cells import against
from vmtailor.bench.analysis.host_runs import compared, pairs
from vmtailor.bench.analysis.weighted_ranks import Hold, advise, parse_weights
from vmtailor.bench.cli import bench_command
from vmtailor.bench.cli.bench_command import counts_of, runtimes_of, suites_of
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import (
    CLOCK,
    BenchFailure,
    BenchFigure,
    BenchHost,
    BenchResults,
    BenchTrial,
    HostRun,
    RuntimeIdentity,
    SuiteName,
)
from vmtailor.bench.pages.bench_page import bench_page
from vmtailor.bench.run import launch
from vmtailor.bench.run.harness import again, planned_trials
from vmtailor.bench.run.launch import bench
from vmtailor.bench.runtimes import description
from vmtailor.bench.runtimes.host_state import stable_name
from vmtailor.bench.suites.registry import SUITES
from vmtailor.cli.verbs import _BY_NAME, command
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import KvmState, KvmVerdict
from vmtailor.model.change import Verdict

CRUN = Path(__file__).parents[3] / "examples/runtimes/crun.toml"
HOST = BenchHost("here", "6.1.0", "a processor", 2, 1 << 33, "x", "v2", False, False)
TIMES = {"native": 0.001, "docker": 0.5, "lxc": 0.05}


def results(*, hostile: str = "") -> BenchResults:
    draw = random.Random(5)
    trials = [
        BenchTrial(
            SuiteName.STARTUP, "serial", name, count, "warm", block, float(block), 1.0,
            (BenchFigure("all reported", seconds * count * draw.uniform(0.95, 1.05), "s"),), command="vmtailor bench",
        )
        for name, seconds in TIMES.items()
        for count in (1, 4)
        for block in range(1, 9)
    ]  # fmt: skip
    bad = replace(trials[0], runtime="gvisor", figures=(), failure=BenchFailure("it ended with 128", hostile))
    rows = (
        *(RuntimeIdentity(name) for name in TIMES),
        RuntimeIdentity("gvisor", hostile),
        RuntimeIdentity("x", missing="m"),
    )
    return BenchResults("0", (HostRun(HOST, "sha256:0", True, 1, (), rows, (*trials, bad), ("x: m",)),))


def said(*arguments: str) -> Any:
    return CliRunner().invoke(command(_BY_NAME["bench"]), list(arguments))


def job_of(**more: Any) -> BenchJob:
    job = BenchJob((SuiteName.STARTUP,), ("native",), (1,), 10, False, 1, out="/none/b.json", reference="oci:nowhere")
    return replace(job, **more)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: suites_of("speed"), "no suite 'speed'"),
        (lambda: counts_of("1,0"), "not a list of numbers"),
        (lambda: counts_of("many"), "not a list of numbers"),
        (lambda: runtimes_of(" , "), "names no runtime"),
        (lambda: bench(job_of(variant="lukewarm"), Store()), "in the way 'lukewarm'"),
        (lambda: parse_weights("startup"), "not SUITE=NUMBER"),
        (lambda: parse_weights("startup=nan"), "not SUITE=NUMBER"),
        (lambda: parse_weights("startup=0"), "all are 0"),
    ],
)
def test_what_is_wrong_is_named(call: Any, words: str) -> None:
    with pytest.raises(UserInputError, match=words):
        call()


@pytest.mark.parametrize(
    ("only", "runtimes", "words"), [(("reprot",), ("native",), "no test 'reprot'"), ((), ("xen",), "no runtime 'xen'")]
)
def test_unknown_tests_and_runtimes_are_refused_before_anything(
    tmp_path: Path, only: tuple[str, ...], runtimes: tuple[str, ...], words: str
) -> None:
    job = job_of(runtimes=runtimes, out=str(tmp_path / "b.json"), only=only)
    with pytest.raises(UserInputError, match=words):
        bench(job, Store(tmp_path / "c"))
    assert not (tmp_path / "c").exists() and not (tmp_path / "b.json").exists()


@pytest.mark.lengthy
def test_the_page_shows_all_and_nothing_from_outside_steers_it() -> None:
    page = bench_page(results(hostile="</script><script>alert(1)</script>"))
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page
    for words in ("docker", "it ended with 128", "Left out", "Quick form", "polyline", "vmtailor bench"):
        assert words in page


def test_results_are_shown_and_written_without_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(monitors.usual(), "kvm", lambda: KvmVerdict(KvmState.HANGS, "not asked"))
    with pytest.raises(HostError, match="running engines needs root"):
        bench(job_of(), Store())
    file, page, csv = tmp_path / "b.json", tmp_path / "p.html", tmp_path / "s.csv"
    records.save(results(), file)
    shown = said("report", str(file))
    assert shown.exit_code == 0 and "docker" in shown.output and "worse" in shown.output
    written = said("report", str(file), "-o", str(page), "--csv", str(csv))
    assert written.exit_code == 0 and page.stat().st_size > 5000 and csv.read_text().count("\n") == 1 + 48 + 1
    document = json.loads(said("compare", str(file), str(file), "--json").stdout)
    assert document["schema"] == "vmtailor/bench-compare/2" and len(document["pairs"]) == 1
    assert len(document["pairs"][0]["cells"]) == 7 and document["not_compared"] == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("startup", "b.json"), "startup takes no files"),
        (("all", "b.json"), "all takes no files"),
        (("report",), "no results were named"),
        (("report", "--published"), "no results were named"),
        (("advise", "--weights", "startup=1"), "no results were named"),
        (("compare",), "compare takes two files"),
        (("compare", "b.json", "b.json", "b.json"), "compare takes two files"),
        (("advise",), "no results were named"),
    ],
)
def test_files_and_weights_that_are_too_many_or_not_there_are_refused(
    words: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_command, "measure", lambda *_, **__: pytest.fail("it was measured"))
    monkeypatch.chdir(tmp_path)
    records.save(results(), tmp_path / "b.json")
    ended = said(*words)
    assert isinstance(ended.exception, UserInputError) and says in ended.exception.message
    assert ended.stdout == "" and ended.exception.hint


def test_json_is_one_document(tmp_path: Path) -> None:
    file, page = tmp_path / "b.json", tmp_path / "p.html"
    records.save(results(), file)
    for words in ((), ("-o", str(page))):
        assert json.loads(said("report", str(file), "--json", *words).stdout) == json.loads(file.read_text())
    assert page.exists()
    document = json.loads(said("advise", str(file), "--weights", "startup=2", "--json").stdout)
    assert document["schema"] == "vmtailor/bench-advice/2" and document["weights"] == {"startup": 2.0}
    (row,) = document["runs"]
    assert [one["runtime"] for one in row["ranked"]] == ["native", "lxc", "docker"] and row["quick"] is True


def test_compare_refuses_what_is_not_alike() -> None:
    one = results()
    full = replace(one, runs=(replace(one.runs[0], quick=False),))
    there = replace(HOST, name="there")
    other = replace(one, runs=(replace(one.runs[0], image_digest="sha256:1", host=there),))
    for second, words in ((full, "quick form"), (other, "different images"), (BenchResults("0"), "holds no run")):
        with pytest.raises(UserInputError, match=words):
            pairs(one, second)
    ((same,), _) = pairs(one, one)
    found = compared(same.before, same.after)
    assert {str(c.change.verdict) for c in found if c.change} <= {"same", "undecided"} and not same.other_image


def test_every_run_of_merged_files_is_compared_with_that_of_its_host() -> None:
    one = results().runs[0]
    there = replace(one, host=replace(HOST, name="there"))
    full = replace(one, quick=False)
    before, after = BenchResults("0", (there, one)), BenchResults("0", (one, there, full))
    found, lacking = pairs(before, after)
    assert [(pair.before.host.name, pair.after.host.name) for pair in found] == [("here", "here"), ("there", "there")]
    assert len(lacking) == 1 and "quick form" in lacking[0]
    # A host that the first file does not have is compared with all that it has; one file's runs with its first.
    found, _ = pairs(before, BenchResults("0", (replace(one, host=replace(HOST, name="new")),)))
    assert [pair.before.host.name for pair in found] == ["there", "here"]
    found, _ = pairs(before)
    assert [(pair.before.host.name, pair.after.host.name) for pair in found] == [("there", "here")]
    with pytest.raises(UserInputError, match="nothing to compare"):
        pairs(results())


def test_images_of_other_processors_are_compared_and_each_row_says_so(tmp_path: Path) -> None:
    one = results()
    elsewhere = replace(HOST, name="there", architecture="y")
    other = BenchResults("0", (replace(one.runs[0], image_digest="sha256:1", host=elsewhere),))
    ((pair,), _) = pairs(one, other)
    assert pair.other_image
    records.save(one, tmp_path / "a.json")
    records.save(other, tmp_path / "b.json")
    shown = said("compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    assert shown.exit_code == 0 and shown.output.count("other image") >= 6 and "Two images" in shown.output
    document = json.loads(said("compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--json").stdout)
    assert document["pairs"][0]["other_image"] is True


def test_two_images_of_one_host_are_compared_by_name(tmp_path: Path) -> None:
    one = results().runs[0]
    lean = replace(one, image_digest="sha256:" + 64 * "1", options=(("image", "oci:lean"),))
    records.save(BenchResults("0", (one, lean)), tmp_path / "both.json")
    shown = said("compare", str(tmp_path / "both.json"))
    assert shown.exit_code == 0 and "oci:lean (111111111111)" in shown.output
    assert "Two images: that they hold the same is not checked." in shown.output
    document = json.loads(said("compare", str(tmp_path / "both.json"), "--json").stdout)
    assert document["pairs"][0]["images"][1] == "oci:lean (111111111111)"
    # Beside another measurement of both, each image goes with itself.
    found, _ = pairs(BenchResults("0", (one, lean)), BenchResults("0", (lean, one)))
    assert [pair.other_image for pair in found] == [False, False]


def test_several_images_are_measured_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    out, asked = tmp_path / "b.json", list[str]()

    def measured(job: BenchJob, *_: object, **__: object) -> BenchResults:
        asked.append(job.reference)
        before = records.load(BenchResults, out).runs if out.is_file() else ()
        run = replace(results().runs[0], image_digest=f"sha256:{len(asked)}", options=(("image", job.reference),))
        records.save(found := BenchResults("0", (*before, run)), out)
        return found

    monkeypatch.setattr(bench_command, "measure", measured)
    ended = said("startup", "--image", "oci:full,oci:lean", "--image", "oci:full", "-o", str(out))
    assert ended.exit_code == 0 and asked == ["oci:full", "oci:lean"]
    assert "Two images" in ended.output and "oci:full (1)" in ended.output and "oci:lean (2)" in ended.output


def test_a_host_is_called_by_a_digest_that_stays_and_says_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "machine-id").write_text("0123456789abcdef0123456789abcdef\n")
    name = stable_name(tmp_path, tmp_path)
    assert re.fullmatch("host-[0-9a-f]{8}", name) and name == stable_name(tmp_path, tmp_path)
    (tmp_path / "machine-id").write_text("another\n")
    assert stable_name(tmp_path, tmp_path) != name and "0123" not in name
    devices = tmp_path / "net"
    (devices / "eth0/device").mkdir(parents=True)
    (devices / "eth0/address").write_text("52:54:00:00:00:01\n")
    of_devices = stable_name(tmp_path / "nothing", devices)
    assert of_devices.startswith("host-") and of_devices != name
    assert stable_name(tmp_path / "nothing", tmp_path / "none") == "host"


def test_advice_ranks_and_says_when_it_can_tell() -> None:
    run = results().runs[0]
    found = advise(run, {"startup": 1.0})
    assert [one.runtime for one in found.ranked] == ["native", "lxc", "docker"]
    assert found.decided and found.ranked[0].first == 1.0
    assert found.holds == (Hold("startup", None, "", None, ""),)  # the only suite: its weight does not matter
    assert any("gvisor" in text for text in found.left_out)
    with pytest.raises(UserInputError, match="nothing of the suite 'memory'"):
        advise(run, {"memory": 1.0})


def of_scores(scores: Mapping[str, tuple[float, float]]) -> HostRun:
    """Each runtime's times in two suites."""
    trials = tuple(
        BenchTrial(suite, "test", name, 1, "", block, 0.0, 1.0, (BenchFigure("took", value + block / 1e6, "s"),))
        for name, values in scores.items()
        for suite, value in zip((SuiteName.STARTUP, SuiteName.MEMORY), values, strict=True)
        for block in range(1, 9)
    )
    return HostRun(HOST, "sha256:0", False, 1, (), (), trials)


def test_advice_says_how_far_each_weight_can_go_until_another_is_first(tmp_path: Path) -> None:
    run = of_scores({"a": (1.0, 8.0), "b": (8.0, 2.0), "c": (2.0, 7.9)})
    weights = {"startup": 1.0, "memory": 1.0}
    found = advise(run, weights)
    assert found.ranked[0].runtime == "a"
    startup, memory = found.holds
    assert (startup.below, startup.most, memory.least, memory.above) == ("b", None, None, "b")
    assert startup.least == pytest.approx(2 / 3, rel=1e-3) and memory.most == pytest.approx(1.5, rel=1e-3)
    for weight, first in ((0.66, "b"), (0.67, "a"), (1e6, "a"), (0.0, "b")):
        assert advise(run, {**weights, "startup": weight}).ranked[0].runtime == first
    file = tmp_path / "a.json"
    records.save(BenchResults("0", (run,)), file)
    shown = said("advise", str(file), "--weights", "startup=1,memory=1")
    assert "startup, weighing 1: a is first from 0.667 (below: b)" in shown.output
    assert "memory, weighing 1: a is first up to 1.5 (above: b)" in shown.output


def test_advice_ranks_those_that_are_named(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    records.save(BenchResults("0", (of_scores({"a": (1.0, 1.0), "b": (8.0, 2.0), "c": (2.0, 7.9)}),)), file)
    words = ("advise", str(file), "--weights", "startup=1")
    shown = said(*words, "--on", "b,c")
    assert shown.exit_code == 0 and "c is first" in shown.output and " a " not in shown.output
    ended = said(*words, "--on", "b,nobody")
    assert isinstance(ended.exception, UserInputError) and "'nobody' was not measured" in str(ended.exception)


def test_advice_of_what_is_the_same_cannot_tell() -> None:
    draw = random.Random(9)
    trials = tuple(
        BenchTrial(
            SuiteName.STARTUP, "report", name, 1, "warm", block, 0.0, 1.0,
            (BenchFigure("exit", draw.lognormvariate(0, 0.2), "s"),),
        )
        for name in ("native", "lxc")
        for block in range(1, 9)
    )  # fmt: skip
    found = advise(HostRun(HOST, "sha256:0", False, 1, (), (), trials), {"startup": 1.0})
    assert not found.decided and len(found.ranked) == 2
    assert set(found.untold) | {found.ranked[0].runtime} == {"native", "lxc"}  # and it says from whom


def test_results_go_into_a_file(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="is a folder"):
        bench(job_of(out=str(tmp_path)), Store(tmp_path / "c"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"out": "/dev/shm/b.json"}, "the results would lie below /dev/shm"),
        ({"out": "/run/b.json"}, "the results would lie below /run"),
        ({"runtimes": ("vm:/dev/shm/bundle",)}, "vm:/dev/shm/bundle would lie below /dev/shm"),
        ({"insides": ("vm:x.raw", "vm:/run/x.raw")}, "vm:/run/x.raw would lie below /run"),
        ({"iozone_source": "/proc/x"}, "/proc/x would lie below /proc"),
    ],
)
def test_what_a_run_would_not_see_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    store, job = Store(tmp_path / "c"), job_of(out=str(tmp_path / "b.json"))
    launch._require_seen(job, store, ())
    insides = changes.pop("insides", ())
    with pytest.raises(UserInputError, match=words):
        launch._require_seen(replace(job, **changes), store, insides)


def test_counts_are_compared_as_counts() -> None:
    def counted(value: float) -> HostRun:
        trials = tuple(
            BenchTrial(
                SuiteName.STARTUP, "boot", "vm:stock", 1, CLOCK, n, 0.0, 1.0, (BenchFigure("kernel", value, "i"),)
            )
            for n in (1, 2)
        )
        return HostRun(HOST, "sha256:0", True, 1, (), (), trials)

    (one,) = compared(counted(1000), counted(1100))
    assert one.change is not None and one.change.verdict is Verdict.WORSE and one.change.ratio == 1.1


def test_no_ratio_is_below_nothing() -> None:
    found = against([1.0, 9.0], [1.1, 8.0], larger_is_better=False)
    assert found is not None and found.low is not None and found.low >= 0


def cells_of_command(words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> set[tuple[object, ...]]:
    """The cells that a command would measure: what its words become, and what is planned for that."""
    asked: list[BenchJob] = []

    def note(job: BenchJob, *_: object, **__: object) -> BenchResults:
        asked.append(job)
        return BenchResults("0")

    monkeypatch.setattr(bench_command, "measure", note)
    program, name, *rest = words
    assert (program, name) == ("vmtailor", "bench")
    ended = said(*rest)
    assert ended.exit_code == 0, ended.output
    (job,) = asked
    return {one.key for one in planned_trials(job, [FakeRow(description.load(name).name) for name in job.runtimes])}


@pytest.mark.lengthy
@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("netperf", ["", "/a b/netperf"])
def test_the_command_of_a_cell_measures_that_cell_in_the_same_order_and_no_other(
    quick: bool, netperf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = BenchJob(
        tuple(SUITES), ("native", str(CRUN)), (1, 4), 3, quick, 4711, "", "", "", "", "", "", netperf_source=netperf
    )
    whole = planned_trials(job, [FakeRow("native"), FakeRow("crun")])
    for one in {(trial.test, trial.runtime): trial for trial in whole}.values():
        found = cells_of_command(again(job, one), monkeypatch)
        # All of this cell; native's beside it, which it is compared with; nothing else.
        ways = {"native", one.runtime}
        assert found == {trial.key for trial in whole if trial.test == one.test and trial.runtime in ways}


def test_the_terminal_says_why_two_counted_boots_are_enough(tmp_path: Path) -> None:
    trials = tuple(
        BenchTrial(
            SuiteName.STARTUP, "boot", "vm:stock", 1, CLOCK, n, 0.0, 1.0, (BenchFigure("kernel", value, "i"),)
        )
        for n, value in ((1, 1000.0), (2, 1001.0))
    )  # fmt: skip
    run = HostRun(HOST, "sha256:0", True, 1, (), (RuntimeIdentity("vm:stock"),), trials)
    records.save(BenchResults("0", (run,)), tmp_path / "b.json")
    shown = said("report", str(tmp_path / "b.json"))
    assert shown.exit_code == 0 and "2 counted boots" in shown.output
