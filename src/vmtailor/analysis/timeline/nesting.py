# SPDX-License-Identifier: Apache-2.0
"""Initcalls and probes run inside each other: what is each one's own time, and what ran beside the boot rather than
in it.

Without printk's caller field a log does not say which thread a probe ran in. What fits into a call of PID 1 is taken as
part of it, and otherwise what fits into one of another thread; what reaches over the end of one cannot be, and ran
beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

import msgspec

#: A probe's start is computed from rounded figures; so much may it stick out of the call around it.
SLACK_US = 30
MAIN = 1


class Span(msgspec.Struct, gc=False):
    """One run of something. `task` is its thread (None: the log does not say). `inside_us` collects the time of what
    ran in it;
    `inner`: it ran inside an initcall."""

    start_us: int
    end_us: int
    duration_us: int
    task: int | None
    probe: bool
    inside_us: int = 0
    beside: bool = False
    overlaps: bool = False
    inner: bool = False

    @property
    def exclusive_us(self) -> int:
        return max(0, self.duration_us - self.inside_us)


def nest(spans: Sequence[Span | None]) -> None:
    """Fill in `inside_us`, `beside` and `overlaps`. None stands for a run without known times, and is left alone."""
    known = [span for span in spans if span is not None]
    if not any(span.probe for span in known) and _flat(known):
        for span in known:
            span.beside = span.task not in (None, 0, MAIN)
        return
    # Two stable sorts, by start and then the longest first, make no tuple for each of a million runs.
    order = sorted(known, key=attrgetter("end_us"), reverse=True)
    order.sort(key=attrgetter("start_us"))
    del known
    stacks: dict[int, list[Span]] = {}
    for span in order:
        task = MAIN if span.task in (None, 0) else int(span.task or MAIN)
        stack = _open(stacks.setdefault(task, []), span)
        if span.probe and span.task is None and not stack:
            stack = _that_holds(span, stacks) or stack
        parent = stack[-1] if stack else None
        span.beside = task != MAIN or (parent is not None and parent.beside)
        while parent is not None and span.end_us > parent.end_us and parent.end_us - span.start_us <= SLACK_US:
            stack.pop()
            parent = stack[-1] if stack else None
        if parent is not None and span.end_us > parent.end_us + SLACK_US:
            span.overlaps = True
            if span.probe:
                # One thread does not do two things at once: this one ran in another.
                span.beside = True
                continue
        elif parent is not None:
            parent.inside_us += span.duration_us
            span.beside = span.beside or parent.beside
            span.inner = parent.inner or not parent.probe
        stack.append(span)


def _open(stack: list[Span], span: Span) -> list[Span]:
    """The stack without what was over when the span began."""
    while stack and stack[-1].end_us <= span.start_us:
        stack.pop()
    return stack


def _that_holds(span: Span, stacks: Mapping[int, list[Span]]) -> list[Span] | None:
    """Of other threads' stacks the one whose innermost call holds a probe whole; of several, the latest begun."""
    held = [
        stack
        for task, stack in stacks.items()
        if task != MAIN and _open(stack, span) and stack[-1].end_us + SLACK_US >= span.end_us
    ]
    return max(held, key=lambda stack: stack[-1].start_us, default=None)


def _flat(spans: Sequence[Span]) -> bool:
    last = -(1 << 62)
    for span in spans:
        if span.start_us < last:
            return False
        last = span.end_us
    return True
