# SPDX-License-Identifier: Apache-2.0
"""Budgets: `init_instructions_net <= 30M`, `ready_wall_p50 <= +5% of baseline.json`, judged against saved documents."""

from __future__ import annotations

import contextlib
import math
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from vmtailor.analysis.bootlog import silences
from vmtailor.base import figures
from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.timeline import GapSpan, PhaseName

_BUDGET = re.compile(
    r"\s*+(?P<metric>[^\W\d][^<>=]*+)(?P<op><=|>=|<|>|==)\s*+(?:"
    r"(?P<value>[+-]?\d[\d_]*+(?:\.\d++)?(?:[eE][+-]?\d++)?)\s*+(?P<unit>[A-Za-zµ]*+)\s*+"
    r"|(?P<sign>[+-])\s*+(?P<percent>\d++(?:\.\d++)?)\s*+%\s*+of\s++(?P<file>\S.*+))$"
)
#: Multipliers of the number alone; times are turned into the unit that the metric's name ends in.
_SCALES = {
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "B": 1.0,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
}
_WORDS = {"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds"}
_TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
#: Characters between the parts of a name. People write one for another, so all of them count as equal.
_BETWEEN = re.compile(r"\W+")
_QUANTILES = re.compile(r"(.+)_(p\d{1,2}|min|max|mean|median)$")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
}


@dataclass(frozen=True)
class Budget:
    """One line of a budget. Either `limit` or `percent` of the same metric in `reference` (a file's name)."""

    text: str
    metric: str
    operator: str
    limit: float | None = None
    percent: float | None = None
    reference: str = ""


@dataclass(frozen=True)
class Judged:
    """A budget with the figure found and the limit it was held against. A figure that is not there is None: such a
    budget is not kept, and `why` says so. `meaning`: of a budget that nobody wrote, why it must be kept."""

    budget: Budget
    value: float | None
    limit: float | None
    kept: bool
    why: str = ""
    meaning: str = ""


def parse_budget(text: str) -> Budget:
    """Read one budget. Raises UserInputError with an example when it is none."""
    match = _BUDGET.match(text.rstrip())
    if not match:
        raise UserInputError(
            f"not a budget: {text!r}",
            hint="write METRIC <= VALUE, as in 'kernel_us <= 500ms', or METRIC <= +5% of FILE",
        )
    metric, operator = match["metric"].rstrip(), match["op"]
    if match["percent"] is not None:
        percent = float(match["percent"]) * (-1 if match["sign"] == "-" else 1)
        return Budget(
            text=text.strip(),
            metric=metric,
            operator=operator,
            limit=None,
            percent=percent,
            reference=match["file"].strip("'\""),
        )
    return Budget(text.strip(), metric, operator, _number(match["value"], match["unit"], metric, text))


def _number(value: str, unit: str, metric: str, text: str) -> float:
    number = float(value.replace("_", ""))
    base = _QUANTILES.match(metric)
    name = base[1] if base else metric
    own = next((u for u in ("ns", "us", "ms", "s") if name.endswith("_" + u)), "")
    if unit in _SCALES:
        _require_unit(own, number, unit, text)
        return number * _SCALES[unit]
    if unit in _TIMES:
        if name.endswith(("_bytes", "instructions", "_net")):
            raise UserInputError(f"{name} is no time, and {text!r} gives it one", hint="use k M G, or B KiB MiB GiB")
        return round(number * _TIMES[unit] / _TIMES[own or "s"], 6)
    raise UserInputError(f"unknown unit {unit!r} in {text!r}", hint="use k M G, ns us ms s min, or B KiB MiB GiB")


def _require_unit(own: str, number: float, unit: str, text: str) -> None:
    """Raise UserInputError for a limit of a time that does not say which unit it is in: people mean seconds, and the
    figure counts microseconds. A figure in seconds, and nothing at all, need no unit."""
    if not own or (unit == "" and (own == "s" or number == 0)):
        return
    rest = text.strip().removesuffix(unit).rstrip()
    if unit.endswith("B"):
        raise UserInputError(
            f"{text.strip()!r} gives bytes for a time", hint=f"write '{rest}ms', '{rest}s' or '{rest}{own}'"
        )
    short = "" if unit == "" else f"; {unit} is no unit of time"
    raise UserInputError(
        f"{text.strip()!r} has no unit, and the figure counts {_WORDS[own]}{short}",
        hint=f"write '{rest}s' for seconds, '{rest}ms' for milliseconds, or '{rest}us' for microseconds",
    )


def metrics_of(document: Any) -> dict[str, list[float]]:
    """Return every figure of a document by name: paths joined with `_` (and with dots), lists of numbers as samples,
    and for timelines those of `_timeline`. A figure that the document calls unknown is there, too, without a value."""
    found: dict[str, list[float]] = {}
    if isinstance(document, Mapping):
        for key in ("metrics", "figures"):
            if isinstance(document.get(key), Mapping):
                _flatten(document[key], "", found)
        if str(document.get("schema", "")).startswith("vmtailor/timeline/"):
            _timeline(document, found)
        _flatten(document, "", found)
        if isinstance(document.get("tailored"), Mapping):  # of a fit, its machine is what people ask for
            _flatten(document["tailored"], "", found)
    return found


def _flatten(value: Any, prefix: str, found: dict[str, list[float]]) -> None:
    if value is None:
        found.setdefault(prefix, [])
    elif isinstance(value, bool):
        return
    elif isinstance(value, (int, float)):
        if math.isfinite(value):
            found.setdefault(prefix, [float(value)])
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _flatten(inner, f"{prefix}_{key}" if prefix else str(key), found)
    elif isinstance(value, (list, tuple)) and value and len(value) < 100_000:
        numbers = [
            float(v) for v in value if isinstance(v, (int, float)) and not isinstance(v, bool) and math.isfinite(v)
        ]
        if len(numbers) == len(value):
            found.setdefault(prefix, numbers)
            return
        for inner in value:
            name = inner.get("name") if isinstance(inner, Mapping) else None
            if isinstance(name, str):
                _flatten({k: v for k, v in inner.items() if k != "name"}, f"{prefix}_{name}", found)


def _timeline(document: Mapping[str, Any], found: dict[str, list[float]]) -> None:
    """`phase_NAME_us`: how long a phase took; of a moment, when it was since the boot's beginning. `KIND_NAME_us`: of
    a unit how long it took to start, of an initcall, a probe or a process its own time; `KIND_NAME_own_us` and
    `KIND_NAME_duration_us` for either. Runs of one name are added up, where all are known."""
    phases = [p for p in document.get("phases") or () if isinstance(p, Mapping)]
    began = None
    if phases and all(isinstance(p.get("start_us"), int) for p in phases):
        began = min(p["start_us"] for p in phases)
    for phase in phases:
        start, end, name = phase.get("start_us"), phase.get("end_us"), phase.get("name")
        if name == PhaseName.READY:
            # If only the moment is known, its clock's zero is the boot's beginning.
            since = min(began, 0) if began is not None and len(phases) == 1 else began
            start = since
        known = isinstance(start, int) and isinstance(end, int)
        found[f"phase_{name}_us"] = [float(end - start)] if known else []  # type: ignore[operator]
    for kind in ("initcall", "probe", "unit", "process"):
        rows = [r for r in document.get({"process": "processes"}.get(kind, f"{kind}s")) or () if isinstance(r, Mapping)]
        for field, name in (("exclusive_us", "own"), ("duration_us", "duration")):
            usual = name == ("duration" if kind == "unit" else "own")
            for item, values in _by_name(rows, field).items():
                found[f"{kind}_{item}_{name}_us"] = values
                if usual:
                    found[f"{kind}_{item}_us"] = values
    found |= _gaps(document, timed=bool(phases))


def _gaps(document: Mapping[str, Any], *, timed: bool) -> dict[str, list[float]]:
    """Return `gap_NAME_us`: how long a boot was silent or waited, less what initcalls and probes account for; with
    `_own_us` and `_duration_us` as of other items. Those of one name are added up. NAME is the title that hot spots
    show, or the kind's id of data/boot_gaps.toml. A kind that a log which was timed does not have is 0."""
    rows = document.get("gaps")
    if not isinstance(rows, list):
        return {}
    spans = []
    for row in rows:
        with contextlib.suppress(msgspec.ValidationError):
            spans.append(msgspec.convert(row, GapSpan))
    total: dict[str, list[float]] = {name: [0.0, 0.0] for name in (silences.ids() if timed else ())}
    for span in silences.without_inner(spans):
        for name in filter(None, (span.name, span.kind)):
            own, whole = total.get(name, (0.0, 0.0))
            total[name] = [own + span.own_us, whole + span.end_us - span.start_us]
    found: dict[str, list[float]] = {}
    for name, (own, whole) in total.items():
        found |= {f"gap_{name}_us": [own], f"gap_{name}_own_us": [own], f"gap_{name}_duration_us": [whole]}
    return found


def _by_name(rows: list[Mapping[str, Any]], field: str) -> dict[str, list[float]]:
    total: dict[str, list[float]] = {}
    for row in rows:
        name, value = str(row.get("name")), row.get(field)
        values = total.setdefault(name, [0.0])
        if not isinstance(value, int):
            values.clear()  # of a sum with an unknown part nothing is known
        elif values:
            values[0] += value
    return total


class Missing(UserInputError):
    """A document does not have a figure. Its hint names those that it has."""


def figure(metrics: Mapping[str, list[float]], metric: str) -> float:
    """Return one metric as one number: as it is, the median of samples, or what a suffix such as `_p90` asks for. Names
    are found as they are; else with all that is no letter, digit or underscore taken as alike.

    Raises Missing, naming what is there, when it is not."""
    values, which = _lookup(metrics, metric), "median"
    suffixed = _QUANTILES.match(metric)
    if values is None and suffixed:
        values, which = _lookup(metrics, suffixed[1]), suffixed[2]
    if values:
        return _quantile(sorted(values), which)
    if values is not None:
        raise Missing(f"{metric} is not known: the document has no value for it", hint="its warnings say why")
    word = _plain(metric).rpartition("_us")[0].rpartition("_")[2] or _plain(metric)
    start = metric.partition("_")[0]
    there = [name for name in metrics if metrics[name]]
    near = [name for name in there if word in name] + [name for name in there if name.startswith(start)]
    raise Missing(
        f"there is no figure {metric!r}",
        hint=f"there are: {', '.join(list(dict.fromkeys(near or there))[:8]) or 'none'}",
    )


def _plain(name: str) -> str:
    return _BETWEEN.sub("_", name).strip("_")


def _lookup(metrics: Mapping[str, list[float]], metric: str) -> list[float] | None:
    """Return the values of a metric; None where there is none of that name. Raises UserInputError where several are."""
    if metric in metrics:
        return metrics[metric]
    plain = _plain(metric)
    found = [name for name in metrics if name == plain] or [name for name in metrics if _plain(name) == plain]
    if len(found) > 1:
        raise UserInputError(f"{metric!r} could be any of {', '.join(found[:4])}", hint="write the name as it is there")
    return metrics[found[0]] if found else None


def _quantile(values: list[float], which: str) -> float:
    if which == "mean":
        return statistics.fmean(values)
    if which in ("min", "max"):
        return values[0] if which == "min" else values[-1]
    share = 0.5 if which == "median" else int(which[1:]) / 100
    at = share * (len(values) - 1)
    low = math.floor(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def judge(budget: Budget, metrics: Mapping[str, list[float]], reference: Mapping[str, list[float]] | None) -> Judged:
    """Hold one budget against a document's figures. `reference` are those of the file that a percentage is of. A figure
    that either does not have breaks the budget."""
    limit = budget.limit
    try:
        if limit is None:
            if reference is None:
                raise UserInputError(f"{budget.text}: its reference was not read")
            limit = figure(reference, budget.metric) * (1 + (budget.percent or 0.0) / 100)
    except Missing as missing:
        return Judged(
            budget=budget,
            value=None,
            limit=None,
            kept=False,
            why=f"{budget.reference}: {missing.message}; {missing.hint}",
        )
    try:
        value = figure(metrics, budget.metric)
    except Missing as missing:
        return Judged(budget=budget, value=None, limit=limit, kept=False, why=f"{missing.message}; {missing.hint}")
    return Judged(budget, value, limit, _OPERATORS[budget.operator](value, limit))


def shown(metric: str, value: float | None) -> str:
    """Return a figure as people write it: `9.134 s` of µs, `28,500,000` of a count. No digit is lost that tells it from
    its limit."""
    if value is None:
        return figures.NONE
    base = _QUANTILES.match(metric)
    name = base[1] if base else metric
    unit = next((u for u in ("ns", "us", "ms", "s") if name.endswith("_" + u)), "")
    if unit:
        seconds = value * _TIMES[unit]
        scale, word = next(
            (pair for pair in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")) if abs(seconds) >= pair[0] * 0.9995),
            (1e-6, "µs"),
        )
        return f"{figures.exact(seconds / scale, 6)} {word}"
    return f"{figures.exact(value, 3)} bytes" if name.endswith("_bytes") else figures.exact(value, 6)
