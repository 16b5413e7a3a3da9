# SPDX-License-Identifier: Apache-2.0
"""The twelve tests of the UnixBench index, in several instances at once: our own set by its definitions, or the
published one from the user's source tree."""

from __future__ import annotations

import os
from typing import ClassVar

from vmtailor.base.natives import locate
from vmtailor.bench.analysis.benchmarks import INDEX, SCORE, BenchTest, Values
from vmtailor.bench.analysis.cells import NATIVE
from vmtailor.bench.analysis.guest_rounds import set_facts
from vmtailor.bench.analysis.unixbench_index import OURS, PUBLISHED, published_score
from vmtailor.bench.model.instance import BENCH_UNIXBENCH, CALL_BACK, Limits, Volume
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import SuiteName
from vmtailor.bench.runtimes.stopwatch import timed
from vmtailor.bench.suites.bench_run import NO_LIMITS, BenchRun, TrialFailed, number, said_object, succeeded
from vmtailor.bench.suites.published_sets import UNIXBENCH, built, tree_facts
from vmtailor.bench.suites.simultaneous import together
from vmtailor.bench.suites.suite import Suite

ONE_COPY, ALL_CORES, ONE_CORE = "1 copy", "all cores", "one core"
#: Seconds beyond its own time after which a test counts as one that does not end.
GRACE_S = 180.0


def _score(run: BenchRun, test: BenchTest, runtime: str) -> Values:
    which, copies_word, cores = test.variant.split(", ")
    row, copies = INDEX[test.test], int(copies_word.split()[0])
    seconds = row.seconds(quick=run.quick)
    limits = Limits(cpuset=str(min(os.sched_getaffinity(0)))) if cores == ONE_CORE else NO_LIMITS
    volumes: tuple[Volume, ...] = ()
    program: list[str] = []
    if which == PUBLISHED:
        at = UNIXBENCH.at
        volumes = (Volume(str(built(UNIXBENCH, run.job.unixbench_source, run).folder), at),)
        program = [word.format(seconds=max(1, round(seconds)), multi=f"{at}/pgms/multi.sh") for word in row.words]
        program[0] = f"{at}/pgms/{program[0]}"

    def words(instance: int) -> list[str]:
        where = [str(copies), CALL_BACK, str(instance)]
        if which == PUBLISHED:
            return [BENCH_UNIXBENCH, "real", *where, UNIXBENCH.at, *program]
        return [BENCH_UNIXBENCH, test.test, f"{seconds:g}", *where]

    found = together(run, runtime, words, test.count, seconds=seconds, grace_s=GRACE_S, limits=limits, volumes=volumes)
    said = [said_object(one) for one in found]
    return {SCORE: [_published(test.test, one) if which == PUBLISHED else number(one, SCORE) for one in said]}


class UnixBench(Suite):
    """The suite of the index."""

    name = SuiteName.UNIXBENCH
    trials: ClassVar = dict.fromkeys(INDEX, _score)

    def tests(self, job: BenchJob) -> list[BenchTest]:
        """Return the tests. The quick form has one copy on all cores, and a single test in several instances. As in
        published runs, nothing is warmed up."""
        which = PUBLISHED if job.unixbench_source else OURS
        found = [
            row.planned(count=count, variant=f"{which}, {copies}, {cores}", quick=job.quick, warm_up=False)
            for copies in ((ONE_COPY,) if job.quick else (ONE_COPY, several_copies()))
            for cores in ((ALL_CORES,) if job.quick else (ALL_CORES, ONE_CORE))
            for count in job.counts
            for test, row in INDEX.items()
            if count == 1 or not job.quick or test == "dhry2reg"
        ]
        if job.unixbench_source:  # our own set beside the published one, natively: what ours is worth is seen then
            way = f"{OURS}, {ONE_COPY}, {ALL_CORES}"
            found += [
                row.planned(variant=way, quick=job.quick, warm_up=False, only_in=NATIVE) for row in INDEX.values()
            ]
        return found

    def left_out(self, job: BenchJob) -> tuple[str, ...]:
        if not job.quick:
            return ()
        several = [str(count) for count in job.counts if count > 1]
        words = [f"unixbench: {several_copies()} and {ONE_CORE}: not in the quick form"]
        if several:
            words.append(f"unixbench: all tests but dhry2reg in {', '.join(several)} instances: not in the quick form")
        return tuple(words)

    def facts(self, run: BenchRun) -> tuple[tuple[str, str], ...]:
        """Return how each set was compiled. Our set's program, run on this host, reports its own compiler."""
        source = run.job.unixbench_source
        published = tree_facts(UNIXBENCH, source, run, PUBLISHED) if source else []
        about = [str(locate().folder / "enter"), "-u", "-r", str(run.folder / "tree"), BENCH_UNIXBENCH, "about"]
        said = said_object(succeeded(timed(about, deadline_s=30.0)))
        return (*published, *set_facts(said).items())


def several_copies() -> str:
    """Return the multi-copy form: as many copies as there are processors, at least two."""
    return f"{max(2, len(os.sched_getaffinity(0)))} copies"


def _published(test: str, said: dict[str, object]) -> float:
    """Return the sum of the copies' scores by the published program."""
    copies = said.get("of_copies")
    if number(said, "failed") > 0 or not isinstance(copies, list):
        raise TrialFailed("a program of the published set failed", str(said)[:2000])
    scores = [published_score(test, str(one.get("said", "")), number(one, "seconds")) for one in copies]
    if None in scores:
        raise TrialFailed("a program of the published set printed no score", str(said)[:2000])
    return sum(score for score in scores if score is not None)
