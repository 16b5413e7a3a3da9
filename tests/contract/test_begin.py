# SPDX-License-Identifier: Apache-2.0
"""begin, which starts monitors in the lab: it ends as they do, and notes when."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from vmtailor.base import natives

pytestmark = pytest.mark.contract


def begun(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [str(natives.locate().begin), *words]
    return subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=30, check=False)


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_it_ends_as_the_program_does(script: str, status: int, tmp_path: Path) -> None:
    done = begun(tmp_path, "sh", "-c", f"echo said; echo heard >&2; {script}")
    assert (done.returncode, done.stdout, done.stderr) == (status, "said\n", "heard\n")
    first, last = (tmp_path / "clock").read_text().split()
    assert 0 < int(first) < int(last)


def test_a_program_that_cannot_be_executed_is_told(tmp_path: Path) -> None:
    done = begun(tmp_path, "/no/such", "word")
    assert (done.returncode, done.stderr) == (127, "begin: /no/such: No such file or directory\n")
    assert begun(tmp_path).returncode == 127


def test_both_moments_have_an_address() -> None:
    marks = natives.locate().begin_marks()
    assert set(marks) == {"monitor", "gone"} and marks["monitor"] != marks["gone"]
    assert all(0x6C000000 <= address < 0x70000000 for address in marks.values())
