# SPDX-License-Identifier: Apache-2.0
"""The results of loads: how many requests ended how, and how long the right answers took."""

from __future__ import annotations

from dataclasses import dataclass

#: Buckets of a histogram for each doubling of a duration, as a power of two (native/load-client/histogram.h).
BUCKET_BITS = 7
#: The share of a duration that its bucket is right to.
BUCKET_SHARE = 1 / (1 << BUCKET_BITS)
#: Durations beyond this power of two, in nanoseconds, are in the last bucket.
BUCKET_MOST = 44
BUCKETS = (BUCKET_MOST - BUCKET_BITS + 1) << BUCKET_BITS
#: A percentile is told where so many durations lie above it, or more: fewer are chance.
ABOVE = 10
#: The percentiles of tables.
SHARES = (0.5, 0.9, 0.99, 0.999)
#: The ways in which a request ends, but for a right answer.
FAILURES = ("refused", "reset", "timeout", "unsent", "wrong", "other")


def bucket_from(bucket: int) -> int:
    """Return the smallest duration in a bucket, in nanoseconds."""
    shift = 0 if bucket < 2 << BUCKET_BITS else (bucket >> BUCKET_BITS) - 1
    return (bucket - (shift << BUCKET_BITS)) << shift


def bucket_of(duration_ns: int) -> int:
    """Return the bucket of a duration in nanoseconds."""
    if duration_ns >= 1 << BUCKET_MOST:
        return BUCKETS - 1
    shift = max(0, duration_ns.bit_length() - 1 - BUCKET_BITS)
    return (shift << BUCKET_BITS) + (duration_ns >> shift)


@dataclass(frozen=True)
class Latencies:
    """Durations of right answers, from the scheduled moment of their requests. `buckets`: number of a bucket and its
    count, in order, without empty ones; a bucket is as wide as 1/128 of its durations. The others are exact, in ns."""

    buckets: tuple[tuple[int, int], ...] = ()
    sum_ns: int = 0
    least_ns: int = 0
    most_ns: int = 0

    @property
    def count(self) -> int:
        return sum(count for _, count in self.buckets)

    @property
    def mean_ns(self) -> float | None:
        return self.sum_ns / self.count if self.buckets else None

    def at(self, share: float) -> int | None:
        """Return the duration in ns that this share of answers did not exceed, right to 0.8 %; None where fewer than 10
        answers took longer, since the figure would be chance."""
        count = self.count
        if count * (1 - share) < ABOVE - 1e-6:
            return None
        wanted, seen = share * count, 0
        for bucket, number in self.buckets:
            seen += number
            if seen >= wanted:
                return min(bucket_from(bucket + 1) - 1, self.most_ns)
        return self.most_ns


@dataclass(frozen=True)
class LoadStage:
    """One stage of a load. `rate`: requests a second that were to begin; None for a closed loop. `asked`: requests;
    `right`, and by kind those that failed (FAILURES, without zeros). `connections`: opened. `offered_ns`: time in which
    an open loop's requests were to begin. `took_ns`: from the first request to the last end. `late_ns`, `latest_ns`: by
    which requests began after their moment, in all and the most. `gave_up`: nothing was answered for so long that the
    rest was not asked. `held`: every request was right, and none waited in the end. `why`: the first fault."""

    rate: float | None
    asked: int
    right: int
    failures: tuple[tuple[str, int], ...] = ()
    connections: int = 0
    offered_ns: int = 0
    took_ns: int = 0
    late_ns: int = 0
    latest_ns: int = 0
    gave_up: bool = False
    held: bool = False
    why: str = ""
    latencies: Latencies = Latencies()

    @property
    def failed(self) -> int:
        return sum(count for _, count in self.failures)

    @property
    def achieved(self) -> float | None:
        """Return right answers a second."""
        return self.right * 1e9 / self.took_ns if self.took_ns else None


@dataclass(frozen=True)
class LoadResult:
    """The result of one step that is a load, by its number in the exercise as it was driven. `whole`: the client told
    all of it. `fine_ns`: what the guest's timers were right to; 0 where it was not told. `title`: the
    step in a few words."""

    step: int
    stages: tuple[LoadStage, ...]
    whole: bool = True
    fine_ns: int = 0
    title: str = ""

    @property
    def asked(self) -> int:
        return sum(stage.asked for stage in self.stages)

    @property
    def knee(self) -> tuple[float, float] | None:
        """Return the highest rate that held, and the lowest that did not; None where a sweep found no such pair."""
        held = max((stage.rate for stage in self.stages if stage.held and stage.rate), default=None)
        if held is None:
            return None
        broken = min((stage.rate for stage in self.stages if not stage.held and stage.rate), default=None)
        return None if broken is None or broken < held else (held, broken)
