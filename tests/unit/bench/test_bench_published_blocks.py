# SPDX-License-Identifier: Apache-2.0
"""Published scores block by block, and each beside measurements of its own kind alone."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from vmtailor.bench.analysis.benchmarks import INDEX
from vmtailor.bench.analysis.published_blocks import (
    NAMES,
    OVERALL,
    Block,
    against_host,
    beside,
    block_of,
    indices,
    left,
)
from vmtailor.bench.analysis.unixbench_index import Indexed, IndexTable

DATA = Path(__file__).parents[3] / "src/vmtailor/bench/data/published"


def table(variant: str, engine: str = "docker") -> IndexTable:
    """Return a table in which the host has 100 in each test, one container 90, and two 45 each."""
    columns = ("native", "1 instance", "2 instances")
    by = tuple(
        (name, Indexed(value, value, value, value, value, 3))
        for name, value in zip(columns, (100, 90, 45), strict=True)
    )
    overall = tuple((name, value, value, value) for name, value in zip(columns, (100.0, 90.0, 45.0), strict=True))
    return IndexTable(2, variant, columns, tuple((test, by) for test in INDEX), overall, engine)


def test_the_tables_are_whole() -> None:
    assert set(NAMES.values()) - {OVERALL} < set(INDEX)
    assert indices().keys() == {(block, test) for block in Block for test in NAMES.values()}
    assert all(row.keys() == {0, 1, 2, 3, 4} for row in indices().values())
    rows = list(csv.DictReader((DATA / "unixbench-on-platforms.tsv").read_text().splitlines(), delimiter="\t"))
    hosts = {row["host"] for row in rows}
    assert len(rows) == len(hosts) * 2 * len(NAMES) and {row["copies"] for row in rows} == {"1", "N"}
    assert {row["test"] for row in rows} == NAMES.keys()


def test_percentages_are_those_of_the_published_text() -> None:
    assert [round(share, 2) for share in left(Block.ONE_CPU, "dhry2reg").values()] == [54.66, 44.16, 33.04]
    against = {block: against_host(block, OVERALL) for block in Block}
    assert {block: round(value or 0, 1) for block, value in against.items()} == {
        Block.ONE_CPU: 10.8, Block.ONE_COPY: 0.5, Block.COPIES: -1.4,
    }  # fmt: skip
    assert left(Block.ONE_CPU, "fstime") == {} and against_host(Block.ONE_CPU, "fstime") is None


@pytest.mark.parametrize(
    ("variant", "block"),
    [
        ("our set, 1 copy, one core", Block.ONE_CPU),
        ("our set, 1 copy, all cores", Block.ONE_COPY),
        ("published set, 2 copies, all cores", Block.COPIES),
        ("our set, 2 copies, one core", None),
        ("virtual time", None),
    ],
)
def test_a_block_stands_beside_its_own_kind(variant: str, block: Block | None) -> None:
    assert block_of(variant) == block
    tables = beside([table(variant)])
    assert [one.title for one in tables] == (
        [f"docker, {variant.partition(', ')[2]}, beside the published block of its kind: {block}"] if block else []
    )
    if block:
        rows = {row[0]: row[1:] for row in tables[0].rows}
        assert rows.keys() == set(NAMES.values())
        published = f"{against_host(block, OVERALL):+.1f} %"
        shares = ", ".join(f"{share:.1f}" for share in left(block, OVERALL).values())
        assert rows[OVERALL] == (published, "-10.0 %", f"{shares} %", "50.0, –, – %")


def test_a_table_of_the_host_alone_has_nothing_beside_it() -> None:
    assert beside([table("our set, 1 copy, one core", engine="")]) == []
