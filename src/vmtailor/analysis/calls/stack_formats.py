# SPDX-License-Identifier: Apache-2.0
"""A tree of calls in the formats of others: folded stacks (of flame graphs), and speedscope's JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from vmtailor.analysis.calls.call_shares import CallTree
from vmtailor.model.boots.call_graph import ROOT_NODES

_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def stacks(tree: CallTree, tops: tuple[int, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield each path below some nodes, from the outermost function on, with its own instructions."""
    for top in tops:
        waiting: list[tuple[int, tuple[str, ...]]] = [(top, (tree.name(top),))]
        while waiting:
            node, path = waiting.pop()
            if tree.own[node]:
                yield path, int(tree.own[node])
            waiting += [(child, (*path, tree.name(child))) for child in reversed(tree.children.get(node, []))]


def folded(tree: CallTree, tops: tuple[int, ...] = tuple(range(ROOT_NODES))) -> str:
    """Return folded stacks: a line for each path, its functions joined by `;`, then its instructions."""
    sums: dict[str, int] = {}
    for path, own in stacks(tree, tops):
        line = ";".join(name.replace(";", ":").replace(" ", "_") for name in path)
        sums[line] = sums.get(line, 0) + own
    return "".join(f"{line} {own}\n" for line, own in sums.items())


def speedscope(tree: CallTree, name: str, tops: tuple[int, ...] = tuple(range(ROOT_NODES))) -> dict[str, Any]:
    """Return speedscope's document, a sampled profile whose weights are instructions."""
    frames: dict[str, int] = {}
    samples, weights = [], []
    for path, own in stacks(tree, tops):
        samples.append([frames.setdefault(one, len(frames)) for one in path])
        weights.append(own)
    profile = {
        "type": "sampled",
        "name": name,
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }
    return {
        "$schema": _SCHEMA,
        "name": name,
        "exporter": "vmtailor",
        "shared": {"frames": [{"name": one} for one in frames]},
        "profiles": [profile],
    }
