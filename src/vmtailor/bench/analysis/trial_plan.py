# SPDX-License-Identifier: Apache-2.0
"""In which order trials run: randomised balanced blocks, so that what drifts meets every runtime alike."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtailor.bench.model.results import SuiteName, TestKey


@dataclass(frozen=True)
class BenchTest:
    """One test of a suite: `count` instances at once, run in the way `variant` says. `cost`: seconds that one trial
    takes, about; only for what is left to wait for. `warm_up`: whether each runtime has one; without, trials bring a
    baseline of their own. `only_in`: the one runtime in which it is done; empty: in all."""

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
class PlannedTrial:
    """`block` 0 is the warm-up."""

    test: BenchTest
    runtime: str
    block: int

    @property
    def key(self) -> tuple[str, str, str, int, str, int]:
        test = self.test
        return test.suite, test.test, self.runtime, test.count, test.variant, self.block


def is_way(variant: str, asked: str) -> bool:
    """Whether a test that is run in the way `variant` is meant by `asked`: by all of its words between commas, or by
    some of them (`1 copy` is `our set, 1 copy, all cores`, too). Nothing asked means every way."""
    return not asked or set(asked.split(", ")) <= set(variant.split(", "))


def orders(runtimes: Sequence[str], repeat: int, seed: str) -> Iterator[tuple[str, ...]]:
    """The order of the runtimes in each of the repetitions: a random one, then the same backwards (A B B A), then
    another. With an even number, every runtime stands as early as it stands late."""
    chance = random.Random(seed)
    forward: tuple[str, ...] = ()
    for number in range(repeat):
        if number % 2 == 0:
            forward = tuple(chance.sample(list(runtimes), len(runtimes)))
            yield forward
        else:
            yield forward[::-1]


def plan(tests: Sequence[BenchTest], runtimes: Sequence[str], repeat: int, seed: int) -> list[PlannedTrial]:
    """All trials in their order: test by test, a warm-up of each runtime, then the blocks."""
    found = []
    for test in tests:
        name = f"{seed}/{test.suite}/{test.test}/{test.count}/{test.variant}"
        ways = [runtime for runtime in runtimes if test.only_in in ("", runtime)]
        found += [PlannedTrial(test, runtime, 0) for runtime in ways if test.warm_up]
        for number, order in enumerate(orders(ways, repeat, name), 1):
            found += [PlannedTrial(test, runtime, number) for runtime in order]
    return found
