# SPDX-License-Identifier: Apache-2.0
"""Tables of the documentation are what the results beside them give."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import pytest

from vmtailor.base.files import records
from vmtailor.bench.model.results import BenchResults
from vmtailor.bench.pages.published_tables import published_page

REPOSITORY = Path(__file__).parents[3]
MEASURED = REPOSITORY / "benchmarks" / "measured"
#: Results → the page that has their tables.
PAGES = {"unixbench.json.xz": REPOSITORY / "docs/explanation/unixbench-measured.md"}


def test_each_published_verdict_stands_beside_ours() -> None:
    rows = [
        line.split("\t")
        for line in (REPOSITORY / "src/vmtailor/bench/data/published/paas-verdicts.tsv").read_text().splitlines()
    ]
    assert rows[0] == ["area", "question", "published verdict"]
    told = [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in (REPOSITORY / "docs/explanation/published-verdicts.md").read_text().splitlines()
        if line.startswith("| ")
    ]
    table = told[-len(rows) + 1 :]
    assert [cells[:2] for cells in table] == [[f"{area}, {question}", verdict] for area, question, verdict in rows[1:]]
    assert all(len(cells) == 5 and all(cells) for cells in table)
    for cells in table:  # KVM's column has a figure, or says what would give one, once
        assert re.search(r"\d|not measured|`", cells[3]) or cells[0].startswith("choice"), cells[0]


def test_each_claim_of_published_work_has_its_row() -> None:
    lines = (REPOSITORY / "docs/explanation/published.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if re.match(r"\| \d", line)]
    assert [row[0] for row in rows] == [str(number) for number in range(1, len(rows) + 1)]
    assert len(rows) >= 80 and all(len(row) == 5 and all(row) for row in rows)


def test_every_file_has_a_page() -> None:
    assert {path.name for path in MEASURED.glob("*.xz")} == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_tables_of_its_results(name: str) -> None:
    data = lzma.decompress((MEASURED / name).read_bytes())
    page = published_page(records.from_bytes(BenchResults, data), [name])
    tables = [block for block in page.split("\n\n") if block.startswith("|")]
    shown = PAGES[name].read_text()
    assert tables and [block for block in tables if block not in shown] == []
    assert len(data) < 4 << 20
