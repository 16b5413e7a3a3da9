# SPDX-License-Identifier: Apache-2.0
"""The twelve tests of the UnixBench index, in several instances at once: our own set by its definitions, or the
published one from a tree that the user names."""

from __future__ import annotations

import os

from vmtailor.base.natives import locate
from vmtailor.bench.analysis.cells import NATIVE
from vmtailor.bench.analysis.trial_plan import BenchTest
from vmtailor.bench.analysis.unixbench_index import INDEX, OURS, PUBLISHED, SCORE, pass_seconds, published_score
from vmtailor.bench.model.instance import BENCH_UNIXBENCH, Limits, Volume
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import BenchFigure, SuiteName
from vmtailor.bench.runtimes.stopwatch import timed
from vmtailor.bench.suites.bench_run import NO_LIMITS, BenchRun, TrialFailed, number, said_object, succeeded
from vmtailor.bench.suites.published_sets import UNIXBENCH, UNIXBENCH_AT, built
from vmtailor.bench.suites.simultaneous import place_words, together
from vmtailor.bench.suites.suite import Suite

ONE_COPY, ALL_CORES, ONE_CORE = "1 copy", "all cores", "one core"
#: How much longer than its time a test may take, until it counts as one that does not end.
GRACE_S = 180.0


class UnixBench(Suite):
    """The suite."""

    name: SuiteName = SuiteName.UNIXBENCH

    def tests(self, job: BenchJob) -> list[BenchTest]:
        """In the quick form, one copy on all cores, and several instances of one test only: the rest is left out. As in
        published runs, nothing is warmed up."""
        which = PUBLISHED if job.unixbench_source else OURS
        found = []
        for copies in (ONE_COPY,) if job.quick else (ONE_COPY, several_copies()):
            for cores in (ALL_CORES,) if job.quick else (ALL_CORES, ONE_CORE):
                found += [
                    BenchTest(
                        self.name,
                        test,
                        count,
                        f"{which}, {copies}, {cores}",
                        pass_seconds(test, quick=job.quick) + 0.5 * count,
                        warm_up=False,
                    )
                    for count in job.counts
                    for test in INDEX
                    if count == 1 or not job.quick or test == "dhry2reg"
                ]
        return [*found, *(_checks(job, self.name) if job.unixbench_source else ())]

    def left_out(self, job: BenchJob) -> tuple[str, ...]:
        if not job.quick:
            return ()
        several = [str(count) for count in job.counts if count > 1]
        words = [f"unixbench: {several_copies()} and {ONE_CORE}: not in the quick form"]
        if several:
            words.append(f"unixbench: all tests but dhry2reg in {', '.join(several)} instances: not in the quick form")
        return tuple(words)

    def facts(self, run: BenchRun) -> tuple[tuple[str, str], ...]:
        """How each set that is run was compiled."""
        if run.job.unixbench_source:
            tree = built(UNIXBENCH, run.job.unixbench_source, run)
            published = ((f"{PUBLISHED} tree", tree.digest), (f"{PUBLISHED} compiler", tree.compiler))
            return (*published, *self._about(run))
        return tuple(self._about(run))

    def _about(self, run: BenchRun) -> list[tuple[str, str]]:
        """How our own set was compiled, as the image's program says, whichever runtimes there are."""
        about = [str(locate().folder / "enter"), "-u", "-r", str(run.folder / "tree"), BENCH_UNIXBENCH, "about"]
        said = said_object(succeeded(timed(about, deadline_s=30.0)))
        words = ((name, str(said.get(name, ""))[:200]) for name in ("compiler", "flags"))
        return [(f"{OURS} {name}", word) for name, word in words if word]

    def trial(self, run: BenchRun, test: BenchTest, runtime: str) -> tuple[BenchFigure, ...]:
        which, copies_word, cores = test.variant.split(", ")
        copies = int(copies_word.split()[0])
        seconds = pass_seconds(test.test, quick=run.job.quick)
        limits = Limits(cpuset=str(min(os.sched_getaffinity(0)))) if cores == ONE_CORE else NO_LIMITS
        volumes: tuple[Volume, ...] = ()
        if which == PUBLISHED:
            volumes = (Volume(str(built(UNIXBENCH, run.job.unixbench_source, run).folder), UNIXBENCH_AT),)
            program = [
                word.format(seconds=max(1, round(seconds)), multi=f"{UNIXBENCH_AT}/pgms/multi.sh")
                for word in INDEX[test.test].words
            ]
            program[0] = f"{UNIXBENCH_AT}/pgms/{program[0]}"

        def words(instance: int) -> list[str]:
            if which == PUBLISHED:
                return [BENCH_UNIXBENCH, "real", str(copies), *place_words(instance), UNIXBENCH_AT, *program]
            return [BENCH_UNIXBENCH, test.test, f"{seconds:g}", str(copies), *place_words(instance)]

        found = together(
            run, runtime, words, test.count, seconds=seconds, grace_s=GRACE_S, limits=limits, volumes=volumes
        )
        said = [said_object(one) for one in found]
        scores = [_published(test.test, one) if which == PUBLISHED else number(one, SCORE) for one in said]
        unit = INDEX[test.test].unit
        return tuple(BenchFigure(SCORE, score, unit, True, instance) for instance, score in enumerate(scores))


def _checks(job: BenchJob, suite: SuiteName) -> list[BenchTest]:
    """Our own set beside the published one, natively and one copy of each: what ours is worth is seen then."""
    way = f"{OURS}, {ONE_COPY}, {ALL_CORES}"
    return [BenchTest(suite, test, 1, way, pass_seconds(test, quick=job.quick) + 0.5, False, NATIVE) for test in INDEX]


def several_copies() -> str:
    """The multi-copy form: as many copies as there are processors, at least two."""
    return f"{max(2, len(os.sched_getaffinity(0)))} copies"


def _published(test: str, said: dict[str, object]) -> float:
    """The sum over the copies of what the published program said."""
    copies = said.get("of_copies")
    if number(said, "failed") > 0 or not isinstance(copies, list):
        raise TrialFailed("a program of the published set failed", str(said)[:2000])
    scores = [published_score(test, str(one.get("said", "")), number(one, "seconds")) for one in copies]
    if None in scores:
        raise TrialFailed("a program of the published set printed no score", str(said)[:2000])
    return sum(score for score in scores if score is not None)
