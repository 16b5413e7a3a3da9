# SPDX-License-Identifier: Apache-2.0
"""What the host does besides: the clocks of all its processors, looked at again and again."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from vmtailor.bench.analysis.benchmarks import test_words as words_of
from vmtailor.bench.model.results import HostNoise
from vmtailor.bench.runtimes.host_state import Clocks, ProcessorTimes, clock_mhz, clocks_mhz

QUIET = HostNoise(0.0, 0.0)


def processors(folder: Path, *khz: int) -> Path:
    for number, value in enumerate(khz):
        file = folder / f"cpu{number}/cpufreq/scaling_cur_freq"
        file.parent.mkdir(parents=True)
        file.write_text(f"{value}\n")
    (folder / "cpufreq").mkdir(exist_ok=True)
    return folder


def test_every_processor_is_read(tmp_path: Path) -> None:
    assert sorted(clocks_mhz(processors(tmp_path / "sys", 800_000, 3_000_000, 2_400_000))) == [800.0, 2400.0, 3000.0]
    (tmp_path / "cpuinfo").write_text("processor: 0\ncpu MHz\t\t: 2445.406\nprocessor: 1\ncpu MHz\t\t: 1200.000\n")
    assert clocks_mhz(tmp_path / "none", tmp_path) == [2445.406, 1200.0]
    (tmp_path / "cpuinfo").write_text("processor: 0\n")
    assert clocks_mhz(tmp_path / "none", tmp_path) == []
    assert clock_mhz() is None or clock_mhz() > 0  # type: ignore[operator]  # this host, whatever it tells


def test_clocks_are_looked_at_while_a_block_runs() -> None:
    reads = iter([[1000.0, 2000.0], [1100.0, 3000.0]])
    with Clocks(0.01, lambda: next(reads, [1500.0, 1500.0])) as clocks:
        deadline = time.monotonic() + 20
        while clocks.looks < 5 and time.monotonic() < deadline:
            time.sleep(0.005)
    looks = clocks.looks
    time.sleep(0.05)
    assert clocks.looks == looks >= 5  # and no longer
    told = clocks.told(QUIET)
    assert (told.clock_low_mhz, told.clock_mhz, told.clock_high_mhz) == (1000.0, 1500.0, 3000.0)
    assert told.clock_looks == looks


def test_where_nobody_tells_nothing_is_said() -> None:
    with Clocks(0.01, list) as clocks:
        pass
    assert clocks.told(QUIET) == QUIET


def test_a_block_that_fails_ends_the_looking() -> None:
    clocks = Clocks(0.01, lambda: [1.0])
    try:
        with clocks:
            raise KeyError
    except KeyError:
        pass
    looks = clocks.looks
    time.sleep(0.05)
    assert clocks.looks == looks


def test_what_others_take_is_neither_idle_nor_the_hypervisors_nor_ours() -> None:
    now, before = ProcessorTimes(110.0, 84.0, 3.0), ProcessorTimes(100.0, 80.0, 1.0)
    found = now.noise_since(before, 3.0)
    assert found.steal == pytest.approx(0.2) and found.others == pytest.approx(0.1)
    assert now.noise_since(before, 5.0).others == 0.0  # cgroups count more finely than the host does
    none = before.noise_since(before, 1.0)
    assert (none.steal, none.others) == (0.0, 0.0)


def test_what_comes_from_the_page_cache_is_named_for_both_disk_tests() -> None:
    ours, iozone = (words_of("efficiency", "disk", variant) for variant in ("", "IOzone"))
    assert "asked to forget the file; reread from the page cache" in ours
    assert "Read and reread both come from the page cache" in iozone
