# SPDX-License-Identifier: Apache-2.0
"""Budgets: `init_instructions_net <= 30M`, `ready_wall_p50 <= +5% of baseline.json`, judged against saved documents."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vmtailor.base.errors import UserInputError

_BUDGET = re.compile(
    r"\s*(?P<metric>[A-Za-z_][\w.:\[\]@-]*)\s*(?P<op><=|>=|<|>|==)\s*(?:"
    r"(?P<value>[+-]?\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(?P<unit>[A-Za-zµ]*)"
    r"|(?P<sign>[+-])\s*(?P<percent>\d+(?:\.\d+)?)\s*%\s*of\s+(?P<file>\S.*?))\s*$"
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
_TIMES = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
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
    """A budget with the figure found and the limit it was held against."""

    budget: Budget
    value: float
    limit: float
    kept: bool


def parse_budget(text: str) -> Budget:
    """Read one budget. Raises UserInputError with an example when it is none."""
    match = _BUDGET.match(text)
    if not match:
        raise UserInputError(
            f"not a budget: {text!r}",
            hint="write METRIC <= VALUE, as in 'kernel_us <= 500ms', or METRIC <= +5% of FILE",
        )
    metric, operator = match["metric"], match["op"]
    if match["percent"] is not None:
        percent = float(match["percent"]) * (-1 if match["sign"] == "-" else 1)
        return Budget(text.strip(), metric, operator, None, percent, match["file"].strip("'\""))
    return Budget(text.strip(), metric, operator, _number(match["value"], match["unit"], metric, text))


def _number(value: str, unit: str, metric: str, text: str) -> float:
    number = float(value.replace("_", ""))
    if unit in _SCALES:
        return number * _SCALES[unit]
    if unit in _TIMES:
        base = _QUANTILES.match(metric)
        name = base[1] if base else metric
        own = next((u for u in ("ns", "us", "ms") if name.endswith("_" + u)), "s")
        return number * _TIMES[unit] / _TIMES[own]
    raise UserInputError(f"unknown unit {unit!r} in {text!r}", hint="use k M G, ns us ms s min, or B KiB MiB GiB")


def metrics_of(document: Any) -> dict[str, list[float]]:
    """Every figure of a document by name: paths joined with `_` (and with dots), lists of numbers as samples, and for
    timelines the phases (`phase_kernel_us`) and the own time of each item (`initcall_NAME_us`)."""
    found: dict[str, list[float]] = {}
    if isinstance(document, Mapping):
        for key in ("metrics", "figures"):
            if isinstance(document.get(key), Mapping):
                _flatten(document[key], "", found)
        if str(document.get("schema", "")).startswith("vmtailor/timeline/"):
            _timeline(document, found)
        _flatten(document, "", found)
    return found


def _flatten(value: Any, prefix: str, found: dict[str, list[float]]) -> None:
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, (int, float)):
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
    for phase in document.get("phases") or ():
        start, end = phase.get("start_us"), phase.get("end_us")
        if isinstance(start, int) and isinstance(end, int):
            found[f"phase_{phase.get('name')}_us"] = [float(end - start)]
    for kind in ("initcall", "probe", "unit", "process"):
        total: dict[str, float] = {}
        for row in document.get({"process": "processes"}.get(kind, f"{kind}s")) or ():
            if isinstance(row.get("exclusive_us"), int):
                total[str(row.get("name"))] = total.get(str(row.get("name")), 0.0) + row["exclusive_us"]
        for name, us in total.items():
            found[f"{kind}_{name}_us"] = [us]


def figure(metrics: Mapping[str, list[float]], metric: str) -> float:
    """One metric as one number: as it is, the median of samples, or what a suffix such as `_p90` asks for.

    Raises UserInputError, naming what is there, when it is not."""
    name = metric.replace(".", "_")
    if name in metrics:
        return statistics.median(metrics[name])
    suffixed = _QUANTILES.match(name)
    if suffixed and suffixed[1] in metrics:
        return _quantile(sorted(metrics[suffixed[1]]), suffixed[2])
    tail = name.rpartition("_")[2]
    near = [n for n in metrics if tail in n or name.partition("_")[0] in n][:8]
    raise UserInputError(
        f"there is no figure {metric!r}", hint=f"there are: {', '.join(near or list(metrics)[:8]) or 'none'}"
    )


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
    """Hold one budget against a document's figures. `reference` are those of the file that a percentage is of."""
    value = figure(metrics, budget.metric)
    if budget.limit is not None:
        limit = budget.limit
    else:
        if reference is None:
            raise UserInputError(f"{budget.text}: its reference was not read")
        limit = figure(reference, budget.metric) * (1 + (budget.percent or 0.0) / 100)
    return Judged(budget, value, limit, _OPERATORS[budget.operator](value, limit))
