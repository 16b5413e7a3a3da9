# SPDX-License-Identifier: Apache-2.0
"""The client's record of loads → their results. A guest may say anything: what makes no sense is left out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from vmtailor.base.text import is_number, plain
from vmtailor.model.boots.load_result import BUCKETS, FAILURES, Latencies, LoadResult, LoadStage
from vmtailor.model.exercise import Exercise

#: Stages of a load, and loads of an exercise, that are read.
_STAGES, _LOADS = 64, 256
_DIGITS = 18
_WHY = 200


@dataclass
class _Stage:
    values: dict[str, int]
    why: str = ""
    buckets: dict[int, int] = field(default_factory=dict)

    def made(self) -> LoadStage:
        get = self.values.get
        rate = get("rate", 0)
        buckets = tuple(sorted(self.buckets.items()))
        right = sum(count for _, count in buckets)
        failures = tuple((name, count) for name in FAILURES if (count := get(name, 0)))
        return LoadStage(
            rate=rate / 1000 if rate else None,
            asked=right + sum(count for _, count in failures),
            right=right,
            failures=failures,
            connections=get("connections", 0),
            offered_ns=get("offered-ns", 0),
            took_ns=get("took-ns", 0),
            late_ns=get("late-ns", 0),
            latest_ns=get("latest-ns", 0),
            gave_up=get("gave-up") == 1,
            held=get("held") == 1 and not failures,
            why=self.why,
            latencies=Latencies(buckets, get("sum-ns", 0), get("least-ns", 0), get("most-ns", 0)),
        )


def parse(text: str) -> tuple[LoadResult, ...]:
    """Return the results in what the client told, in its order; of a load that was told twice, the last."""
    found: dict[int, tuple[list[_Stage], bool]] = {}
    fine: dict[int, int] = {}
    stages: list[_Stage] | None = None
    step = -1
    for line in text.split("\n"):
        word, _, rest = line.partition(" ")
        if word == "load" and is_number(rest) and len(rest) < _DIGITS and len(found) < _LOADS:
            step, stages = int(rest), []
            found[step] = (stages, False)
        elif stages is None:
            continue
        elif word == "clock":
            fine[step] = _numbers(rest).get("fine-ns", 0)
        elif word == "stage" and len(stages) < _STAGES:
            stages.append(_Stage(_numbers(rest)))
        elif word == "why" and stages:
            stages[-1].why = plain(rest[:_WHY])
        elif word == "latency" and stages:
            _add(stages[-1].buckets, rest)
        elif word == "end":
            found[step] = (stages, True)
            stages = None
    return tuple(
        LoadResult(number, tuple(one.made() for one in rows), whole, fine.get(number, 0))
        for number, (rows, whole) in found.items()
    )


def of_exercise(text: str, exercise: Exercise | None) -> tuple[LoadResult, ...]:
    """Return the results in what the client told, with the titles of their steps."""
    titles = [step.title for step in exercise.guest_steps] if exercise is not None else []
    return tuple(
        replace(one, title=titles[one.step] if one.step < len(titles) else f"step {one.step + 1}")
        for one in parse(text)
    )


def _numbers(text: str) -> dict[str, int]:
    pairs = (word.partition("=") for word in text.split(" ")[:64])
    return {key: int(value) for key, _, value in pairs if is_number(value) and len(value) <= _DIGITS}


def _add(buckets: dict[int, int], text: str) -> None:
    for word in text.split(" ")[:64]:
        bucket, _, count = word.partition(":")
        if all(is_number(part) and len(part) <= _DIGITS for part in (bucket, count)) and int(bucket) < BUCKETS:
            buckets[int(bucket)] = buckets.get(int(bucket), 0) + int(count)
