# SPDX-License-Identifier: Apache-2.0
"""Latencies of a boot's loads at a rate, and whether an exercise asks enough for one of them."""

from __future__ import annotations

import math
from collections import Counter

from vmtailor.base import manual
from vmtailor.base.errors import UserInputError
from vmtailor.base.figures import grouped
from vmtailor.base.text import plural
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.load_result import ABOVE, Latencies
from vmtailor.model.boots.series import JudgedBy
from vmtailor.model.exercise import Exercise


def of_boot(boot: Boot, share: float) -> int | None:
    """Return the latency in ns that this share of answers did not exceed, over the loads at a rate; of a sweep only its
    first rate counts, which is the same on each machine. None where there were too few answers."""
    loads = boot.container.loads if boot.container is not None else ()
    found = [one.stages[0].latencies for one in loads if one.stages and one.stages[0].rate is not None]
    return _joined(found).at(share)


def _joined(parts: list[Latencies]) -> Latencies:
    buckets: Counter[int] = Counter()
    for one in parts:
        buckets.update(dict(one.buckets))
    most = max((one.most_ns for one in parts), default=0)
    return Latencies(tuple(sorted(buckets.items())), sum(one.sum_ns for one in parts), 0, most)


def require_enough(judged: tuple[JudgedBy, ...], exercise: Exercise | None) -> None:
    """Raise UserInputError where a percentile is judged by, and the exercise has no load at a rate, or asks too few
    requests for it."""
    for by in judged:
        if by.percentile is None:
            continue
        steps = exercise.loads if exercise is not None else ()
        origin = exercise.origin if exercise is not None else "given"
        loads = [one.load for one in steps if one.load is not None and one.load.rate is not None]
        asked = sum(one.first_requests for one in loads)
        rates = sum(one.rate or 0 for one in loads)
        needed = round(ABOVE / (1 - by.percentile))
        if not loads:
            raise UserInputError(
                f"--judge {by} is of a load at a rate, and the exercise {origin} has none",
                hint=f'a step of kind = "rate" in --exercise FILE: {manual.command("exercise")}',
            )
        if asked < needed:
            raise UserInputError(
                f"--judge {by} needs {grouped(needed)} requests at the rate of a load, and {origin} asks "
                f"{plural(asked, 'request')}",
                hint=f"a longer load: seconds = {math.ceil(100 * needed / rates) / 100:g} or more",
            )
