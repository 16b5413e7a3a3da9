# SPDX-License-Identifier: Apache-2.0
"""`make compare-quality`: how often `vmtailor compare` is wrong, from thirty real boots of one machine.

A/A: the boots are split at random into halves, which differ by chance alone: how many rows are called different?
Injected: one side of a row is made longer by a multiple of the row's standard deviation: how often is that called?
A change is called when its row is `slower`, or `below threshold` with the direction `slower` (clear, but too small to
be of interest)."""

from __future__ import annotations

import argparse
import random
import statistics
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vmtailor.analysis.comparison.boot_differences import THRESHOLDS, Key, compare_boots, row
from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.model.boots.comparison import Row, RowVerdict
from vmtailor.model.boots.timeline import Timeline

BOOTS = Path(__file__).resolve().parents[1] / "tests" / "data" / "boot" / "repeated" / "boots.tar.xz"
SPLITS = 200
#: What is asked of it.
MOST_FALSE, LEAST_CALLED, INJECTED = 0.02, 0.90, 1.5
SMALLER = (0.1, 0.25, 0.5, 1.0)
DIFFERENT = (RowVerdict.FASTER, RowVerdict.SLOWER, RowVerdict.NEW, RowVerdict.GONE, RowVerdict.MOVED)
#: Rows whose spread is less are whole microseconds apart: nothing can be injected into them.
LEAST_SPREAD_US = 2.0


@dataclass
class Found:
    """What was counted."""

    rows: int = 0
    different: int = 0
    false: dict[str, int] = field(default_factory=dict)
    injected: int = 0
    called: int = 0
    smaller: dict[float, int] = field(default_factory=lambda: dict.fromkeys(SMALLER, 0))
    smaller_same: int = 0


def boots(archive: Path = BOOTS) -> list[Timeline]:
    """The timelines of the boots."""
    with tempfile.TemporaryDirectory() as folder, tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
        return [analyze([path]) for path in sorted(Path(folder).glob("*.log"))]


def called(found: Row) -> bool:
    """Whether a row says that its item became slower."""
    return found.verdict == RowVerdict.SLOWER or (
        found.verdict == RowVerdict.BELOW and found.direction == RowVerdict.SLOWER
    )


def run(timelines: Sequence[Timeline], splits: int = SPLITS, rows_a_split: int = 20) -> Found:
    """Count over random halves. Changes are injected into `rows_a_split` rows of each, chosen at random."""
    chance = random.Random(1)
    values = _values(timelines)
    spread = {key: statistics.stdev(us) for key, us in values.items() if len(us) == len(timelines)}
    usable = sorted(key for key, deviation in spread.items() if deviation >= LEAST_SPREAD_US)
    found = Found()
    for _ in range(splits):
        order = list(range(len(timelines)))
        chance.shuffle(order)
        left, right = order[: len(order) // 2], order[len(order) // 2 :]
        comparison = compare_boots([timelines[n] for n in left], [timelines[n] for n in right], ("A", "B"))
        for one in (*comparison.phases, *comparison.items):
            found.rows += 1
            if one.verdict in DIFFERENT:
                found.different += 1
                found.false[one.name] = found.false.get(one.name, 0) + 1
        for key in chance.sample(usable, min(rows_a_split, len(usable))):
            _inject(key, [values[key][n] for n in left], [values[key][n] for n in right], spread[key], found)
    return found


def _inject(key: Key, before: list[float], after: list[float], deviation: float, found: Found) -> None:
    of = (len(before), len(after))
    found.injected += 1
    found.called += called(row(key, before, [v + INJECTED * deviation for v in after], of, THRESHOLDS))
    for share in SMALLER:
        changed = row(key, before, [v + share * deviation for v in after], of, THRESHOLDS)
        found.smaller[share] += called(changed)
        found.smaller_same += changed.verdict == RowVerdict.SAME


def _values(timelines: Sequence[Timeline]) -> dict[Key, list[float]]:
    values: dict[Key, list[float]] = {}
    for boot in timelines:
        for call in boot.initcalls:
            if call.exclusive_us is not None:
                values.setdefault(("initcall", call.name, call.occurrence), []).append(float(call.exclusive_us))
        if boot.kernel_us is not None:
            values.setdefault(("phase", "kernel", 1), []).append(float(boot.kernel_us))
    return values


def report(found: Found) -> str:
    """The counts, for a person."""
    lines = [
        f"A/A: {found.different} of {found.rows} rows called different: {100 * found.different / found.rows:.2f} % "
        f"(at most {100 * MOST_FALSE:g} %)",
        f"a change of {INJECTED:g} standard deviations is called in {found.called} of {found.injected}: "
        f"{100 * found.called / found.injected:.1f} % (at least {100 * LEAST_CALLED:g} %)",
        *(
            f"a change of {share:g} is called in {100 * count / found.injected:.1f} %"
            for share, count in found.smaller.items()
        ),
        f"a smaller change called the same: {found.smaller_same} of {len(SMALLER) * found.injected} (none)",
    ]
    worst = sorted(found.false.items(), key=lambda one: -one[1])[:5]
    return "\n".join([*lines, f"called different most often: {', '.join(f'{n} ({c})' for n, c in worst)}"])


def passes(found: Found) -> bool:
    """Whether all that is asked of it holds."""
    return (
        found.different <= MOST_FALSE * found.rows
        and found.called >= LEAST_CALLED * found.injected
        and found.smaller_same == 0
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=SPLITS)
    found = run(boots(), parser.parse_args().splits)
    print(report(found))
    raise SystemExit(0 if passes(found) else 1)


if __name__ == "__main__":
    main()
