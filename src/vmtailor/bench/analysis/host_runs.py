# SPDX-License-Identifier: Apache-2.0
"""Two runs, of two hosts or of one host at two times, compared cell by cell; and runs merged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vmtailor.base.errors import UserInputError
from vmtailor.bench.analysis.cells import Against, Cell, CellKey, cells_of, set_against
from vmtailor.bench.analysis.schedule import LEFT_OUT
from vmtailor.bench.model.results import IMAGE, BenchResults, HostRun


@dataclass(frozen=True)
class Compared:
    """One cell on both sides; None where a side does not have it. `change`: None where it cannot be computed."""

    key: CellKey
    before: Cell | None
    after: Cell | None
    change: Against | None


@dataclass(frozen=True)
class Pair:
    """Two runs that are compared. `other_image`: their images differ: each is made for its own processor, or they are
    two of one host, such as a lean and a full one. A digest cannot tell whether they hold the same files."""

    before: HostRun
    after: HostRun

    @property
    def other_image(self) -> bool:
        return self.before.image_digest != self.after.image_digest


def pairs(before: BenchResults, after: BenchResults | None = None) -> tuple[list[Pair], list[str]]:
    """Return the pairs of runs to compare, and in words the runs that cannot be. Each run of the second file goes with
    that of the same host in the first, or with every run there. In a single file, each run goes with its first. Raises
    UserInputError where no pair can be compared: other forms, or other images on two hosts of one kind of processor."""
    earlier, later = (before.runs, after.runs) if after is not None else (before.runs[:1], before.runs[1:])
    if not earlier or not later:
        what = "a file holds no run" if after is not None else "the file holds one run: there is nothing to compare"
        raise UserInputError(what, hint="vmtailor bench SUITE --on … makes one; --host-name tells hosts apart")
    found, lacking = [], []
    for right in later:
        able = [left for left in earlier if not _unlike(left, right)]
        own = [left for left in able if left.host.id == right.host.id]
        alike = [left for left in own if left.image_digest == right.image_digest]
        found += [Pair(left, right) for left in alike or own or able]
        if not able:
            lacking.append((right, _unlike(earlier[-1], right)))
    if not found:
        raise UserInputError(
            lacking[-1][1], hint="measure both alike: with one image (--image), or both images on one host"
        )
    return found, [f"{right.host.id}: {why}" for right, why in lacking]


def _unlike(left: HostRun, right: HostRun) -> str:
    """Return why two runs cannot be compared; empty when they can."""
    if left.quick != right.quick:
        return "one side is of the quick form, whose tests are shorter"
    others = left.host.id != right.host.id and left.host.architecture == right.host.architecture
    if left.image_digest != right.image_digest and others:
        return "the sides are of different images, on two hosts"
    return ""


def image_of(run: HostRun) -> str:
    """Return the image of a run as it was asked for, with the beginning of its digest."""
    name = dict(run.options).get(IMAGE, "image")
    return f"{name} ({run.image_digest.removeprefix('sha256:')[:12]})"


def compared(before: HostRun, after: HostRun) -> list[Compared]:
    """Return every cell that either side has."""
    left = {cell.key: cell for cell in cells_of(before)}
    right = {cell.key: cell for cell in cells_of(after)}
    found = []
    for key in dict.fromkeys((*left, *right)):
        one, two = left.get(key), right.get(key)
        change = None
        if one is not None and two is not None:
            change = set_against(key, one.values, two.values, larger_is_better=one.larger_is_better)
        found.append(Compared(key, one, two, change))
    return found


def merged(files: Sequence[BenchResults]) -> BenchResults:
    """Return one entry for each host, image and form, with each trial once. The last file that describes a runtime, or
    says what was left out, counts."""
    runs: dict[tuple[str, str, bool], HostRun] = {}
    for results in files:
        for run in results.runs:
            key = (run.host.id, run.image_digest, run.quick)
            runs[key] = _joined(runs[key], run) if key in runs else run
    return BenchResults(files[-1].version, tuple(runs.values()))


def _joined(first: HostRun, second: HostRun) -> HostRun:
    trials = {(*trial.key, trial.started_unix_s): trial for trial in (*first.trials, *second.trials)}
    return replace(with_earlier(first, second), trials=tuple(trials.values()))


def with_earlier(first: HostRun, second: HostRun) -> HostRun:
    """Return the second run with what only the first one has: runtimes, in the order in which they first came, options,
    and what it left out. Drops what the first left out for lack of time, or for runtimes that the second measures
    anew."""
    now = {one.runtime for one in second.identities}
    identities = {one.runtime: one for one in (*first.identities, *second.identities)}
    of_others = [
        text
        for text in first.left_out
        if LEFT_OUT not in text and not any(text.startswith(f"{name}: ") for name in now)
    ]
    return replace(
        second,
        options=tuple({**dict(first.options), **dict(second.options)}.items()),
        identities=tuple(identities.values()),
        left_out=tuple(dict.fromkeys((*of_others, *second.left_out))),
    )
