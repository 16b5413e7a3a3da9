# SPDX-License-Identifier: Apache-2.0
"""The UnixBench index in words, for terminals and pages alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmtailor.analysis.bench.unixbench import INDEX, Checked, IndexTable


def index_title(found: IndexTable, facts: Mapping[str, str]) -> str:
    """What a table is of, with compiler and flags."""
    several = f"{found.count} instances" if found.count > 1 else "1 instance"
    made = ", ".join(facts[key] for key in ("unixbench compiler", "unixbench flags") if facts.get(key))
    return f"UnixBench index, {several}, {found.variant}{f' (compiled by {made})' if made else ''}"


def index_rows(found: IndexTable, *, scores: bool = True) -> list[tuple[str, ...]]:
    """One a test: its index with the 95 % interval, and with `scores` the score itself; the last two have the overall
    index."""
    rows = []
    for test, by_runtime in found.rows:
        known = dict(by_runtime)
        cells = []
        for name in found.runtimes:
            one = known.get(name)
            if one is None:
                cells.append("–")
                continue
            scale = 10 / INDEX[test].baseline
            interval = f"{one.low * scale:.0f} … {one.high * scale:.0f}"
            score = f"; {_score(one.data_n)} {INDEX[test].unit}" if scores else ""
            cells.append(f"{one.index:.1f} ({interval}{score})")
        rows.append((test, *cells))
    whole = {name: (value, low, high) for name, value, low, high in found.overall}
    script = _script(found)
    overall, scored = [], []
    for name in found.runtimes:
        value = whole.get(name)
        overall.append("needs all twelve" if value is None else f"{value[0]:.1f} ({value[1]:.0f} … {value[2]:.0f})")
        scored.append(f"{script[name]:.1f}" if name in whole else "–")
    return [*rows, ("overall", *overall), ("overall, as the script scores", *scored)]


#: Beyond this factor a test of ours is said to be far from the published one: its score tells of the program then.
FAR = 2.0
CHECK_TITLE = "Our set against the published one"
CHECK_HEADER = ("test", "runtime", "our set", "published set", "ratio (95 %)", "")


def check_rows(found: Sequence[Checked]) -> list[tuple[str, ...]]:
    """One a test: both scores, how ours stands to the other, and whether they are far apart."""
    rows: list[tuple[str, ...]] = []
    for one in found:
        unit, a = INDEX[one.test].unit, one.against
        ratio, far = "–", ""
        if a is not None:
            between = f" ({a.low:.2f} … {a.high:.2f})" if a.low is not None and a.high is not None else ""
            ratio = f"{a.ratio:.2f}×{between}"
            far = f"far apart: {one.test} of ours is another program" if not 1 / FAR <= a.ratio <= FAR else ""
        scores = (f"{_score(one.ours)} {unit}", f"{_score(one.published)} {unit}")
        rows.append((one.test, one.runtime, *scores, ratio, far))
    return rows


def _score(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _script(found: IndexTable) -> dict[str, float]:
    product: dict[str, float] = {}
    for _, by_runtime in found.rows:
        for name, one in by_runtime:
            product[name] = product.get(name, 1.0) * one.script ** (1 / len(INDEX))
    return product
