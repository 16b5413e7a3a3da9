# SPDX-License-Identifier: Apache-2.0
"""A load as the words of the exercise's client of loads (native/load-client/plan.h)."""

from __future__ import annotations

from collections.abc import Iterator

from vmtailor.model.exercise import Step, StepKind
from vmtailor.model.load import REFINE, Arrivals, Load, LoadPage


def words(step: Step, number: int, address: str = "") -> tuple[str, ...]:
    """Return the words for a step that is a load; `number` is its place among the steps in the guest. `address`: of
    IPv4, where the container is not reached by the loopback interface."""
    load = step.load
    assert load is not None
    values = [*_values(step, load), ("port", step.port), ("step", number)]
    if address:
        values.append(("address", address))
    found = [f"{key}={value}" for key, value in values]
    for page in load.pages:
        found += [f"{key}={value}" for key, value in _page(page)]
    return tuple(found)


def _values(step: Step, load: Load) -> list[tuple[str, int | str]]:
    values: list[tuple[str, int | str]] = [
        ("protocol", load.protocol.value),
        ("at-once", load.at_once),
        ("calls", load.calls),
        ("keep", int(load.keep_alive)),
        # At once on one page, a kept connection is one for the next request, too.
        ("keep-between", int(load.keep_alive and step.kind is StepKind.PEAK)),
        ("timeout-ns", _ns(load.timeout_s)),
        ("limit-ns", _ns(load.limit_s)),
        ("pause-least-ns", _ns(load.pause_s[0])),
        ("pause-most-ns", _ns(load.pause_s[1])),
        ("seed", load.seed),
    ]
    if load.rate is None:
        return [*values, ("sessions", load.sessions)]
    values += [
        ("rate", max(1, round(1000 * load.rate))),
        ("stage-ns", _ns(load.seconds)),
        ("random", int(load.arrivals is Arrivals.RANDOM)),
    ]
    if load.to_rate is not None:
        values += [("to", max(1, round(1000 * load.to_rate))), ("refine", REFINE)]
        values += [("step-percent", round(100 * load.step))]
    return values


def _page(page: LoadPage) -> Iterator[tuple[str, int | str]]:
    yield "page", page.path
    yield "method", page.method
    for word in page.command:
        yield "word", word
    if page.status is not None:
        yield "status", page.status
    for key, text in (("contains", page.contains), ("answer", page.answer), ("sha256", page.sha256)):
        if text is not None:
            yield key, text


def _ns(seconds: float) -> int:
    return max(0, min(86_400_000_000_000, round(seconds * 1e9)))
