# SPDX-License-Identifier: Apache-2.0
"""Draw loads: latencies as shares of answers, and what a sweep was answered at each rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from vmtailor.analysis.guests import load_faults, load_rows
from vmtailor.base import figures
from vmtailor.model.boots.load_result import Latencies, LoadResult, bucket_from
from vmtailor.model.fit_run import Side

#: Points of a picture's inside.
WIDTH, HEIGHT = 640, 240

Point = tuple[float, float]


@dataclass(frozen=True)
class LoadCurve:
    """One side's curve: its points as SVG has them, in a picture of WIDTH × HEIGHT, and its class."""

    name: str
    kind: str
    points: str


@dataclass(frozen=True)
class LoadPicture:
    """Lines of both sides on one scale. `across`, `up`: ticks of the axes, each with its place and label."""

    title: str
    lines: tuple[LoadCurve, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]


@dataclass(frozen=True)
class LoadRows:
    """The stages of a side in text, and sentences about them."""

    name: str
    rows: tuple[tuple[str, ...], ...]
    words: tuple[str, ...]


@dataclass(frozen=True)
class ShownLoad:
    """One load of an exercise, of both sides."""

    title: str
    pictures: tuple[LoadPicture, ...]
    sides: tuple[LoadRows, ...]


def loads(baseline: Side, tailored: Side) -> tuple[ShownLoad, ...]:
    """Return the loads of an exercise; empty where it has none."""
    found = []
    for load in tailored.loads or baseline.loads:
        both = [(side.name, one) for side in (baseline, tailored) for one in side.loads if one.step == load.step]
        if any(stage.right for _, one in both for stage in one.stages):
            sweep = max(len(one.stages) for _, one in both) > 1
            drawn = _sweeps(both) if sweep else (_shares(both),)
            found.append(ShownLoad(load.title, drawn, tuple(_rows(name, one) for name, one in both)))
    return tuple(found)


def _rows(name: str, load: LoadResult) -> LoadRows:
    ordered = sorted(load.stages, key=lambda stage: stage.rate or 0)
    words = [sentence for stage in ordered if (sentence := load_faults.of_stage(stage))]
    if load.knee is not None:
        held, broken = (figures.grouped(rate) for rate in load.knee)
        words.insert(0, f"{held} requests a second were held, {broken} were not")
    return LoadRows(name, tuple(map(load_rows.row, ordered)), tuple(words))


# --- latencies: share of answers that took no longer ---


def _shares(both: Sequence[tuple[str, LoadResult]]) -> LoadPicture:
    found = [(name, one.stages[0].latencies) for name, one in both if one.stages and one.stages[0].right]
    least, most = min(one.least_ns for _, one in found), max(one.most_ns for _, one in found)
    low, high = math.log10(max(1, least)), math.log10(max(2, most) + 1)
    place = _scale(low, high)
    lines = [(name, [(place(math.log10(max(1, at))), 1 - share) for at, share in _steps(one)]) for name, one in found]
    across, up = _tens(low, high), ((0.0, "100 %"), (0.5, "50 %"), (1.0, "0"))
    title = "Share of answers within a time"
    return LoadPicture(title, _drawn(lines), _ticks(across, WIDTH), _ticks(up, HEIGHT))


def _steps(latencies: Latencies) -> list[tuple[int, float]]:
    """Return the share of answers up to the end of each bucket."""
    sums = accumulate(count for _, count in latencies.buckets)
    pairs = zip(latencies.buckets, sums, strict=True)
    ends = [(min(bucket_from(bucket + 1), latencies.most_ns), seen / latencies.count) for (bucket, _), seen in pairs]
    return [(latencies.least_ns, 0.0), *ends]


# --- sweeps ---


def _sweeps(both: Sequence[tuple[str, LoadResult]]) -> tuple[LoadPicture, ...]:
    stages = [(name, sorted((s for s in one.stages if s.rate), key=lambda s: s.rate or 0)) for name, one in both]
    rates = [stage.rate or 0 for _, some in stages for stage in some]
    across = _scale(0.0, max(rates))
    step = 10 ** math.floor(math.log10(max(rates)))
    step = step if max(rates) / step >= 3 else step / 5
    most = max(rates)
    marks = [(step * at / most, figures.grouped(step * at)) for at in range(int(most / step) + 1)]
    rising = _ticks([(1 - share, label) for share, label in marks], HEIGHT)
    answered = [(name, [(across(s.rate or 0), 1 - (s.achieved or 0) / most) for s in some]) for name, some in stages]
    title = "Answers a second, by requests a second"
    pictures = [LoadPicture(title, _drawn(answered), _ticks(marks, WIDTH), rising)]
    known = [time for _, some in stages for s in some if (time := s.latencies.at(0.5))]
    if known:
        low, high = math.log10(min(known)), math.log10(max(known) + 1)
        up = _scale(low, high)
        medians = [
            (name, [(across(s.rate or 0), 1 - up(math.log10(at))) for s in some if (at := s.latencies.at(0.5))])
            for name, some in stages
        ]
        tens = _ticks([(1 - share, label) for share, label in _tens(low, high)], HEIGHT)
        title = "Median latency, by requests a second"
        pictures.append(LoadPicture(title, _drawn(medians), _ticks(marks, WIDTH), tens))
    return tuple(pictures)


# --- scales: a share of the width or height, from 0 to 1 ---


def _scale(low: float, high: float) -> Callable[[float], float]:
    width = max(high - low, 1e-9)
    return lambda value: (value - low) / width


def _tens(low: float, high: float) -> list[tuple[float, str]]:
    """Return ticks at powers of ten of nanoseconds, or at the ends where none lies between."""
    place = _scale(low, high)
    powers = [float(power) for power in range(math.ceil(low), math.floor(high) + 1)] or [low, high]
    return [(place(power), figures.microseconds(10**power / 1e3)) for power in powers]


def _ticks(marks: Sequence[tuple[float, str]], size: int) -> tuple[tuple[float, str], ...]:
    return tuple((size * share, label) for share, label in marks)


def _drawn(lines: Sequence[tuple[str, Sequence[Point]]]) -> tuple[LoadCurve, ...]:
    places = [(name, " ".join(f"{WIDTH * x:.1f},{HEIGHT * y:.1f}" for x, y in points)) for name, points in lines]
    return tuple(LoadCurve(name, name, points) for name, points in places)
