# SPDX-License-Identifier: Apache-2.0
"""Kinds of logs, each with figures that were worked out by hand. A case is `tests/data/boot/corpus/NAME.toml`:

    kind = "what it is, and which tool wrote it"
    files = ["NAME.txt"]            # of one boot
    format = "what the first file is recognised as"
    phases = ["kernel 0 1200000", "userspace 1200000 -"]   # all there are, in their order: name, start, end; - is null
    warnings = ["phase-open"]       # all there are
    derivation = "what phases and totals were worked out from"
    [[figure]]
    name = "total_us"               # null where there is no value
    lines = "17"                    # of the file
    derivation = "how it follows from them"

Names: a field of the document, `kernel.FIELD`, `count.LIST`, or `LIST/NAME/FIELD` of the first row of that name. Totals
are given in each case. No value stands there because the program says so."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.bootlog.reading import DATA

from vmtailor.analysis.timeline.boot_json import json_chunks
from vmtailor.analysis.timeline.boot_timeline import analyze

CORPUS = DATA / "corpus"
CASES = sorted(path.stem for path in CORPUS.glob("*.toml"))


def case_of(name: str) -> dict[str, Any]:
    return tomllib.loads((CORPUS / f"{name}.toml").read_text())


def figure_of(document: dict[str, Any], name: str) -> Any:
    if "/" in name:
        rows, _, rest = name.partition("/")
        item, _, field = rest.rpartition("/")
        (first, *_) = [row for row in document[rows] if row["name"] == item]
        return first[field]
    head, _, field = name.partition(".")
    if head == "count":
        return len(document[field])
    return document[head][field] if field else document[name]


@pytest.mark.parametrize("name", CASES)
def test_every_figure_is_right_or_null(name: str) -> None:
    case = case_of(name)
    timeline = analyze([CORPUS / file for file in case["files"]])
    document = msgspec.json.decode(b"".join(json_chunks(timeline)))

    def word(value: int | None) -> str:
        return "-" if value is None else str(value)

    assert [f"{p['name']} {word(p['start_us'])} {word(p['end_us'])}" for p in document["phases"]] == case["phases"]
    assert sorted({w["code"] for w in document["warnings"]}) == sorted(case.get("warnings", []))
    assert document["files"][0]["format"] == case["format"]
    for figure in case["figure"]:
        assert (figure["name"], figure_of(document, figure["name"])) == (figure["name"], figure.get("value"))


def test_the_corpus_has_kinds_enough_and_every_figure_its_derivation() -> None:
    kinds = {case_of(name)["kind"] for name in CASES}
    assert len(kinds) == len(CASES) >= 30
    for name in CASES:
        case = case_of(name)
        assert case["derivation"], name
        assert {"kernel_us", "total_us"} <= {f["name"] for f in case["figure"]}, name
        for figure in case["figure"]:
            assert figure["derivation"] and figure["lines"], (name, figure["name"])
    used = {file for name in CASES for file in case_of(name)["files"]}
    assert {path.name for path in Path(CORPUS).iterdir() if path.suffix != ".toml"} == used
