# SPDX-License-Identifier: Apache-2.0
"""`make bench-aa`: how often `vmtailor bench` is wrong, from real measurements of runtimes against themselves.

Each runtime is described twice, under two names, and both are measured as two runtimes would be: in the same randomised
balanced blocks. A comparison draws some blocks of one figure, exchanges the names in half of them, at random, and sets
one name against the other. A/A: they differ by chance alone; how many are called better or worse, how many undecided?
Injected: one side is made 5 % slower; how many are called worse, in the cells whose spread allows that with so many
blocks? And without any exchange: do the names differ, which no chance explains? After some blocks every figure's spread
is known, and each test goes on until its figures have as many as that asks for, up to a limit; what it would take
beyond is named. A run that was interrupted goes on.

    tools/bench_aa.py [--out FOLDER] [--repeat N] [--judge]      (root, unless --judge)
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vmtailor.base.files import records
from vmtailor.bench.analysis.cells import Against, against
from vmtailor.bench.model.results import BenchResults, HostRun, SuiteName
from vmtailor.model.change import Verdict

REPOSITORY = Path(__file__).resolve().parents[1]
#: Cheap ones that differ: one that only forks, one that mounts and unshares, one that does what engines do.
RUNTIMES = (
    REPOSITORY / "src/vmtailor/bench/data/native.toml",
    REPOSITORY / "src/vmtailor/bench/data/nspawn.toml",
    REPOSITORY / "examples/runtimes/crun.toml",
)
COMPARISONS, INJECTED = 400, 1.05
#: What is asked: the upper 95 % bound of the rate of false alarms, the share of injected changes that is found, the
#: share of A/A pairs that stays undecided.
MOST_FALSE, LEAST_FOUND, MOST_UNDECIDED = 0.08, 0.90, 0.10
_WEEK_S = 7 * 86400


@dataclass(frozen=True)
class Part:
    """Tests of a suite. All are measured in `blocks`, then each in as many as its figures ask for, unless that is more
    than `most`. `sizes`: blocks of comparisons that are made besides those with as many as asked for."""

    suite: str
    tests: str
    blocks: int
    most: int
    sizes: tuple[int, ...]


#: All whose trials last about a second at most. A start takes milliseconds and varies by tens of percent: what tells it
#: is their number.
PARTS = (
    Part("startup", "report,http,apart", 500, 3000, (10, 40, 160)),
    Part("unixbench", "dhry2reg,whetstone-double,syscall,pipe,context1", 100, 400, (10, 20, 40)),
)
LEVELS = range(len(PARTS[0].sizes))
#: Standard errors from the middle to an end of the interval of a difference (95 %), from an end to what is to be found
#: (in nine of ten), and to what is to be ruled out (in 97 of 100).
_ENDS, _FIND, _SETTLE = 1.96, 1.28, 2.17
#: Standard errors that one cell of fifty reaches by chance in one of twenty runs.
_BEYOND = 3.29
#: More blocks than a spread asks for, since it is not known exactly.
_SPARE = 1.1


@dataclass(frozen=True)
class Pair:
    """One figure under both names, block by block; larger_is_better of it."""

    name: str
    suite: str
    test: str
    variant: str
    larger_is_better: bool
    values: tuple[tuple[float, float], ...]

    @cached_property
    def whole(self) -> Against | None:
        """One name against the other, in all blocks as they were measured."""
        first, second = ([both[side] for both in self.values] for side in (0, 1))
        return against(first, second, larger_is_better=self.larger_is_better)

    @property
    def spread(self) -> float:
        """Of one side, relative, as the test of ranks sees it: the standard deviation of which the interval between
        both sides, with all their blocks, would be that wide."""
        found = self.whole
        if found is None or not found.low or not found.high:
            return math.inf
        return math.log(found.high / found.low) / 2 / _ENDS / math.sqrt(2 / len(self.values))

    @property
    def needed(self) -> float:
        """Blocks with which 97 of 100 comparisons with itself rule the injected change out."""
        if math.isinf(self.spread):
            return math.inf
        return max(PARTS[0].sizes[0], math.ceil(2 * ((_ENDS + _SETTLE) * self.spread / math.log(INJECTED)) ** 2))

    @property
    def bias(self) -> float | None:
        """One name over the other, in all blocks, where that is beyond chance in any of the cells of a run and more
        than what is of no interest."""
        found = self.whole
        if found is None or not found.low or not found.high or found.verdict not in (Verdict.BETTER, Verdict.WORSE):
            return None
        errors = math.log(found.high * found.low) / 2 / (math.log(found.high / found.low) / 2 / _ENDS)
        return found.ratio if abs(errors) >= _BEYOND else None

    def allows(self, size: int) -> bool:
        """Whether the injected change can be found in nine of ten comparisons of so many blocks."""
        return (_ENDS + _FIND) * self.spread * math.sqrt(2 / size) <= math.log(INJECTED)


@dataclass(frozen=True)
class Judged:
    """What so many comparisons gave. `sizes`: blocks by suite, the least of a cell and the most. `found` of `injected`
    in `able` cells; `unable`: the others."""

    sizes: Mapping[str, tuple[int, int]]
    compared: int
    false: int
    undecided: int
    injected: int
    found: int
    able: tuple[str, ...]
    unable: tuple[str, ...]

    @property
    def size(self) -> str:
        """How many blocks, in words."""
        return ", ".join(
            f"n = {least if least == most else f'{least} to {most}'} of {suite}"
            for suite, (least, most) in self.sizes.items()
        )

    @property
    def bound(self) -> float:
        """The upper 95 % bound of the rate of false alarms."""
        return upper_bound(self.false, self.compared)


def upper_bound(count: int, of: int) -> float:
    """The rate at which so few as `count` would come with a chance of 5 % (Clopper and Pearson)."""
    if count >= of:
        return 1.0
    low, high = count / of, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        chance = sum(
            math.exp(
                math.lgamma(of + 1) - math.lgamma(k + 1) - math.lgamma(of - k + 1)
                + (k * math.log(middle) if k else 0.0) + (of - k) * math.log1p(-middle)
            )
            for k in range(count + 1)
        )  # fmt: skip
        low, high = (middle, high) if chance > 0.05 else (low, middle)
    return high


def pairs(run: HostRun) -> list[Pair]:
    """Every figure that both names of a runtime have, by block, without warm-ups."""
    taken: dict[str, dict[str, dict[int, float]]] = {}
    known: dict[str, tuple[str, str, str, bool]] = {}
    for trial in run.trials:
        if trial.block == 0 or not trial.runtime.endswith(("-a", "-b")):
            continue
        for figure in trial.figures:
            test = f"{trial.test} {trial.variant}" if trial.suite == SuiteName.STARTUP else trial.test
            name = f"{trial.runtime[:-2]}: {trial.suite} {test}, {figure.name}"
            taken.setdefault(name, {}).setdefault(trial.runtime[-1], {})[trial.block] = figure.value
            known[name] = (trial.suite, trial.test, trial.variant, figure.larger_is_better)
    found = []
    for name, sides in taken.items():
        both = sorted(set(sides.get("a", {})) & set(sides.get("b", {})))
        if both:
            values = tuple((sides["a"][block], sides["b"][block]) for block in both)
            found.append(Pair(name, *known[name], values))
    return found


def lacking(found: Sequence[Pair]) -> dict[tuple[str, str, str], int]:
    """How many blocks are asked for, of each suite, test and variant that has fewer."""
    more: dict[tuple[str, str, str], int] = {}
    most = {part.suite: part.most for part in PARTS}
    for pair in found:
        if len(pair.values) < pair.needed <= most.get(pair.suite, 0):
            way = pair.suite, pair.test, pair.variant
            more[way] = max(more.get(way, 0), min(math.ceil(_SPARE * pair.needed), most[pair.suite]))
    return more


def fixed(found: Sequence[Pair], blocks: Mapping[str, int]) -> dict[str, int]:
    """So many blocks by suite, for every cell that has them."""
    return {pair.name: blocks[pair.suite] for pair in found if len(pair.values) >= blocks.get(pair.suite, math.inf)}


def every(found: Sequence[Pair], suites: Sequence[str]) -> dict[str, int]:
    """All blocks that there are, of every cell of these suites."""
    return {pair.name: len(pair.values) for pair in found if pair.suite in suites}


def judge(
    found: Sequence[Pair], sizes: Mapping[str, int], comparisons: int = COMPARISONS, seed: int = 1
) -> Judged | None:
    """Compare so many times, each cell that has a size in its turn, so many of its blocks; None where none has. What
    the names exchanged leaves is chance alone, and another one every time, also where all blocks are drawn."""
    chance = random.Random(f"{seed}/{sorted(sizes.items())}")
    usable = [pair for pair in found if pair.name in sizes]
    if not usable:
        return None
    able = {pair.name for pair in usable if pair.allows(sizes[pair.name])}
    false = undecided = injected = called = 0
    for number in range(comparisons):
        pair = usable[number % len(usable)]
        blocks = chance.sample(pair.values, sizes[pair.name])
        blocks = [both if chance.random() < 0.5 else both[::-1] for both in blocks]
        first, second = ([both[side] for both in blocks] for side in (0, 1))
        verdict = _verdict(first, second, pair)
        false += verdict in (Verdict.BETTER, Verdict.WORSE)
        undecided += verdict is Verdict.UNDECIDED
        if pair.name in able:
            slower = [value / INJECTED if pair.larger_is_better else value * INJECTED for value in second]
            injected += 1
            called += _verdict(first, slower, pair) is Verdict.WORSE
    unable = tuple(pair.name for pair in usable if pair.name not in able)
    taken: dict[str, tuple[int, int]] = {}
    for pair in usable:
        least, most = taken.get(pair.suite, (sizes[pair.name], sizes[pair.name]))
        taken[pair.suite] = min(least, sizes[pair.name]), max(most, sizes[pair.name])
    return Judged(taken, comparisons, false, undecided, injected, called, tuple(sorted(able)), unable)


def _verdict(first: Sequence[float], second: Sequence[float], pair: Pair) -> Verdict:
    found = against(first, second, larger_is_better=pair.larger_is_better)
    return Verdict.UNDECIDED if found is None else found.verdict


def measure(out: Path, repeat: int | None) -> Path:
    """Measure every runtime under both names, in as many blocks as the figures ask for, or in `repeat`; goes on with
    what is there."""
    out.mkdir(parents=True, exist_ok=True)
    described = []
    for file in RUNTIMES:
        text = file.read_text()
        for side in "ab":
            copy = out / f"{file.stem}-{side}.toml"
            copy.write_text(text.replace(f'name = "{file.stem}"', f'name = "{file.stem}-{side}"', 1))
            described.append(str(copy))
    results = out / "aa.json"
    words = ["--n", "1", "--quick", "--image", f"oci:{REPOSITORY / 'build/images/bench'}", "--on", ",".join(described)]
    words += ["-o", str(results)]
    for part in PARTS:
        _bench(part.suite, "--only", part.tests, "--repeat", str(repeat or part.blocks), *words)
    done: dict[tuple[str, str, str], int] = {}
    while not repeat:
        # Blocks that failed are not measured for ever.
        more = {way: blocks for way, blocks in lacking(_measured(results)).items() if blocks > done.get(way, 0)}
        if not more:
            break
        for (suite, test, variant), blocks in more.items():
            _bench(suite, "--only", test, "--variant", variant, "--repeat", str(blocks), *words)
        done |= more
    return results


def _bench(suite: str, *words: str) -> None:
    command = [sys.executable, "-m", "vmtailor", "bench", suite, *words]
    ended = subprocess.run(command, check=False, timeout=_WEEK_S, stdout=subprocess.DEVNULL)
    if ended.returncode != 0:
        raise SystemExit(ended.returncode)


def _measured(results: Path) -> list[Pair]:
    return pairs(records.load(BenchResults, results).runs[-1])


def show(found: Sequence[Pair], run: HostRun, judged: Sequence[Judged]) -> bool:
    """Print it; whether all that is asked holds, of every suite. `judged`: of all, and before it of single suites."""
    noise = [trial.noise.others + trial.noise.steal for trial in run.trials if trial.noise is not None]
    print(f"{run.host.id}, {len(found)} cells, others took {100 * statistics.median(noise or [0]):.0f} % of the host")
    for pair in found:
        short = "" if pair.needed <= len(pair.values) else ", fewer than it asks for"
        print(
            f"  {pair.name:<50} {len(pair.values):4} blocks, spread {100 * pair.spread:6.2f} %, asks for "
            f"{pair.needed:4.0f}{short}"
        )
    biased = {pair.name: pair.bias for pair in found if pair.bias is not None}
    for name, ratio in biased.items():
        print(f"one name differs from the other throughout, {ratio:.3f} to 1: {name}")
    print(f"{COMPARISONS} comparisons each; {100 * (INJECTED - 1):.0f} % injected")
    for one in judged:
        share = f"{100 * one.found / one.injected:.1f} % of {one.injected}" if one.injected else "none"
        print(
            f"{one.size}: {one.false} false alarms (bound {100 * one.bound:.1f} %), undecided "
            f"{100 * one.undecided / one.compared:.1f} %; found {share} in {len(one.able)} cells that allow it"
        )
        print(f"    cells that do not: {'; '.join(one.unable) or 'none'}")
    if not judged:
        print("too few blocks")
        return False
    last = judged[-1]
    tests = {(pair.suite, pair.test) for pair in found}
    asked = {
        "all tests measured": all((part.suite, test) in tests for part in PARTS for test in part.tests.split(",")),
        "as many blocks as their spread asks for, up to "
        + ", ".join(f"{part.most} of {part.suite}" for part in PARTS): not lacking(found),
        "the names differ by chance alone": not biased,
        f"false alarms: the bound is at most {100 * MOST_FALSE:.0f} %": all(one.bound <= MOST_FALSE for one in judged),
        f"found: at least {100 * LEAST_FOUND:.0f} %, {last.size}": last.injected > 0
        and last.found >= LEAST_FOUND * last.injected,
        f"undecided: at most {100 * MOST_UNDECIDED:.0f} %, {last.size}": last.undecided
        <= MOST_UNDECIDED * last.compared,
    }
    for words, holds in asked.items():
        print(f"{'yes' if holds else 'NO ':>4}  {words}")
    return all(asked.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=REPOSITORY / "build/bench/aa", help="folder of the results")
    parser.add_argument("--repeat", type=int, help="blocks, of all tests")
    parser.add_argument("--judge", action="store_true", help="of what was measured before")
    options = parser.parse_args()
    try:
        results = options.out / "aa.json" if options.judge else measure(options.out.absolute(), options.repeat)
    except KeyboardInterrupt:
        print("interrupted: the same command goes on where this one stopped", file=sys.stderr)
        return 130
    run = records.load(BenchResults, results).runs[-1]
    found = pairs(run)
    groups = [*((part,) for part in PARTS), PARTS]
    judged = []
    for group in groups:
        sizes = [fixed(found, {part.suite: part.sizes[level] for part in group}) for level in LEVELS]
        sizes.append(every(found, [part.suite for part in group]))
        judged += [one for size in sizes if (one := judge(found, size)) is not None]
    return 0 if show(found, run, judged) else 1


if __name__ == "__main__":
    sys.exit(main())
