# SPDX-License-Identifier: Apache-2.0
"""The program that ends what we started when we are gone: asked to first, so that a compiler removes what it has half
made; killed when it does not heed that."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from vmtailor.base.guard import PROGRAM

pytestmark = pytest.mark.contract


def ended_by_the_guard(script: str, folder: Path) -> tuple[int, float]:
    """How a program of its own group ends, and after how many seconds, when the line to the guard breaks."""
    with subprocess.Popen(["sh", "-c", script], cwd=folder, start_new_session=True) as program:
        with subprocess.Popen([PROGRAM], stdin=subprocess.PIPE) as guard:
            assert guard.stdin is not None
            guard.stdin.write(f"+{program.pid}\n".encode())
            guard.stdin.flush()
            deadline = time.monotonic() + 10
            while not (folder / "there").exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            began = time.monotonic()
            guard.stdin.close()
            status = program.wait(30)
            took = time.monotonic() - began
        return status, took


def test_a_program_may_put_away_what_it_has_half_made(tmp_path: Path) -> None:
    script = "touch half; trap 'rm half; exit 3' TERM; touch there; while :; do sleep 0.05; done"
    status, took = ended_by_the_guard(script, tmp_path)
    assert status == 3 and took < 3 and not (tmp_path / "half").exists()


def test_one_that_heeds_nothing_is_killed(tmp_path: Path) -> None:
    status, _ = ended_by_the_guard("trap '' TERM; touch there; while :; do sleep 0.05; done", tmp_path)
    assert status == -signal.SIGKILL


def test_a_group_that_has_ended_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        subprocess.run([PROGRAM], input=f"+{other.pid}\n-{other.pid}\n".encode(), check=True)
        assert other.poll() is None
        os.killpg(other.pid, signal.SIGKILL)
