# SPDX-License-Identifier: Apache-2.0
"""What instances cost in memory: idle ones, as PSS and as MemAvailable of the host; and the least that one starts
in."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from vmtailor.base import notation
from vmtailor.bench.analysis.trial_plan import BenchTest
from vmtailor.bench.model.instance import BENCH, Limits
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import BenchFigure, SuiteName
from vmtailor.bench.runtimes.host_state import available_bytes
from vmtailor.bench.suites.bench_run import RUN_OVER, BenchRun, TrialFailed
from vmtailor.bench.suites.startup import drop_page_cache, holding
from vmtailor.bench.suites.suite import Suite

_DEADLINE_S = 30.0
#: The search for the least memory: from, to, and how fine, in bytes.
LEAST, MOST, STEP = 256 << 10, 512 << 20, 256 << 10


class Memory(Suite):
    """The suite."""

    name: SuiteName = SuiteName.MEMORY

    def tests(self, job: BenchJob) -> list[BenchTest]:
        idle = [BenchTest(self.name, "idle", count, "", 0.12 * count + 0.12) for count in job.counts]
        return [*idle, BenchTest(self.name, "least", 1, "", 1.2)]

    def trial(self, run: BenchRun, test: BenchTest, runtime: str) -> tuple[BenchFigure, ...]:
        return _idle(run, runtime, test.count) if test.test == "idle" else _least(run, runtime)


def pss_bytes() -> int:
    """Proportional set size of every process in the scope but ourselves: a page that n share counts as n-ths, so that
    nothing counts twice. It has what engines keep for their instances, too."""
    total = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                found = re.search(r"^Pss:\s*(\d+) kB", (entry / "smaps_rollup").read_text(), re.MULTILINE)
                total += int(found[1]) * 1024 if found else 0
    return total


def _idle(run: BenchRun, runtime: str, count: int) -> tuple[BenchFigure, ...]:
    try:
        drop_page_cache()
    except TrialFailed as error:  # what is asked for does not need it: less of the cache counts as available then
        run.notes.append(error.message)
    pss, available = pss_bytes(), available_bytes()
    with holding(run, runtime, count, "serial"):
        more, less = pss_bytes() - pss, available - available_bytes()
    return (
        BenchFigure("PSS of each", more / count, "B"),
        BenchFigure("MemAvailable for each", less / count, "B"),
    )


def _least(run: BenchRun, runtime: str) -> tuple[BenchFigure, ...]:
    low, high = LEAST, MOST  # starts in `high`, as far as we know; not in `low`
    if not _starts(run, runtime, high):
        raise TrialFailed(f"it does not start in {notation.mebibytes(high)}")
    while high - low > max(STEP, high // 16):
        middle = (low + high) // 2 // STEP * STEP
        low, high = (low, middle) if _starts(run, runtime, middle) else (middle, high)
    return (BenchFigure("least that it starts in", high, "B"),)


def _starts(run: BenchRun, runtime: str, memory_bytes: int) -> bool:
    try:
        run.run(runtime, [BENCH, "report"], deadline_s=_DEADLINE_S, limits=Limits(memory_bytes=memory_bytes))
    except TrialFailed as error:
        if error.message == RUN_OVER:  # which says nothing of the memory
            raise
        return False
    return True
