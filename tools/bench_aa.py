# SPDX-License-Identifier: Apache-2.0
"""`make bench-aa`: how often `vmtailor bench` is wrong, from real measurements of runtimes against themselves.

Each runtime is described twice, under two names, and both are measured as two runtimes would be: in the same randomised
balanced blocks. A comparison draws some blocks of one figure and sets one name against the other. A/A: they differ by
chance alone; how many are called better or worse, how many undecided? Injected: one side is made 5 % slower; how many
are called worse, in the cells whose spread allows that with so many blocks? A run that was interrupted goes on.

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
from pathlib import Path

from vmtailor.analysis.bench.cells import against
from vmtailor.base.files import records
from vmtailor.model.bench.results import BenchResults, HostRun, SuiteName
from vmtailor.model.verdict import Verdict

REPOSITORY = Path(__file__).resolve().parents[1]
#: Cheap ones that differ: one that only forks, one that mounts and unshares, one that does what engines do.
RUNTIMES = (
    REPOSITORY / "src/vmtailor/data/runtimes/native.toml",
    REPOSITORY / "src/vmtailor/data/runtimes/nspawn.toml",
    REPOSITORY / "examples/runtimes/crun.toml",
)
COMPARISONS, INJECTED = 400, 1.05
#: What is asked: the upper 95 % bound of the rate of false alarms, the share of injected changes that is found, the
#: share of A/A pairs that stays undecided.
MOST_FALSE, LEAST_FOUND, MOST_UNDECIDED = 0.08, 0.90, 0.10
_WEEK_S = 7 * 86400


@dataclass(frozen=True)
class Part:
    """Tests of a suite that are measured in `blocks`. `sizes`: blocks of a comparison; the last is what found and
    undecided are judged at."""

    suite: str
    tests: str
    blocks: int
    sizes: tuple[int, ...]


#: All whose trials last about a second at most. A start takes milliseconds and varies by tens of percent: what tells it
#: is their number.
PARTS = (
    Part("startup", "report,http,apart", 500, (10, 40, 160, 400)),
    Part("unixbench", "dhry2reg,whetstone-double,syscall,pipe,context1", 100, (10, 20, 40, 80)),
)
LEVELS = range(len(PARTS[0].sizes))


@dataclass(frozen=True)
class Pair:
    """One figure under both names, block by block; larger_is_better of it."""

    name: str
    suite: str
    test: str
    larger_is_better: bool
    values: tuple[tuple[float, float], ...]

    def deviation(self) -> float:
        """Of one side, relative to its median: from the differences within blocks, and robust."""
        middle = statistics.median(value for both in self.values for value in both)
        differences = [abs(a - b) for a, b in self.values]
        return 1.4826 * statistics.median(differences) / math.sqrt(2) / middle if middle > 0 else math.inf


@dataclass(frozen=True)
class Judged:
    """What so many comparisons gave, of so many blocks by suite. `found` of `injected` in `able` cells; `unable`: the
    others; `tests`: whose cells they are."""

    sizes: Mapping[str, int]
    compared: int
    false: int
    undecided: int
    injected: int
    found: int
    able: tuple[str, ...]
    unable: tuple[str, ...]
    tests: frozenset[str]

    @property
    def size(self) -> str:
        """How many blocks, in words."""
        return ", ".join(f"n = {size} of {suite}" for suite, size in self.sizes.items())

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


def allows(deviation: float, size: int) -> bool:
    """Whether the injected change can be found in nine of ten comparisons of so many values a side with this spread: a
    test of ranks at 5 % has that power where it is 3.24 standard errors of a difference, over its efficiency."""
    return (1.96 + 1.28) / math.sqrt(0.955) * deviation * math.sqrt(2 / size) <= INJECTED - 1


def pairs(run: HostRun) -> list[Pair]:
    """Every figure that both names of a runtime have, by block, without warm-ups."""
    taken: dict[str, dict[str, dict[int, float]]] = {}
    known: dict[str, tuple[str, str, bool]] = {}
    for trial in run.trials:
        if trial.block == 0 or not trial.runtime.endswith(("-a", "-b")):
            continue
        for figure in trial.figures:
            test = f"{trial.test} {trial.variant}" if trial.suite == SuiteName.STARTUP else trial.test
            name = f"{trial.runtime[:-2]}: {trial.suite} {test}, {figure.name}"
            taken.setdefault(name, {}).setdefault(trial.runtime[-1], {})[trial.block] = figure.value
            known[name] = (trial.suite, trial.test, figure.larger_is_better)
    found = []
    for name, sides in taken.items():
        both = sorted(set(sides.get("a", {})) & set(sides.get("b", {})))
        if both:
            values = tuple((sides["a"][block], sides["b"][block]) for block in both)
            found.append(Pair(name, *known[name], values))
    return found


def judge(
    found: Sequence[Pair], sizes: Mapping[str, int], comparisons: int = COMPARISONS, seed: int = 1
) -> Judged | None:
    """Compare so many times, each cell in its turn, so many blocks by its suite; None where no cell has enough."""
    chance = random.Random(f"{seed}/{sorted(sizes.items())}")
    usable = [pair for pair in found if len(pair.values) >= sizes.get(pair.suite, math.inf)]
    if not usable:
        return None
    able = {pair.name for pair in usable if allows(pair.deviation(), sizes[pair.suite])}
    false = undecided = injected = called = 0
    for number in range(comparisons):
        pair = usable[number % len(usable)]
        blocks = chance.sample(pair.values, sizes[pair.suite])
        if chance.random() < 0.5:
            blocks = [(b, a) for a, b in blocks]
        first, second = ([both[side] for both in blocks] for side in (0, 1))
        verdict = _verdict(first, second, pair)
        false += verdict in (Verdict.BETTER, Verdict.WORSE)
        undecided += verdict is Verdict.UNDECIDED
        if pair.name in able:
            slower = [value / INJECTED if pair.larger_is_better else value * INJECTED for value in second]
            injected += 1
            called += _verdict(first, slower, pair) is Verdict.WORSE
    unable = tuple(pair.name for pair in usable if pair.name not in able)
    suites = {pair.suite for pair in usable}
    compared = {suite: size for suite, size in sizes.items() if suite in suites}
    tests = frozenset(pair.test for pair in usable)
    return Judged(compared, comparisons, false, undecided, injected, called, tuple(sorted(able)), unable, tests)


def _verdict(first: Sequence[float], second: Sequence[float], pair: Pair) -> Verdict:
    found = against(first, second, larger_is_better=pair.larger_is_better)
    return Verdict.UNDECIDED if found is None else found.verdict


def measure(out: Path, repeat: int | None) -> Path:
    """Measure every runtime under both names, in `repeat` blocks in place of each part's own; goes on with what is
    there."""
    out.mkdir(parents=True, exist_ok=True)
    described = []
    for file in RUNTIMES:
        text = file.read_text()
        for side in "ab":
            copy = out / f"{file.stem}-{side}.toml"
            copy.write_text(text.replace(f'name = "{file.stem}"', f'name = "{file.stem}-{side}"', 1))
            described.append(str(copy))
    results = out / "aa.json"
    image = f"oci:{REPOSITORY / 'build/images/bench'}"
    for part in PARTS:
        words = [sys.executable, "-m", "vmtailor", "bench", part.suite, "--only", part.tests, "--n", "1", "--quick"]
        words += ["--image", image, "--on", ",".join(described), "--repeat", str(repeat or part.blocks)]
        ended = subprocess.run([*words, "-o", str(results)], check=False, timeout=_WEEK_S, stdout=subprocess.DEVNULL)
        if ended.returncode != 0:
            raise SystemExit(ended.returncode)
    return results


def show(found: Sequence[Pair], run: HostRun, judged: Sequence[Judged]) -> bool:
    """Print it; whether all that is asked holds, of every suite. `judged`: of all, and before it of single suites."""
    noise = [trial.noise.others + trial.noise.steal for trial in run.trials if trial.noise is not None]
    print(f"{run.host.id}, {len(found)} cells, others took {100 * statistics.median(noise or [0]):.0f} % of the host")
    for pair in found:
        print(f"  {pair.name:<50} {len(pair.values):4} blocks, spread {100 * pair.deviation():6.2f} %")
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
    asked = {
        f"all tests measured: {last.size}": last.sizes == {part.suite: part.sizes[-1] for part in PARTS}
        and all(last.tests.issuperset(part.tests.split(",")) for part in PARTS),
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
    every = (judge(found, {part.suite: part.sizes[level] for part in group}) for group in groups for level in LEVELS)
    judged = [one for one in every if one is not None]
    return 0 if show(found, run, judged) else 1


if __name__ == "__main__":
    sys.exit(main())
