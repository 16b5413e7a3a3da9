# SPDX-License-Identifier: Apache-2.0
"""`make test-times`: what is printed of a run that pytest has written down."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.tools import load_tool

RUN = """<?xml version="1.0"?><testsuites><testsuite tests="2" time="61.4" timestamp="2026-01-01T00:00:00">
<testcase classname="tests.unit.bench.test_one" name="a" time="2.5"/>
<testcase classname="tests.system.test_fit.Class" name="b" time="40"/></testsuite></testsuites>"""


def test_each_run_is_told_by_kind_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "unit.xml").write_text(RUN)
    (tmp_path / "ci").write_text("2401\n")
    assert load_tool("test_times").main(tmp_path) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "make unit: 61 s for 2 tests (goal: 60 s), 2026-01-01T00:00:00"
    assert said[1] == "  system 40 s, unit 2 s, over both processes"
    assert [line.split() for line in said[2:4]] == [["40.0", "s", "test_fit"], ["2.5", "s", "test_one"]]
    assert said[4:] == ["make test: not run here yet", ".ci/run: 2401 s, setup and checks included"]
