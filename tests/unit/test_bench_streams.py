# SPDX-License-Identifier: Apache-2.0
"""What `make bench-streams` prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import bench_streams


def test_what_comes_back_is_compared() -> None:
    data = bytes(range(256)) * 1000
    assert bench_streams.carried(["cat"], data).same
    assert not bench_streams.carried(["head", "-c", "100"], data).same


def test_the_table_takes_the_start_off() -> None:
    empty, full = bench_streams.Carried(2.0, 3.0, True), bench_streams.Carried(6.0, 9.0, True)
    text = bench_streams.table(64, empty, full)
    assert text.splitlines()[-1] == "each way, for a second of processor time: 16.8 MB"
    assert "64 MiB there and back: 6.00 s of processor time, 9.0 s in all" in text
    wrong = bench_streams.Carried(6.0, 9.0, False)
    assert bench_streams.table(64, empty, wrong).startswith("the data did not come back")


def test_its_status_says_whether_the_data_came_back(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def carried(argv: list[str], data: bytes) -> bench_streams.Carried:
        asked.append(argv)
        return bench_streams.Carried(1.0, 1.0, not data)

    monkeypatch.setattr(bench_streams, "carried", carried)
    assert bench_streams.main(["b", "--mib", "0.001"]) == 1
    assert asked[0][-5:] == ["vmtailor", "run", "-i", "b", "cat"]
    assert "did not come back" in capsys.readouterr().out
