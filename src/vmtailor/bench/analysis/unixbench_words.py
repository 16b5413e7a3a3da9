# SPDX-License-Identifier: Apache-2.0
"""The UnixBench index in words, for terminals and pages alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vmtailor.bench.analysis.cells import NATIVE
from vmtailor.bench.analysis.unixbench_index import INDEX, Checked, IndexTable, instances


def index_title(found: IndexTable, facts: Mapping[str, str]) -> str:
    """What a table is of, with compiler and flags of its set."""
    several = f"{found.engine}, up to {instances(found.count)} at once" if found.engine else instances(found.count)
    which = found.variant.partition(", ")[0]
    made = ", ".join(facts[key] for key in (f"{which} compiler", f"{which} flags") if facts.get(key))
    return f"UnixBench index, {several}, {found.variant}{f' (compiled by {made})' if made else ''}"


def index_rows(found: IndexTable, *, scores: bool = True) -> list[tuple[str, ...]]:
    """One a test: its index with the 95 % interval, and with `scores` the score itself; of several instances of an
    engine also how much of one instance's score each has; the last two have the overall index."""
    rows = []
    for test, by_column in found.rows:
        scale = 10 / INDEX[test].baseline
        scores_of = {name: one.data_n for name, one in by_column}
        known = dict(by_column)
        cells = []
        for name in found.columns:
            if name not in known:
                cells.append("–")
                continue
            one = known[name]
            words = [f"{one.low * scale:.0f} … {one.high * scale:.0f}"]
            words += [f"{_score(one.data_n)} {INDEX[test].unit}"] if scores else []
            cells.append(f"{one.index:.1f} ({'; '.join(words + _share(found, name, scores_of))})")
        rows.append((test, *cells))
    whole = {name: (value, low, high) for name, value, low, high in found.overall}
    values = {name: value for name, (value, _, _) in whole.items()}
    script = _script(found)
    overall, scored = [], []
    for name in found.columns:
        if name not in whole:
            overall.append("needs all twelve")
            scored.append("–")
            continue
        value, low, high = whole[name]
        overall.append(f"{value:.1f} ({'; '.join([f'{low:.0f} … {high:.0f}', *_share(found, name, values)])})")
        scored.append(f"{script[name]:.1f}")
    return [*rows, ("overall", *overall), ("overall, as the script scores", *scored)]


def _share(found: IndexTable, column: str, values: Mapping[str, float]) -> list[str]:
    """How much of what one instance has each of several has; none but in an engine's own table."""
    one = values.get(instances(1), 0.0)
    if not found.engine or column in (NATIVE, instances(1)) or one <= 0:
        return []
    return [f"{100 * values[column] / one:.1f} % of one's"]


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
    for _, by_column in found.rows:
        for name, one in by_column:
            product[name] = product.get(name, 1.0) * one.script ** (1 / len(INDEX))
    return product
