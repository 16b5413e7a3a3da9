# SPDX-License-Identifier: Apache-2.0
"""The time that a compile still takes: held against compiles that were recorded line by line, and against ones that are
made up where a machine's load would blur what is meant."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vmtailor.base import processor_times
from vmtailor.drivers.kernel.make import FIRST_S, HEADERS, Remaining

RECORDED = Path(__file__).parent.parent / "data" / "compile"


def play(lines: list[tuple[float, str]], weights: dict[str, float], end_s: float) -> list[tuple[float, float, float]]:
    """What was promised after each object: seconds since the start, seconds promised, seconds that were left."""
    progress = Remaining(weights)
    found = []
    for at, line in lines:
        if progress.see(line, at) and progress.seconds_left is not None:
            found.append((at, progress.seconds_left, end_s - at))
    return found


def recorded(name: str) -> tuple[list[tuple[float, str]], dict[str, float], float]:
    """A compile as it was: its lines, what its objects weigh, and how long it took."""
    _, total, *rows = (RECORDED / name).read_text().splitlines()
    lines: list[tuple[float, str]] = []
    weights: dict[str, float] = {}
    for row in rows:
        at, what, *size = row.split()
        if what.startswith("-"):
            lines.append((float(at), f"  HOSTCC  scripts/{what[1:]}"))
            continue
        lines.append((float(at), f"  CC      {what}.o"))
        if int(size[0]):
            weights[what] = int(size[0]) + HEADERS
    return lines, weights, float(total.removeprefix("# "))


@pytest.mark.parametrize(("name", "until_s"), [("steady.txt", 1900.0), ("cold.txt", 220.0)])
def test_a_recorded_compile_is_foretold_within_30_percent_after_its_first_minute(name: str, until_s: float) -> None:
    """Of the cold one until others began on that machine, and took half of it: that could not be foretold."""
    promised = [row for row in play(*recorded(name)) if 60 <= row[0] <= until_s]
    assert len(promised) > 100
    wrong = [(at, said / left) for at, said, left in promised if not 0.7 <= said / left <= 1.3]
    assert not wrong, wrong[:5]


def objects(count: int) -> dict[str, float]:
    return {f"fs/o{n}": HEADERS + 2_000.0 * (n % 30) for n in range(count)}


def run(weights: dict[str, float], takes_s: list[float]) -> tuple[list[tuple[float, str]], float]:
    at, lines = 0.0, []
    for name, took in zip(weights, takes_s, strict=True):
        lines.append((at, f"  CC      {name}.o"))
        at += took
    return lines, at


def test_what_the_cache_has_first_does_not_promise_that_it_has_the_rest() -> None:
    """The first third is found, the rest is compiled: a pace of objects a second would promise a third of the time."""
    weights = objects(600)
    takes = [0.05 if n < 200 else weights[f"fs/o{n}"] / HEADERS for n in range(600)]
    lines, end = run(weights, takes)
    late = [(said, left) for at, said, left in play(lines, weights, end) if at > 70 and left > 30]
    assert late and all(0.7 <= said / left <= 1.3 for said, left in late)


def test_large_files_come_last() -> None:
    weights = {f"a{n}": HEADERS for n in range(200)} | {f"b{n}": 6.0 * HEADERS for n in range(100)}
    lines, end = run(weights, [weight / HEADERS for weight in weights.values()])
    early = [(said, left) for at, said, left in play(lines, weights, end) if 60 < at < 180]
    assert early and all(0.9 <= said / left <= 1.1 for said, left in early)


def test_tools_of_the_host_take_time_and_are_not_counted() -> None:
    weights = objects(100)
    progress = Remaining(weights)
    for n in range(20):
        assert not progress.see(f"  HOSTCC  scripts/x{n}", float(n))
    assert progress.seconds_left is None and progress.done == 0 and progress.share == 0.0
    for n, name in enumerate(weights):
        assert progress.see(f"  CC      {name}.o", 20.0 + n)
    assert progress.done == 100 and progress.share > 0.98


def test_nothing_is_promised_too_early_nor_of_nothing() -> None:
    progress = Remaining({}, 100)
    assert progress.seconds_left is None
    for n in range(20):
        progress.see(f"  AS      x{n}.o", n * 1.0)
        assert (progress.seconds_left is None) == (n < FIRST_S), n
    assert not progress.see("  LD      vmlinux.o", 21.0)
    assert not progress.see("garbage \x1b[2J", 22.0)


def test_other_work_that_begins_is_counted_in_within_a_minute_or_two() -> None:
    """After 300 s others take three quarters of the processors. The first compiles say nothing of that."""
    weights = objects(1200)
    progress, at, given, late = Remaining(weights), 0.0, 0.0, []
    takes = [(1.0 if n < 300 else 4.0, 2.0) for n in range(1200)]
    end = sum(seconds for seconds, _ in takes)
    for name, (seconds, processor) in zip(weights, takes, strict=True):
        progress.give(at, given)
        progress.see(f"  CC      {name}.o", at)
        if 400 < at < 0.95 * end:
            late.append((progress.seconds_left or 0.0) / (end - at))
        at, given = at + seconds, given + processor
    assert late and min(late) >= 0.7 and max(late) <= 1.3, (min(late), max(late))


def test_an_idle_machine_s_promise_is_not_moved() -> None:
    weights = objects(300)
    with_share, without = Remaining(weights), Remaining(weights)
    for n, name in enumerate(weights):
        with_share.give(n * 1.0, n * 1.9)
        for progress in (with_share, without):
            progress.see(f"  CC      {name}.o", n * 1.0)
    assert with_share.seconds_left == without.seconds_left


def test_processor_time_is_of_the_named_programs_below() -> None:
    code = "import subprocess, sys, time; t = time.process_time()\nwhile time.process_time() - t < 0.3: pass\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE) as busy:
        name = Path(f"/proc/{busy.pid}/comm").read_text().strip()
        begin = time.monotonic()
        while (found := processor_times.below(os.getpid(), name)) < 0.3 and time.monotonic() - begin < 60:
            time.sleep(0.05)
        assert 0.3 <= found < 60 and processor_times.below(os.getpid(), "no-such-program") == 0
        busy.communicate(b"\n")
