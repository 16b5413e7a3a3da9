# SPDX-License-Identifier: Apache-2.0
"""The page of a tree of calls: a picture whose widths are instructions, and the tables behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.analysis.calls.call_shares import CallCost, CallTree
from vmtailor.base import pages
from vmtailor.model.boots.call_graph import ROOT_NODES, WorkKind

#: Width of the picture, height of a row, and the narrowest bar that is drawn, in its own units.
_WIDTH, _ROW, _NARROWEST = 1200.0, 18, 1.2
_DEEPEST = 60
#: Width of a letter in the same units: what does not fit is cut.
_LETTER = 6.4
_TONES = 6
MOST_ROWS = 40
#: Histograms of a page, calls that one needs, its bars, and its size.
_HISTOGRAMS, _FEWEST, _BARS = 12, 10, 40
_HISTOGRAM_WIDTH, _HISTOGRAM_HEIGHT = 360, 80


@dataclass(frozen=True)
class FlameBar:
    """One bar: its place, its whole text, what of the name fits, and its colour's number."""

    x: float
    y: int
    width: float
    text: str
    label: str
    tone: int


def bars(tree: CallTree) -> tuple[FlameBar, ...]:
    """Return the bars of a tree, callers above callees, dearest first."""
    roots = tree.roots()
    whole = sum(int(tree.whole[node]) for node in roots)
    if not whole:
        return ()
    found = []
    waiting = [(list(roots), 0.0, 0)]
    while waiting:
        nodes, x, depth = waiting.pop()
        for node in nodes:
            width = _WIDTH * int(tree.whole[node]) / whole
            if width < _NARROWEST or depth >= _DEEPEST:
                x += width
                continue
            name = tree.name(node)
            text = (
                f"{name}: {int(tree.whole[node]):,} instructions with callees, "
                f"{int(tree.own[node]):,} its own, entered {int(tree.entered[node]):,} times"
            )
            room = max(0, int((width - 4) / _LETTER))
            label = name if len(name) <= room else name[: room - 1] + "…" if room > 3 else ""
            tone = 0 if node < ROOT_NODES else 1 + sum(name.encode()) % (_TONES - 1)
            found.append(
                FlameBar(
                    x=round(x, 2), y=depth * _ROW, width=round(width, 2), text=text, label=label, tone=tone,
                )
            )  # fmt: skip
            waiting.append((tree.children.get(node, []), x, depth + 1))
            x += width
    return tuple(found)


@dataclass(frozen=True)
class HistogramBar:
    """One bar: its place, its height, and its text."""

    x: float
    y: int
    width: float
    height: int
    text: str


@dataclass(frozen=True)
class CallHistogram:
    """Counts of one kind of calls by the instructions that each executed: bars of equal width on a logarithmic scale,
    from `least` to `most`."""

    title: str
    count: int
    least: int
    most: int
    bars: tuple[HistogramBar, ...]


def histograms(costs: Sequence[CallCost]) -> tuple[CallHistogram, ...]:
    """Return histograms of the dearest calls that ended often enough and not always after as much."""
    many = [one for one in costs if one.kind is WorkKind.CALL and one.count >= _FEWEST and len(one.lengths) > 1]
    return tuple(map(_histogram, many[:_HISTOGRAMS]))


def _histogram(one: CallCost) -> CallHistogram:
    least, most = max(1, one.lengths[0][0]), one.lengths[-1][0]
    scale = _BARS / (math.log(most + 1) - math.log(least))
    counts: dict[int, list[tuple[int, int]]] = {}
    for length, how_many in one.lengths:
        place = min(_BARS - 1, int((math.log(max(1, length)) - math.log(least)) * scale))
        counts.setdefault(place, []).append((length, how_many))
    highest = max(sum(count for _, count in inner) for inner in counts.values())
    width = _HISTOGRAM_WIDTH / _BARS
    drawn = []
    for place, inner in sorted(counts.items()):
        count = sum(number for _, number in inner)
        low, high = inner[0][0], inner[-1][0]
        text = f"{count:,} of {one.count:,}: {low:,}" + (f" to {high:,}" if high != low else "") + " instructions"
        height = max(1, round(_HISTOGRAM_HEIGHT * count / highest))
        x, y = round(place * width, 1), _HISTOGRAM_HEIGHT - height
        drawn.append(HistogramBar(x=x, y=y, width=round(width - 1, 1), height=height, text=text))
    title = f"{one.call} on {one.on}" if one.on else one.call
    return CallHistogram(
        title=f"{title}, {one.owner}", count=one.count, least=one.lengths[0][0], most=most, bars=tuple(drawn)
    )


def page(title: str, what: str, tree: CallTree, costs: Sequence[CallCost]) -> str:
    """Return the page of a tree. `what`: what part of the boot it shows, and of whom; `costs`: its rows."""
    drawn = bars(tree)
    functions = sorted(tree.functions().items(), key=lambda row: (-row[1], row[0]))
    values = {
        "title": title,
        "what": what,
        "bars": drawn,
        "width": int(_WIDTH),
        "row": _ROW,
        "height": max((bar.y for bar in drawn), default=0) + _ROW,
        "total": sum(own for _, own in functions),
        "costs": costs[:MOST_ROWS],
        "histograms": histograms(costs),
        "histogram_width": _HISTOGRAM_WIDTH,
        "histogram_height": _HISTOGRAM_HEIGHT,
        "more_costs": max(0, len(costs) - MOST_ROWS),
        "functions": functions[:MOST_ROWS],
        "more_functions": max(0, len(functions) - MOST_ROWS),
    }
    return pages.render("calls.html", data={}, styles=("calls.css",), values=values)
