# SPDX-License-Identifier: Apache-2.0
"""Rates of figures that count up. A figure that falls has begun again: nobody knows what was lost, so that interval has
no rate. Neither has one at whose ends a value is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from vmtailor.model.machine_watch import MachineWatch, WatchedKind, WatchSeries

#: An interval this many times as long as the usual one is a gap.
GAP_TIMES = 2.5


@dataclass(frozen=True)
class Rates:
    """Growth of a figure in each second of the machine's clock: one value for each sample but the first, of the
    interval before it. `resets`: how often it began again."""

    values: tuple[float | None, ...]
    resets: int


def rates(series: WatchSeries, times_ns: Sequence[int]) -> Rates:
    """Return the rates of one series."""
    found: list[float | None] = []
    resets = 0
    for number in range(1, len(times_ns)):
        before, now = series.values[number - 1], series.values[number]
        passed_ns = times_ns[number] - times_ns[number - 1]
        resets += before is not None and now is not None and now < before
        if before is None or now is None or now < before or passed_ns <= 0:
            found.append(None)
        else:
            found.append(1e9 * (now - before) / passed_ns)
    return Rates(tuple(found), resets)


def grown(series: WatchSeries) -> int | None:
    """Return what a figure has grown by from its first value to its last, over all that it began again; None for fewer
    than two values."""
    values = [value for value in series.values if value is not None]
    if len(values) < 2:
        return None
    return sum(max(0, now - before) for before, now in pairwise(values))


def gaps(watch: MachineWatch) -> tuple[tuple[int, int], ...]:
    """Return the intervals in which samples are missing, as begin and end on the machine's clock."""
    usual_ns = 1e6 * watch.every_ms * watch.thinned
    return tuple((before, now) for before, now in pairwise(watch.times_ns) if now - before > GAP_TIMES * usual_ns)


def resets(watch: MachineWatch, kind: WatchedKind, figure: str) -> int:
    """Return how often a figure of one kind began again."""
    return sum(rates(one, watch.times_ns).resets for one in watch.of(kind) if one.figure == figure)
