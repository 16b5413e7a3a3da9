# SPDX-License-Identifier: Apache-2.0
"""The cost of instances in memory: idle ones, as PSS and as the host's MemAvailable; and the least memory that one
starts in."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import ClassVar

from vmtailor.base import notation
from vmtailor.base.text import is_number
from vmtailor.bench.analysis.benchmarks import BenchTest, Values, benchmark
from vmtailor.bench.model.instance import BENCH, Limits
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import SuiteName
from vmtailor.bench.runtimes.host_state import available_bytes
from vmtailor.bench.suites.bench_run import RUN_OVER, BenchRun, TrialFailed
from vmtailor.bench.suites.startup import drop_page_cache, holding
from vmtailor.bench.suites.suite import Suite

_DEADLINE_S = 30.0
#: The search for the least memory: from, to, and how fine, in bytes.
LEAST, MOST, STEP = 256 << 10, 512 << 20, 256 << 10


def pss_bytes() -> int:
    """Return the proportional set size of every process in the scope except ours. A page that n processes share counts
    as an n-th of each, so nothing counts twice. Engines' helpers are included."""
    total = 0
    for entry in Path("/proc").iterdir():
        if is_number(entry.name) and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                found = re.search(r"^Pss:\s*(\d+) kB", (entry / "smaps_rollup").read_text(), re.MULTILINE)
                total += int(found[1]) * 1024 if found else 0
    return total


def _idle(run: BenchRun, test: BenchTest, runtime: str) -> Values:
    try:
        drop_page_cache()
    except TrialFailed as error:  # what is asked for does not need it: less of the cache counts as available then
        run.notes.append(error.message)
    pss, available = pss_bytes(), available_bytes()
    with holding(run, runtime, test.count, "serial"):
        more, less = pss_bytes() - pss, available - available_bytes()
    return {"PSS of each": more / test.count, "MemAvailable for each": less / test.count}


def _least(run: BenchRun, _: BenchTest, runtime: str) -> Values:
    low, high = LEAST, MOST  # starts in `high`, as far as we know; not in `low`
    if not _starts(run, runtime, high):
        raise TrialFailed(f"it does not start in {notation.mebibytes(high)}")
    while high - low > max(STEP, high // 16):
        middle = (low + high) // 2 // STEP * STEP
        low, high = (low, middle) if _starts(run, runtime, middle) else (middle, high)
    return {"least that it starts in": high}


def _starts(run: BenchRun, runtime: str, memory_bytes: int) -> bool:
    try:
        run.run(runtime, [BENCH, "report"], deadline_s=_DEADLINE_S, limits=Limits(memory_bytes=memory_bytes))
    except TrialFailed as error:
        if error.message == RUN_OVER:  # which says nothing of the memory
            raise
        return False
    return True


class InstanceMemory(Suite):
    """The suite of instances' cost in memory."""

    name = SuiteName.MEMORY
    trials: ClassVar = {"idle": _idle, "least": _least}

    def tests(self, job: BenchJob) -> list[BenchTest]:
        idle = benchmark(self.name, "idle")
        return [*(idle.planned(count=count) for count in job.counts), benchmark(self.name, "least").planned()]
