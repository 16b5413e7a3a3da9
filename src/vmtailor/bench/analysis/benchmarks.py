# SPDX-License-Identifier: Apache-2.0
"""The tests of the benchmarks, each registered once: its sentence, its figures with their units, the cost of a trial.
bench/suites has the function that runs it, `benchmarks/image` its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vmtailor.bench.model.results import CLOCK, BenchFigure, SuiteName, TestKey

#: The figures of isolation: t1 and t2 of each well-behaved instance, their ratio (a lower bound for one that did not
#: report), and how many of the four did not report.
T1, T2, RATIO, SILENT = "t1", "t2", "t2 / t1", "did not report"
#: The figure of every test of UnixBench.
SCORE = "score"
#: Figures of idle instances, in bytes: what each takes from MemAvailable, what its cgroup is charged, what the kernel
#: keeps for each; and what was in use before the first.
AVAILABLE, CHARGED, OF_KERNEL, BEFORE = (
    "MemAvailable for each", "memory.current of each", "kernel's for each", "in use before the first",
)  # fmt: skip
#: Figures of density: instances that started, and of them those that still answered.
STARTS, ANSWERS = "started", "still answered"
#: The variant of the disk test that IOzone runs.
WITH_IOZONE = "IOzone"
#: Results of a trial: figure → its value, or one for each instance; None for an instance without one.
Values = Mapping[str, float | Sequence[float | None]]

SUITE_WORDS: dict[str, str] = {
    SuiteName.STARTUP: "How long until an instance is there. Every figure begins just before the start command is "
    "executed, and ends at the boundary that it is named by; none is one minus another.",
    SuiteName.EFFICIENCY: "What one instance gets of processor, memory, disk and network.",
    SuiteName.MEMORY: "What instances cost in memory.",
    SuiteName.UNIXBENCH: "The twelve tests of the UnixBench index, each timed by wall clock.",
    SuiteName.ISOLATION: "Five instances: one misbehaves, four serve a page to ApacheBench. t1 is what that takes "
    "while the fifth idles, t2 while it misbehaves.",
}


@dataclass(frozen=True)
class BenchTest:
    """One test as a run has it: `count` instances at once, run in the way `variant` says. `cost`: seconds that one
    trial takes, about; it only estimates the time left. `warm_up`: each runtime starts with a trial that does not
    count. `only_in`: the one runtime that runs the test; empty: all do."""

    suite: SuiteName
    test: str
    count: int = 1
    variant: str = ""
    cost: float = 1.0
    warm_up: bool = True
    only_in: str = ""

    @property
    def key(self) -> TestKey:
        return self.suite, self.test, self.count, self.variant


@dataclass(frozen=True)
class FigureKind:
    """A figure of a test, with its unit."""

    name: str
    unit: str
    larger_is_better: bool = False


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A test of a suite. `sentence`: explains it to a reader of the report; `variants`: other sentences, by the way in
    which it is run. `cost_s`, `quick_cost_s`: seconds of a trial on a host with two processors, in full and in the
    quick form (None: as in full); `each_s`: seconds that each instance adds."""

    suite: SuiteName
    name: str
    sentence: str
    figures: tuple[FigureKind, ...] = ()
    cost_s: float = 0.0
    quick_cost_s: float | None = None
    each_s: float = 0.0
    variants: Mapping[str, str] = field(default_factory=dict)

    def seconds(self, *, quick: bool) -> float:
        """Return the seconds of a trial, without those that its instances add."""
        return self.cost_s if not quick or self.quick_cost_s is None else self.quick_cost_s

    def planned(
        self, *, count: int = 1, variant: str = "", quick: bool = False, warm_up: bool = True, only_in: str = ""
    ) -> BenchTest:
        """Return the test as a run has it, with its cost."""
        cost = self.seconds(quick=quick) + self.each_s * count
        return BenchTest(
            suite=self.suite, test=self.name, count=count, variant=variant, cost=cost, warm_up=warm_up, only_in=only_in
        )

    def measured(self, values: Values) -> tuple[BenchFigure, ...]:
        """Return the values of a trial as figures. Raises KeyError for a figure that the test does not register."""
        kinds = {kind.name: kind for kind in self.figures}
        found = []
        for name, value in values.items():
            kind, several = kinds[name], [value] if isinstance(value, int | float) else value
            found += [
                BenchFigure(
                    name=name, value=one, unit=kind.unit, larger_is_better=kind.larger_is_better, instance=instance
                )
                for instance, one in enumerate(several)
                if one is not None
            ]
        return tuple(found)


@dataclass(frozen=True, kw_only=True)
class IndexTest(Benchmark):
    """A test of the UnixBench index. `baseline`: the score whose index is 10. `words`: the published program and its
    arguments; `{seconds}` and `{multi}` are filled in. `units`: units of work that are counted on the instruction
    clock; 0 where counts say nothing; `quick_units`: counted in the quick form, too."""

    title: str
    baseline: float
    words: tuple[str, ...]
    units: int = 0
    quick_units: bool = False

    @property
    def unit(self) -> str:
        return self.figures[0].unit


def _seconds(*names: str) -> tuple[FigureKind, ...]:
    return tuple(FigureKind(name, "s") for name in names)


def _rates(unit: str, *names: str) -> tuple[FigureKind, ...]:
    return tuple(FigureKind(name, unit, True) for name in names)


def _index(
    name: str, title: str, baseline: float, unit: str, seconds: int, words: tuple[str, ...], **counted: int
) -> IndexTest:
    return IndexTest(
        suite=SuiteName.UNIXBENCH,
        name=name,
        title=title,
        sentence=f"{title}.",
        variants={CLOCK: f"{title}; here what one unit of its work costs."},
        figures=_rates(unit, SCORE),
        cost_s=seconds,
        quick_cost_s=seconds / 10,
        each_s=0.5,
        baseline=baseline,
        words=words,
        units=counted.get("units", 0),
        quick_units=bool(counted.get("quick_units")),
    )


def _copy(size: int, blocks: int) -> tuple[str, ...]:
    return "fstime", "-c", "-t", "{seconds}", "-d", ".", "-b", str(size), "-m", str(blocks)


def _looper(scripts: int) -> tuple[str, ...]:
    return "looper", "{seconds}", "{multi}", str(scripts)


_TCP = (*_rates("MB/s", "throughput"), FigureKind("CPU per byte", "ns/B"))
_TRIPS = (
    *_rates("1/s", "round trips"),
    *_seconds("mean round trip", "median round trip", "99 % of round trips within"),
)
_LOSSES = (FigureKind(SILENT, "of 4"), *_seconds(T1, T2), FigureKind(RATIO, "×"))
_STRESSES = {
    "cpu": "computes on all processors",
    "memory": "takes and touches memory",
    "disk": "writes to the disk",
    "full-disk": "fills a small disk of its own, again and again",
    "net-send": "sends as fast as it can",
    "net-receive": "is sent to as fast as can be",
    "fork-bomb": "begins processes that begin processes",
}

# Kernel-bound tests have enough units of work that timer ticks do not matter: few come in so little virtual time.
INDEX: dict[str, IndexTest] = {
    row.name: row
    for row in (
        _index("dhry2reg", "Dhrystone 2 using register variables", 116700.0, "lps", 10, ("dhry2reg", "{seconds}")),
        _index("whetstone-double", "Double-precision Whetstone", 55.0, "MWIPS", 10, ("whetstone-double",)),
        _index("execl", "Execl throughput", 43.0, "lps", 30, ("execl", "{seconds}"), units=60, quick_units=1),
        _index("fstime", "File copy, 1024 B × 2000", 3960.0, "KBps", 30, _copy(1024, 2000), units=4000, quick_units=1),
        _index("fsbuffer", "File copy, 256 B × 500", 1655.0, "KBps", 30, _copy(256, 500), units=1000),
        _index("fsdisk", "File copy, 4096 B × 8000", 5800.0, "KBps", 30, _copy(4096, 8000), units=8000),
        _index("pipe", "Pipe throughput", 12440.0, "lps", 10, ("pipe", "{seconds}"), units=2000, quick_units=1),
        _index(
            "context1", "Pipe-based context switching", 4000.0, "lps", 10, ("context1", "{seconds}"),
            units=1000, quick_units=1,
        ),
        _index("spawn", "Process creation", 126.0, "lps", 30, ("spawn", "{seconds}"), units=100, quick_units=1),
        _index(
            "syscall", "System call overhead", 15000.0, "lps", 10, ("syscall", "{seconds}"), units=4000, quick_units=1
        ),
        _index("shell1", "Shell scripts (1 at once)", 42.4, "lpm", 60, _looper(1), units=2),
        _index("shell8", "Shell scripts (8 at once)", 6.0, "lpm", 60, _looper(8), units=1),
    )
}  # fmt: skip

BENCHMARKS: dict[tuple[str, str], Benchmark] = {
    (row.suite, row.name): row
    for row in (
        Benchmark(
            suite=SuiteName.STARTUP, name="report", cost_s=0.2,
            figures=_seconds("own report", "first output", "exit", "program started"),
            sentence="One start, to the instance's own report (it creates a file in a folder of ours), to its first "
            "byte of output as the runtime passes it on, and to the end of the command. Cold: the page cache was "
            "dropped before.",
        ),
        Benchmark(
            suite=SuiteName.STARTUP, name="http", cost_s=0.25, figures=_seconds("first answer"),
            sentence="One start, to the first right answer over HTTP.",
        ),
        Benchmark(
            suite=SuiteName.STARTUP, name="apart", cost_s=0.25,
            figures=_seconds("create", "start to own report", "stop"),
            sentence="Create, start and stop as commands of their own, where a runtime has them.",
        ),
        *(
            Benchmark(
                suite=SuiteName.STARTUP, name=name, each_s=0.13, figures=_seconds("all reported", "own report"),
                sentence=f"Several instances, {how}.",
            )
            for name, how in (
                ("serial", "each begun when the one before has reported"),
                ("staggered", "begun 50 ms apart"),
                ("at-once", "begun all at once"),
            )
        ),
        Benchmark(
            suite=SuiteName.STARTUP, name="boot",
            sentence="One start, as it is for each row: of a machine, from reset until the program starts, and until "
            "it ends; of an engine within a machine that is up (its name follows the machine's), from the start "
            "command to its end.",
        ),
        Benchmark(
            suite=SuiteName.EFFICIENCY, name="linpack", cost_s=6.0, quick_cost_s=1.0,
            figures=_rates("GFLOP/s", "dgesv"),
            sentence="LINPACK: a dense system of equations by OpenBLAS's dgesv, on all processors.",
            variants={CLOCK: "LINPACK by OpenBLAS's dgesv; here what a thousand floating-point operations cost."},
        ),
        Benchmark(
            suite=SuiteName.EFFICIENCY, name="stream", cost_s=4.0, quick_cost_s=1.0,
            figures=_rates("MB/s", "copy", "scale", "add", "triad"),
            sentence="STREAM's four kernels over arrays that no cache holds.",
            variants={CLOCK: "STREAM's four kernels; here what a KB that they read or write costs."},
        ),
        Benchmark(
            suite=SuiteName.EFFICIENCY, name="disk", cost_s=6.0, quick_cost_s=2.0,
            figures=_rates("MB/s", "write", "rewrite", "read", "reread"),
            sentence="One file in records of 8 KB in the instance's writable layer. What is written is flushed within "
            "the time. Read comes after the instance asked to forget the file; reread from the page cache.",
            variants={
                CLOCK: "One file in records of 8 KB in the instance's writable layer; here what a KB costs that is "
                "written, written again, read and read again. A machine's writable layer lies in its memory.",
                WITH_IOZONE: "One file in records of 8 KB in the instance's writable layer, by IOzone. What is written "
                "is flushed within the time. Read and reread both come from the page cache, as far as that holds the "
                "file."
            },
        ),
        *(
            Benchmark(
                suite=SuiteName.EFFICIENCY, name=name, cost_s=11.0, quick_cost_s=1.5, figures=figures, sentence=sentence
            )
            for name, figures, sentence in (
                ("tcp-send", _TCP, "TCP to a peer in a network namespace of its own."),
                ("tcp-receive", _TCP, "TCP from a peer in a network namespace of its own."),
                (
                    "tcp-latency", _TRIPS,
                    "Request and response over TCP with such a peer: one byte there, one byte back, and nothing else "
                    "under way.",
                ),
            )
        ),
        Benchmark(
            suite=SuiteName.MEMORY, name="idle", cost_s=0.12, each_s=0.12,
            figures=(
                FigureKind("PSS of each", "B"), FigureKind(AVAILABLE, "B"), FigureKind(CHARGED, "B"),
                FigureKind(OF_KERNEL, "B"), FigureKind(BEFORE, "B"),
            ),
            sentence="What idle instances cost: the growth of the proportional set size of all processes, engines' "
            "helpers included; and of the host's MemAvailable, which others sway.",
            variants={
                CLOCK: "What idle instances cost within the machine: what MemAvailable falls by, what the cgroup of "
                "each is charged (memory.current), and what the kernel keeps for each in slabs, stacks, page tables "
                "and per-processor memory. In use before the first: the machine's memory less MemAvailable, with all "
                "that its kernel takes.",
            },
        ),
        Benchmark(
            suite=SuiteName.MEMORY, name="density",
            figures=(FigureKind(STARTS, "instances", True), FigureKind(ANSWERS, "instances", True)),
            sentence="The most idle instances that start in a machine with 384 MiB before one fails, up to 64 (12 in "
            "the quick form); and how many of them still answer then.",
        ),
        Benchmark(
            suite=SuiteName.MEMORY, name="least", cost_s=1.2, figures=(FigureKind("least that it starts in", "B"),),
            sentence="The least memory limit that an instance starts in.",
        ),
        *(
            Benchmark(
                suite=SuiteName.ISOLATION, name=name, cost_s=10.0, quick_cost_s=3.0, figures=_LOSSES,
                sentence=f"The fifth instance {what}.",
            )
            for name, what in _STRESSES.items()
        ),
        *INDEX.values(),
    )
}  # fmt: skip


def benchmark(suite: str, name: str) -> Benchmark:
    """Return the registered test. Raises KeyError."""
    return BENCHMARKS[suite, name]


def test_words(suite: str, test: str, variant: str) -> str:
    """Return the sentence of a test in its variant; empty for an unknown test."""
    found = BENCHMARKS.get((suite, test))
    return found.variants.get(variant, found.sentence) if found is not None else ""
