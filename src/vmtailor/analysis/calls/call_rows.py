# SPDX-License-Identifier: Apache-2.0
"""Rows of tables from followed calls: their costs beside the tracer's times, trees, constant arguments. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from vmtailor.analysis.calls.call_shares import PROGRAM, CallCost, CallTree
from vmtailor.analysis.calls.call_targets import CallTargets
from vmtailor.analysis.demands import strace_log
from vmtailor.model.boots.call_graph import ROOT_NODES, WorkKind
from vmtailor.model.syscalls import SyscallEvent

#: Nodes with less than this share of a tree are summed up.
_LEAST_SHARE = 0.005
_MOST_DEPTH = 40


def cost_rows(costs: Sequence[CallCost], events: Iterable[SyscallEvent]) -> list[dict[str, Any]]:
    """Return a row for each cost. The tracer's times of a call's name, in microseconds, are of another boot, and of all
    things that it is made on."""
    times = _times(events)
    rows = []
    for one in costs:
        least, mean, most = times.get(one.call, ("", "", "")) if _is_programs(one) else ("", "", "")
        rows.append(
            {
                "call": one.call,
                "on": one.on,
                "of": one.owner,
                "kind": one.kind.name.lower(),
                "count": one.count,
                "min": _or_empty(one.least),
                "mean": _or_empty(None if one.mean is None else round(one.mean)),
                "max": _or_empty(one.most),
                "p99": _or_empty(one.p99),
                "instructions": one.own,
                "deferred": one.soft,
                "min_us": least,
                "mean_us": mean,
                "max_us": most,
            }
        )
    return rows


def _is_programs(one: CallCost) -> bool:
    return one.kind is WorkKind.CALL and one.owner == PROGRAM


def _or_empty(value: int | None) -> int | str:
    return "" if value is None else value


def _times(events: Iterable[SyscallEvent]) -> dict[str, tuple[int, int, int]]:
    found: dict[str, list[float]] = {}
    for event in events:
        found.setdefault(event.name, []).append(event.seconds)
    return {
        name: (round(min(all_s) * 1e6), round(sum(all_s) / len(all_s) * 1e6), round(max(all_s) * 1e6))
        for name, all_s in found.items()
    }


def tree_rows(tree: CallTree, targets: CallTargets | None = None) -> list[dict[str, Any]]:
    """Return a row for each node of a tree, callers before callees; what is below half a percent is one row a caller.
    The own instructions of all rows add up to the tree's. With `targets`, a row has the functions that the code names
    there and that were never entered along this path."""
    roots = tree.roots()
    least = _LEAST_SHARE * sum(int(tree.whole[node]) for node in roots)
    rows: list[dict[str, Any]] = []

    def add(name: str, depth: int, own: int, whole: int, entered: int | str) -> dict[str, Any]:
        rows.append({"depth": depth, "function": name, "own": own, "with_callees": whole, "entered": entered})
        return rows[-1]

    def walk(node: int, depth: int) -> None:
        row = add(tree.name(node), depth, int(tree.own[node]), int(tree.whole[node]), int(tree.entered[node]))
        if targets is not None and node >= ROOT_NODES:
            row["never"] = list(targets.never(tree, node))
        small = count = 0
        for child in tree.children.get(node, []):
            if tree.whole[child] < least or depth >= _MOST_DEPTH:
                small += int(tree.whole[child])
                count += 1
            else:
                walk(child, depth + 1)
        if count:
            add(f"({count} smaller)", depth + 1, small, small, "")

    for root in roots:
        walk(root, 0)
    return rows


def constant_rows(costs: Sequence[CallCost], events: Iterable[SyscallEvent]) -> list[dict[str, Any]]:
    """Return arguments that had one value in all calls of a name by a program, the dearest calls first. `instructions`:
    of all these calls, deferred work included."""
    spent: dict[str, int] = {}
    for one in costs:
        if _is_programs(one):
            spent[one.call] = spent.get(one.call, 0) + one.own + one.soft
    rows = [
        {
            "call": call.name,
            "task": call.task,
            "argument": index + 1,
            "value": value,
            "count": call.count,
            "instructions": spent.get(call.name, 0),
        }
        for call in strace_log.summarise(list(events))
        if call.count > 1
        for index, value in call.constant_args
    ]
    return sorted(rows, key=lambda row: (-row["instructions"], row["call"], row["task"], row["argument"]))
