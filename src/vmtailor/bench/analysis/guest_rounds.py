# SPDX-License-Identifier: Apache-2.0
"""Rounds of one boot, in each of which all instances run the same test at the same time. Makes figures of what they
printed and of what the machine executed meanwhile. Pure.

Times are virtual, of the guest's clock: on the instruction clock it advances with what is executed, and jumps over
waits. No figure here is in seconds of a real processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vmtailor.base.notation import decoded_json, finite_json
from vmtailor.base.text import plain
from vmtailor.bench.analysis.benchmarks import INDEX, SCORE
from vmtailor.bench.analysis.unixbench_index import OURS
from vmtailor.bench.model.results import BenchFigure
from vmtailor.model.boots.counters import Counters, Totals

#: A score by the processor time that a test used, as some published sets time Whetstone.
CPU_SCORE = "score by processor time"
#: Least share of the longest instance's time in which all are at work; with less, they were not measured at once.
LEAST_OVERLAP = 0.5
#: The span at the beginning of every step of an exercise, and the marks before the first and after the last.
STEP, FIRST, LAST = "step", "load", "load_end"


@dataclass(frozen=True)
class Said:
    """One instance's result of one test. `began_s`, `ended_s`: on the guest's clock."""

    test: str
    score: float
    units: float
    began_s: float
    ended_s: float
    cpu_s: float

    @property
    def seconds(self) -> float:
        return self.ended_s - self.began_s


def steps(found: Counters) -> list[Totals]:
    """Return the totals that the machine counted in each step of its load, in their order."""
    first, last = found.at(FIRST), found.at(LAST)
    if first is None or last is None:
        return []
    begun = [one.at for one in found.spans if one.name == STEP and first.executed <= one.at.executed < last.executed]
    return [end.since(begin) for begin, end in zip(begun, [*begun[1:], last], strict=True)] if begun else []


def said(text: str) -> dict[str, Said]:
    """Return test → the result that an instance printed, one JSON object a line. Other lines are skipped; the last
    result of a test counts. The text is untrusted."""
    found = {}
    for line in text.splitlines():
        row = decoded_json(line)
        if isinstance(row, dict) and (one := _said(row)) is not None:
            found[one.test] = one
    return found


def _said(row: Mapping[str, Any]) -> Said | None:
    numbers = {name: finite_json(row.get(name)) for name in ("score", "units", "began_s", "ended_s", "cpu_s")}
    known = {name: value for name, value in numbers.items() if value is not None}
    test = row.get("test")
    if not isinstance(test, str) or test not in INDEX or len(known) < len(numbers):
        return None
    found = Said(test=test, **known)
    return found if found.seconds > 0 and found.units >= 0 else None


def overlap(instances: Sequence[Said]) -> float:
    """Return the share of the longest instance's time during which all of them were at work."""
    together = min(one.ended_s for one in instances) - max(one.began_s for one in instances)
    return max(0.0, together) / max(one.seconds for one in instances)


def figures(instances: Sequence[Said], cost: Totals) -> tuple[BenchFigure, ...]:
    """Return the figures of one round: each instance's score, by virtual time and by processor time, and the numbers
    behind it. Instructions for a unit of work are those of all instances together. `cost`: of the step in which they
    ran."""
    unit = INDEX[instances[0].test].unit
    found = []
    for number, one in enumerate(instances):
        found.append(BenchFigure(name=SCORE, value=one.score, unit=unit, larger_is_better=True, instance=number))
        if one.cpu_s > 0:
            found.append(
                BenchFigure(
                    name=CPU_SCORE,
                    value=one.score * one.seconds / one.cpu_s,
                    unit=unit,
                    larger_is_better=True,
                    instance=number,
                )
            )
        found += [
            BenchFigure(name="units", value=one.units, unit="units", larger_is_better=True, instance=number),
            BenchFigure(name="virtual time", value=one.seconds, unit="s", larger_is_better=False, instance=number),
            BenchFigure(name="processor time", value=one.cpu_s, unit="s", larger_is_better=False, instance=number),
        ]
    done = sum(one.units for one in instances)
    for name, value in (("kernel", cost.kernel), ("user", cost.user), ("devices", cost.ports + cost.mmio)):
        what = "accesses" if name == "devices" else "instructions"
        found.append(BenchFigure(name=name, value=float(value), unit=what))
        if done > 0:
            found.append(BenchFigure(name=f"{name} a unit", value=value / done, unit=what))
    found.append(BenchFigure(name="overlap", value=overlap(instances), unit="", larger_is_better=True))
    return tuple(found)


def set_facts(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the compiler and flags in what our set says of itself, as facts of the run. It is untrusted."""
    words = ((name, plain(str(row.get(name, "")))[:200]) for name in ("compiler", "flags"))
    return {f"{OURS} {name}": word for name, word in words if word}


def about(text: str) -> dict[str, str]:
    """Return the facts in a text that should be our set's JSON object; none where it is another text."""
    row = decoded_json(text)
    return set_facts(row) if isinstance(row, dict) else {}
