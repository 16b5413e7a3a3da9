# SPDX-License-Identifier: Apache-2.0
"""Isolation: what ApacheBench says, what becomes of it in the map, and which limits reach which runtime."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from types import SimpleNamespace
from typing import Any

import pytest

from vmtailor.bench.analysis.benchmarks import RATIO, SILENT, T1, benchmark
from vmtailor.bench.analysis.cells import cells_of
from vmtailor.bench.analysis.heat_map import SHADES, heat_maps, tip
from vmtailor.bench.analysis.weighted_ranks import advise
from vmtailor.bench.model.instance import InstanceSpec, Limits, WriteLimit
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import (
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
from vmtailor.bench.pages.overview import overviews
from vmtailor.bench.runtimes.host_runtime import groups_of
from vmtailor.bench.runtimes.instance_cgroups import limit_files, write_limit
from vmtailor.bench.runtimes.networks import Link
from vmtailor.bench.runtimes.overlay_roots import bundle_config
from vmtailor.bench.suites import isolation
from vmtailor.bench.suites.bench_run import RUN_OVER, TrialFailed
from vmtailor.bench.suites.isolation import LIMITED, STRESSES, Isolation, stress_words, took_s

HOST = BenchHost("here", "6.1.0", "a processor", 2, 1 << 33, "x", "v2", False, False)
LINK = Link("/run/netns/bench0", "10.77.0.2", "10.77.0.1")
SAID = b"""Complete requests:      500
Failed requests:        %d
Time taken for tests:   0.250 seconds
"""


def trial(runtime: str, block: int, *ratios: float, silent: int = 0, note: str = "") -> BenchTrial:
    figures = [BenchFigure(SILENT, silent, "of 4")]
    for number, ratio in enumerate(ratios):
        figures += [BenchFigure(T1, 1.0, "s", False, number), BenchFigure(RATIO, ratio, "×", False, number)]
    return BenchTrial(
        SuiteName.ISOLATION, "cpu", runtime, 1, LIMITED, block, 0.0, 1.0, tuple(figures), notes=(note,) if note else ()
    )


def run_of(*trials: BenchTrial) -> HostRun:
    names = dict.fromkeys(one.runtime for one in trials)
    return HostRun(HOST, "sha256:0", True, 1, (), tuple(RuntimeIdentity(name) for name in names), trials)


@pytest.mark.parametrize(
    ("said", "took"),
    [
        (SAID % 0, 0.25),
        (SAID % 3, None),
        (SAID.replace(b"500", b"499") % 0, None),
        (SAID % 0 + b"Non-2xx responses:      500\n", None),
        (b"apr_socket_recv: Connection reset by peer (104)\n", None),
    ],
)
def test_an_instance_reports_only_when_all_its_answers_are_right(said: bytes, took: float | None) -> None:
    assert took_s(said, 500) == took


@pytest.mark.parametrize(
    ("ended", "did_run"),
    [
        ("exit 0", False),
        ("exit 127", False),
        ("exit 1", True),  # a program that gave up, as one does whose memory or network came to an end
        ("kill -9 $$", True),  # what limits do
        ("exec sleep 60", True),
    ],
)
def test_a_stress_that_ended_without_having_been_one_is_a_failure(ended: str, did_run: bool, tmp_path: Path) -> None:
    with subprocess.Popen(["sh", "-c", ended]) as process, TemporaryFile() as out, TemporaryFile() as errors:
        if not ended.startswith("exec"):
            process.wait()
        errors.write(b"sh: Syntax error\n")
        errors.flush()
        five = isolation._Five([], LINK, process, [(out, errors)], tmp_path / "go")
        if did_run:
            five.require_stressed()
        else:
            with pytest.raises(TrialFailed, match="the stress did not run") as raised:
                five.require_stressed()
            assert raised.value.details == "sh: Syntax error"
        process.kill()


@pytest.mark.parametrize(
    ("memory", "disk", "left_s", "words"),
    [
        (0, 1 << 40, 60.0, "the watchdog ended it: the host's memory came to an end"),
        (1 << 50, 0, 60.0, "the watchdog ended it: the host's disk came to an end"),
        (1 << 50, 1 << 40, -1.0, RUN_OVER),
        (1 << 50, 1 << 40, 60.0, ""),
    ],
)
def test_who_is_asked_is_not_waited_for_when_the_host_or_the_time_comes_to_an_end(
    memory: int, disk: int, left_s: float, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "available_bytes", lambda: memory)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=disk))
    program = tmp_path / "ab"
    program.write_text("#!/bin/sh\n" + ("exec sleep 60\n" if words else f"sleep 0.1; echo '{(SAID % 0).decode()}'\n"))
    program.chmod(0o755)
    monkeypatch.setattr(isolation, "require_tool", lambda *_: str(program))
    run: Any = SimpleNamespace(folder=tmp_path, left_s=lambda: left_s)
    began = time.monotonic()
    if words:
        with pytest.raises(TrialFailed, match=words):
            isolation._asked(["10.77.1.2"], 500, 50.0, run)
    else:
        assert isolation._asked(["10.77.1.2"], 500, 50.0, run) == [0.25]
    assert time.monotonic() - began < 40.0


def test_the_map_has_what_was_lost_in_percent_and_who_did_not_report() -> None:
    blocks = range(1, 5)
    mild = [trial("native", block, 1.0, 1.2, 1.1, 1.1) for block in blocks]
    half = [trial("lxc", block, 3.0, 3.0, silent=2, note="it still ran") for block in blocks]
    dead = [trial("docker", block, silent=4) for block in blocks]
    failed = [replace(trial("gvisor", 1), figures=(), failure=BenchFailure("<b>it was refused"))]
    (found,) = heat_maps(run_of(*mild, *half, *dead, *failed))
    ((stress, cells),) = found.rows
    by_name = dict(zip(found.runtimes, cells, strict=True))
    assert stress == "cpu" and all(one is not None for one in cells)
    words = {name: one.words for name, one in by_name.items() if one}
    assert words == {
        "native": "+10 %", "lxc": "at least +200 %, 50 % did not report", "docker": "did not report", "gvisor": "failed"
    }  # fmt: skip
    shades = {name: one.shade for name, one in by_name.items() if one}
    assert shades["native"] < shades["lxc"] == shades["docker"] == SHADES
    lxc = by_name["lxc"]
    assert lxc is not None and "it still ran" in tip("cpu", "lxc", lxc) and "4 samples" in tip("cpu", "lxc", lxc)
    page = bench_page(BenchResults("0", (run_of(*mild, *half, *dead, *failed),)))
    assert "50 % did not report" in page and "<b>it was refused" not in page and 'class="heat"' in page


LOSSES = benchmark(SuiteName.ISOLATION, "cpu")


def test_who_did_not_report_lost_the_most_and_not_nothing() -> None:
    found = LOSSES.measured(isolation.losses([0.5, 1.0], [0.6, None], 20.0))
    by = {(figure.name, figure.instance): figure.value for figure in found}
    assert by["did not report", 0] == 1.0 and ("t2", 1) not in by
    assert by["t2 / t1", 0] == pytest.approx(1.2) and by["t2 / t1", 1] == pytest.approx(20.0)

    def tried(runtime: str, after: list[float | None], block: int) -> BenchTrial:
        return replace(trial(runtime, block), figures=LOSSES.measured(isolation.losses([1.0] * 4, after, 20.0)))

    blocks = range(1, 7)
    fine = [tried("native", [1.1] * 4, block) for block in blocks]
    half = [tried("lxc", [1.0, 1.0, None, None], block) for block in blocks]
    dead = [tried("docker", [None] * 4, block) for block in blocks]
    run = run_of(*fine, *half, *dead)
    ((_, cells),) = heat_maps(run)[0].rows
    words = [one.words for one in cells if one]
    assert sorted(words) == ["+10 %", "at least +950 %, 50 % did not report", "did not report"]
    (sheet,) = overviews(run, cells_of(run))
    (row,) = sheet.rows
    said = dict(zip(sheet.runtimes, (cell.words for cell in row.cells), strict=True))
    assert said["lxc"] == "≥ 9.55×" and said["docker"] == "≥ 18.18×" and not said["native"].startswith("≥")
    ranked = advise(run, {"isolation": 1.0}).ranked
    assert [one.runtime for one in ranked] == ["native", "lxc", "docker"]  # the worst costs nobody but itself


def test_every_stress_ends_by_itself_and_is_capped() -> None:
    for stress in STRESSES:
        words = stress_words(stress, 30.0, LINK, 1 << 30)
        assert "30" in words or "30s" in words
    assert "1000" in stress_words("fork-bomb", 30.0, LINK, 1 << 30)
    assert str(1 << 30) in stress_words("memory", 30.0, LINK, 1 << 30)


def test_the_quick_form_has_limits_only_and_says_so() -> None:
    job = BenchJob((SuiteName.ISOLATION,), ("native",), (1,), 6, True, 1, "", "", "", "", "", "")
    assert {test.variant for test in Isolation().tests(job)} == {LIMITED}
    assert "without limits" in Isolation().left_out(job)[0]
    full = replace(job, quick=False)
    assert len(Isolation().tests(full)) == 2 * len(STRESSES) == 14 and Isolation().left_out(full) == ()
    assert not any(test.warm_up for test in Isolation().tests(full))  # t1 is what each trial compares with


def test_a_limit_to_disk_reaches_cgroups_options_and_bundles() -> None:
    limits = Limits(write=WriteLimit(8, 16, "/dev/sdb", 1000))
    assert limit_files(limits, unified=True) == [("io.max", "8:16 wbps=1000")]
    assert limit_files(limits, unified=False) == [("blkio.throttle.write_bps_device", "8:16 1000")]
    spec = InstanceSpec("x", ("true",), limits)
    assert groups_of(spec)["write"] == [{"device": "/dev/sdb", "write_bytes_s": "1000"}]
    throttled = bundle_config(spec)["linux"]["resources"]["blockIO"]["throttleWriteBpsDevice"]
    assert throttled == [{"major": 8, "minor": 16, "rate": 1000}]


@pytest.mark.parametrize("partition", [False, True])
def test_the_limit_is_on_the_whole_disk(tmp_path: Path, partition: bool) -> None:
    device = tmp_path.stat().st_dev
    whole = tmp_path / "devices" / "vdz"
    part = whole / "vdz1" if partition else whole
    part.mkdir(parents=True)
    (whole / "dev").write_text("254:32\n")
    if partition:
        (part / "partition").write_text("1\n")
    place = tmp_path / "sys/dev/block"
    place.mkdir(parents=True)
    assert write_limit(tmp_path, 5, tmp_path / "sys") is None  # no block device of that number
    (place / f"{os.major(device)}:{os.minor(device)}").symlink_to(part)
    assert write_limit(tmp_path, 5, tmp_path / "sys") == WriteLimit(254, 32, "/dev/vdz", 5)


@pytest.mark.parametrize("requests", [isolation.QUICK_REQUESTS, isolation.REQUESTS])
def test_patience_follows_from_what_is_asked(requests: int) -> None:
    """A server that is slow undisturbed is waited for, and its t2 as many times as long as that of a fast one."""
    assert requests / isolation.SLOWEST == requests * 0.04  # 30,000 requests at 100 a second are no failure
    for rate in (100_000, 1000, isolation.PATIENCE * isolation.LEAST_RATE):
        t1 = requests / rate
        assert isolation.patience(t1, requests) == max(isolation.LEAST_PATIENCE_S, 20 * t1)
    assert isolation.patience(requests / isolation.SLOWEST, requests) == requests / 10
    assert isolation.patience(0.001, requests) == isolation.LEAST_PATIENCE_S
