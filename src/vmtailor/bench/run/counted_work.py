# SPDX-License-Identifier: Apache-2.0
"""Work of a known amount, which is counted: two commands of the image for each test, of which the second does more."""

from __future__ import annotations

from dataclasses import dataclass

from vmtailor.bench.analysis.benchmarks import INDEX, BenchTest
from vmtailor.bench.model.instance import BENCH, BENCH_UNIXBENCH
from vmtailor.bench.model.results import SuiteName
from vmtailor.bench.suites.efficiency import disk_words


@dataclass(frozen=True)
class CountedWork:
    """Two commands of the image, of which the second one does `units` more."""

    less: tuple[str, ...]
    more: tuple[str, ...]
    units: int


def _equations(number: int) -> int:
    """Return the floating-point operations that solve so many equations, as LINPACK counts them."""
    return 2 * number**3 // 3 + 2 * number**2


#: Equations, STREAM's repetitions and bytes of an array, bytes of a file: of the shorter and of the longer command.
_EQUATIONS, _ROUNDS, _ARRAY, _FILE = (200, 400), (2, 6), 4 << 20, (1 << 20, 3 << 20)
#: Arrays that STREAM's kernels read or write in a round: copy and scale two each, add and triad three.
_ARRAYS = 10
#: Tests of efficiency that are counted within a machine. Units: a thousand operations, a KB, a KB.
WITHIN_WORK = {
    "linpack": CountedWork(
        less=("/bench/linpack", str(_EQUATIONS[0]), "1"),
        more=("/bench/linpack", str(_EQUATIONS[1]), "1"),
        units=(_equations(_EQUATIONS[1]) - _equations(_EQUATIONS[0])) // 1000,
    ),
    "stream": CountedWork(
        less=(BENCH, "stream", str(_ARRAY), str(_ROUNDS[0])),
        more=(BENCH, "stream", str(_ARRAY), str(_ROUNDS[1])),
        units=(_ROUNDS[1] - _ROUNDS[0]) * _ARRAYS * _ARRAY >> 10,
    ),
    "disk": CountedWork(
        less=tuple(disk_words(_FILE[0])), more=tuple(disk_words(_FILE[1])), units=(_FILE[1] - _FILE[0]) >> 10
    ),
}


def work_of(test: BenchTest) -> CountedWork:
    """Return the two commands of a test that is counted by the unit. Raises KeyError for another one."""
    if test.suite == SuiteName.EFFICIENCY:
        return WITHIN_WORK[test.test]
    units = INDEX[test.test].units
    less, more = ((BENCH_UNIXBENCH, "units", test.test, str(count)) for count in (units, 2 * units))
    return CountedWork(less=less, more=more, units=units)
