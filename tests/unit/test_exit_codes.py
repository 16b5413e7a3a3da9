# SPDX-License-Identifier: Apache-2.0
"""The program as a user starts it: exit codes, and errors without a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.fit_run_data import fit_run
from tests.fakes.started import Start

from vmtailor.base.files import records


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", "from vmtailor.cli.main import main; main()", *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60, check=False)


def test_help_and_version() -> None:
    assert program("--version").stdout.startswith("vmtailor ")
    assert program("--help").returncode == 0


@pytest.mark.parametrize(
    "arguments", [("explain",), ("explain", "/nowhere"), ("no-such-verb",), ("report", "--no-such-option", "x")]
)
def test_wrong_input_exits_with_2_and_a_hint(start: Start, arguments: tuple[str, ...]) -> None:
    code, _, err = start(*arguments)
    assert code == 2
    assert "error:" in err and "hint:" in err and "Traceback" not in err


def test_a_damaged_record_is_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"schema": "vmtailor/fit-run/1", "version": 3}')
    result = program("explain", str(tmp_path))
    assert result.returncode == 2 and "damaged" in result.stderr and "Traceback" not in result.stderr


def test_a_host_that_lacks_tools_exits_with_3(tmp_path: Path) -> None:
    tmp_path.joinpath("empty").mkdir()
    result = program("doctor", "--json", PATH=str(tmp_path / "empty"), XDG_CACHE_HOME=str(tmp_path))
    assert result.returncode == 3
    document = json.loads(result.stdout)
    assert document["works"] is False and "qemu-system-x86" in document["install"]


def test_an_answer_exits_with_0(tmp_path: Path) -> None:
    records.save(fit_run(), tmp_path / "run.json")
    result = program("explain", str(tmp_path), "EPOLL")
    assert result.returncode == 0 and "EPOLL is in" in result.stdout
