# SPDX-License-Identifier: Apache-2.0
"""Bytes that mean harm, or nothing: no crash, no escape into the terminal or the page, bounded memory."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import re
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fuzz.fuzz import TARGETS, mutate
from tests.fuzz.seeds import SEEDS
from tests.unit.bootlog.reading import codes, timeline_of

from vmtailor.analysis.bootlog import archive
from vmtailor.analysis.bootlog.formats import read_path
from vmtailor.analysis.timeline.boot_json import from_json, json_chunks, to_csv, trace_events
from vmtailor.analysis.timeline.boot_page import boot_page
from vmtailor.base.errors import UserInputError
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli import analyze as analyze_verb
from vmtailor.model.boots.timeline import WarningCode

pytestmark = pytest.mark.attack
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
LOG = (
    f"[    0.000000] Linux version 6.1{EVIL} (gcc) #1\n[    0.000000] Command line: {EVIL} \x1b[2J\x1b]0;owned\x07\n"
    "[    0.100000] clocksource: Switched to clocksource tsc\n"
    f"[    1.000000] probe of {EVIL} returned 0 after 50000 usecs\n"
    "[    1.500000] \x1b[31mred\u202e message\n[    1.900000] Run /sbin/init as init process\n"
)


@pytest.mark.parametrize("name", TARGETS)
def test_a_little_fuzzing(name: str) -> None:
    rng = random.Random(name)
    for _ in range(150):
        data = mutate(rng, rng.choice(SEEDS))
        try:
            TARGETS[name](data)
        except UserInputError:
            continue


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=600))
def test_any_bytes_are_read(data: bytes) -> None:
    TARGETS["whole"](data)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(SEEDS[0].split(b"\n")), max_size=30))
def test_lines_in_any_order(lines: list[bytes]) -> None:
    TARGETS["kernel log"](b"\n".join(lines))


def test_html_stays_text_in_the_page(tmp_path: Path) -> None:
    page = boot_page(timeline_of(tmp_path, LOG), EVIL)
    assert "<img src=x" not in page
    assert page.count("<script") == 2  # the data and our own
    assert "alert(1)" in page  # as text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", page)
    assert not re.search(r"(?:src|href)\s*=\s*[\"'](?:https?:)?//", page)


def test_escapes_do_not_reach_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(
        analyze_verb, "TerminalConsole", lambda **_: TerminalConsole(file=out, width=120, force_terminal=False)
    )
    timeline = timeline_of(tmp_path, LOG)
    analyze_verb.show_timeline(timeline)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", out.getvalue())
    assert "onerror" in out.getvalue()
    assert "escapes-removed" in codes(timeline)


def test_markup_of_the_terminal_library_stays_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(
        analyze_verb, "TerminalConsole", lambda **_: TerminalConsole(file=out, width=120, force_terminal=False)
    )
    log = LOG.replace(EVIL, "[bold]x[/nonsense]")
    analyze_verb.show_timeline(timeline_of(tmp_path, log))
    assert "[bold]x[/nonsense]" in out.getvalue()


def test_formulas_do_not_reach_a_spreadsheet(tmp_path: Path) -> None:
    rows = [
        {"name": "=cmd|' /C calc'!A1", "activated": 3, "activating": 1, "time": 2, "deactivated": 0, "deactivating": 0}
    ]
    table = list(csv.reader(io.StringIO(to_csv(timeline_of(tmp_path, json.dumps(rows))))))
    assert table[1][1].startswith("'=")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_a_bomb_is_refused(tmp_path: Path, pack: object, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb"
    path.write_bytes(pack(b"\0" * (8 << 20)))  # type: ignore[operator]
    monkeypatch.setattr(archive, "MAX_BYTES", 1 << 20)
    with path.open("rb") as file, pytest.raises(archive.Bomb):
        for chunk in archive.decompress(file, 1 << 20):
            assert len(chunk) <= archive.CHUNK


def test_a_bomb_becomes_the_users_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"[    0.000000] x\n" * 200_000))
    limited = archive.open_chunks
    monkeypatch.setattr(archive, "open_chunks", lambda p: limited(p, 1 << 20))
    with pytest.raises(UserInputError, match="1 MiB"):
        read_path(path)


@pytest.mark.parametrize("cut", [10, 60, 200, 400])
def test_truncated_archives_are_read_as_far_as_they_go(tmp_path: Path, cut: int) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        for name in ("header", "proc_ps.log"):
            info = tarfile.TarInfo(name)
            info.size = 3000
            packed.addfile(info, io.BytesIO(random.Random(1).randbytes(3000)))
    timeline = timeline_of(tmp_path, out.getvalue()[:cut])
    assert timeline.phases == ()


def test_nothing_in_it_says_so(tmp_path: Path) -> None:
    for data in (b"", b"\0" * 5000, b"hello\nworld\n", b"{}", b"[]", b"<svg></svg>", b"\x89PNG\r\n"):
        timeline = timeline_of(tmp_path, data)
        assert not timeline.hotspots
        assert timeline.warnings


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="does not exist"):
        read_path(tmp_path / "missing")
    with pytest.raises(UserInputError, match="no files"):
        read_path(tmp_path)


def test_the_document_reads_back_and_keeps_its_order(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, SEEDS[0])
    data = b"".join(json_chunks(timeline))
    document = json.loads(data)
    wanted = ["schema", "kernel", "phases", "initcalls", "probes", "units", "processes", "hotspots", "warnings"]
    assert list(document)[: len(wanted)] == wanted
    assert set(document["initcalls"][0]) >= {
        "name",
        "module",
        "occurrence",
        "start_us",
        "duration_us",
        "exclusive_us",
        "duration_source",
        "reported_us",
        "returned",
    }
    assert set(document["probes"][0]) >= {"name", "device", "exclusive_us"}
    assert set(document["hotspots"][0]) >= {"kind", "name", "exclusive_us", "share_kernel", "share_total", "advice"}
    assert set(document["warnings"][0]) == {"code", "text"}
    assert from_json(data, "x") == timeline
    events = json.loads(trace_events(timeline))["traceEvents"]
    assert {e["ph"] for e in events} >= {"M", "X"}
    assert any(e["name"] == "early_init" and e["dur"] == 3141 for e in events)


def test_every_warning_is_documented() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "boot-formats.md").read_text()
    assert [code.value for code in WarningCode if f"| `{code.value}` |" not in text] == []
