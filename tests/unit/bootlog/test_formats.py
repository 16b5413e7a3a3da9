# SPDX-License-Identifier: Apache-2.0
"""The table of formats: each row is documented, recognised by content, and says when it was not read to its end."""

from __future__ import annotations

import gzip
import itertools
from pathlib import Path

import pytest
from tests.fakes.tars import file, tar_of
from tests.fuzz.seeds import SEEDS
from tests.fuzz.seeds import tar_of as chart_of

from vmtailor.analysis.bootlog import log_lines
from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.formats import FORMATS, Format, read_chunks
from vmtailor.analysis.bootlog.log_lines import Content
from vmtailor.analysis.timeline.boot_timeline import analyze, build
from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.timeline import PhaseName, PhaseSpan, WarningCode

ROOT = Path(__file__).resolve().parents[3]
#: One of each that is no seed of the fuzzer.
OTHERS = (
    b"\0\0 \n",
    b"<svg><rect/></svg>",
    b'{"a": 1}',
    b"#\n# Automatically generated file; DO NOT EDIT.\n# Linux/arm 6.13.9 Kernel Configuration\n#\nCONFIG_HZ=100\n",
    gzip.decompress(chart_of(b"1\n1 (a) S 0\n\n")),
    tar_of(file("readme", b"no chart")),
    b"Boot Record 1\n-- Boot Record 01 --\nStarting stage: init\nFinished stage: (init) 1.25 seconds\n",
)


def recognised(data: bytes) -> Format:
    """The row that reads this."""
    content = Content("x", iter([data]))
    return next(row for row in FORMATS if row.recognise(content) and row.read(content) is not None)


EXAMPLES = {recognised(data).name: data for data in reversed((*SEEDS, *OTHERS))}


def test_each_row_has_an_example() -> None:
    assert EXAMPLES.keys() == {row.name for row in FORMATS}


@pytest.mark.parametrize("row", [row for row in FORMATS if row.is_log], ids=lambda row: row.name)
def test_each_format_has_a_row_in_the_reference(row: Format) -> None:
    page = (ROOT / "docs" / "reference" / "boot-formats.md").read_text()
    assert row.row
    assert any(line.lstrip("|* ").startswith(row.row) for line in page.splitlines())


@pytest.mark.lengthy
@pytest.mark.parametrize(
    "row", [row for row in FORMATS if row.is_log and row.name != "bootchart"], ids=lambda row: row.name
)
def test_what_is_not_read_is_said(row: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a format that is read in one piece; the others are read to their end. (An archive says itself where it
    ends.)"""
    data = EXAMPLES[row.name]
    pieces = [data, b"\n" * 200_000, b"\n"]
    assert not any("only its first" in w.text for w in read_chunks("x", iter(pieces)).warnings)
    monkeypatch.setattr(log_lines, "MAX_TEXT", len(data))
    source = iter(pieces)
    observed = read_chunks("x", source)
    told = [w for w in observed.warnings if w.code == WarningCode.FILE_CUT and "only its first" in w.text]
    assert len(told) == row.whole == (next(source, None) is not None)


@pytest.mark.parametrize("row", FORMATS, ids=lambda row: row.name)
def test_only_a_log_is_taken_for_one(row: Format, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(EXAMPLES[row.name])
    if row.is_log:
        analyze([tmp_path / "file"], needs_log=True)
        return
    with pytest.raises(UserInputError, match="no log and no chart of a boot"):
        analyze([tmp_path / "file"], needs_log=True)
    (tmp_path / "log").write_bytes(EXAMPLES["kernel log"])
    assert len(analyze([tmp_path / "file", tmp_path / "log"], needs_log=True).files) == 2


def test_prose_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("A letter.\nIt has two lines.\n")
    with pytest.raises(UserInputError, match="not recognised"):
        analyze([tmp_path / "file"], needs_log=True)


def test_a_log_that_begins_as_json_is_read_behind_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no JSON after all; what was read to find that out is not lost."""
    lines = (b"[  OK  ] Reached target a.\n" for _ in range(60))
    log = itertools.chain(lines, EXAMPLES["kernel log"].splitlines(keepends=True))
    monkeypatch.setattr(log_lines, "MAX_TEXT", 100)
    observed = read_chunks("x", log)
    assert observed.version == "6.1.0"
    assert observed.initcalls


@pytest.mark.parametrize(("rough", "took_us", "told"), [
    (set(), 1_000_000, 1_000_000),
    ({1_000_000}, 1_000_000, None),
    ({2_000_000}, 1_000_000, None),
    ({7}, 1_000_000, 1_000_000),
    ({1_000_000}, 2_000_000, 2_000_000),
])  # fmt: skip
def test_a_total_between_whole_seconds_is_told_from_two_seconds_on(
    rough: set[int], took_us: int, told: int | None
) -> None:
    """Each end may be off by a second."""
    span = PhaseSpan(PhaseName.USERSPACE, 1_000_000, 1_000_000 + took_us, "systemd")
    assert build([Observed("x", phases=[span], rough_us=rough, kernel_log=True)]).total_us == told
