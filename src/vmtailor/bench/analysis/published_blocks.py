# SPDX-License-Identifier: Apache-2.0
"""Published scores of UnixBench in containers, block by block (2020: a Loongson 3A3000 with 4 CPUs, Docker, means of
three repetitions), and each beside measurements of its own kind. `data/published` has the tables as they were printed.

A block is a way of measuring: one CPU; 4 CPUs with one copy of each test; 4 CPUs with as many copies. They answer
different questions, so a figure of one is never set beside a measurement of another. 0 containers are the host."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from types import MappingProxyType

from vmtailor.base.errors import VmtailorError
from vmtailor.bench.analysis.benchmarks import INDEX
from vmtailor.bench.analysis.cells import NATIVE
from vmtailor.bench.analysis.phrases import instances
from vmtailor.bench.analysis.unixbench_index import IndexTable

#: The row of the index of all twelve tests; three of them (the file copies) have no row of their own in the tables.
OVERALL = "overall"
#: Names of rows as they were published.
NAMES = MappingProxyType({
    "Dhrystone 2 using register variables": "dhry2reg",
    "Double-Precision Whetstone": "whetstone-double",
    "Execl Throughput": "execl",
    "Pipe Throughput": "pipe",
    "Pipe-based Context Switching": "context1",
    "Process Creation": "spawn",
    "Shell Scripts (1 concurrent)": "shell1",
    "Shell Scripts (8 concurrent)": "shell8",
    "System Call Overhead": "syscall",
    "System Benchmarks Index Score": OVERALL,
})  # fmt: skip


class Block(StrEnum):
    """A way in which the published tables were measured, by the words of the tables."""

    ONE_CPU = "1 CPU, 1 copy"
    ONE_COPY = "4 CPUs, 1 copy"
    COPIES = "4 CPUs, 4 copies"


@functools.cache
def indices() -> Mapping[tuple[Block, str], Mapping[int, float]]:
    """Return the published indices: block and test → number of containers → index. Raises VmtailorError where the
    table, which is ours, is malformed."""
    found: dict[tuple[Block, str], dict[int, float]] = {}
    text = (resources.files("vmtailor.bench") / "data" / "published" / "unixbench-in-containers.tsv").read_text("utf-8")
    try:
        for row in csv.DictReader(text.splitlines(), delimiter="\t"):
            key = Block(row["block"]), NAMES[row["test"]]
            found.setdefault(key, {})[int(row["containers"])] = float(row["index"])
    except (KeyError, ValueError, TypeError) as error:
        raise VmtailorError(f"the published table of UnixBench is wrong: {error}") from error
    return found


def left(block: Block, test: str) -> dict[int, float]:
    """Return the share of one container's index that each of several has, in percent, by their number; empty for a test
    that was not published."""
    row = indices().get((block, test), {})
    return {count: 100 * value / row[1] for count, value in row.items() if count > 1}


def against_host(block: Block, test: str) -> float | None:
    """Return one container's index against the host's, in percent; None for a test that was not published."""
    row = indices().get((block, test))
    return None if row is None else 100 * (row[1] / row[0] - 1)


#: The end of a variant of ours: copies of each test, and cores.
_WAY = re.compile(r"(\d{1,4}) cop(?:y|ies), (one core|all cores)$")


def block_of(variant: str) -> Block | None:
    """Return the block that a variant of our measurements is of the kind of; None where it is of none."""
    way = _WAY.search(variant)
    if way is None:
        return None
    if way[2] == "one core":
        return Block.ONE_CPU if way[1] == "1" else None
    return Block.ONE_COPY if way[1] == "1" else Block.COPIES


@dataclass(frozen=True)
class PublishedTable:
    """One table: a published block, and what was measured in the same way. Tests go down."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def beside(tables: Iterable[IndexTable]) -> list[PublishedTable]:
    """Return a table for each engine's table that is of a published block's kind and has two containers or more."""
    found = []
    for one in tables:
        block = block_of(one.variant)
        if block is None or not one.engine:
            continue
        known: dict[str, dict[str, float]] = {test: {} for test in (*INDEX, OVERALL)}
        for test, by_column in one.rows:
            known[test] = {column: figures.index for column, figures in by_column}
        known[OVERALL] = {column: value for column, value, _, _ in one.overall}
        rows = [(test, *_cells(block, test, known[test])) for test in NAMES.values() if known[test]]
        way = one.variant.partition(", ")[2]
        against, shares = "1 container against the host", "2, 3, 4 containers, of one's score"
        header = ("test", f"{against}: published", "here", f"{shares}: published", "here")
        title = f"{one.engine}, {way}, beside the published block of its kind: {block}"
        found.append(PublishedTable(title, header, tuple(rows)))
    return found


def _cells(block: Block, test: str, here: Mapping[str, float]) -> tuple[str, str, str, str]:
    published, one, host = against_host(block, test), here.get(instances(1)), here.get(NATIVE)
    against = f"{100 * (one / host - 1):+.1f} %" if one and host else "–"
    shares = left(block, test)
    ours = [100 * here[instances(n)] / one if one and instances(n) in here else None for n in shares]
    return (
        "–" if published is None else f"{published:+.1f} %",
        against,
        _list(shares.values()),
        _list(ours),
    )


def _list(shares: Iterable[float | None]) -> str:
    words = ["–" if share is None else f"{share:.1f}" for share in shares]
    return f"{', '.join(words)} %" if any(word != "–" for word in words) else "–"
