# SPDX-License-Identifier: Apache-2.0
"""A wait says who is waited for and how far that is, and no step is silent for long where there is no terminal."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmtailor.base import progress
from vmtailor.base.cache import lock_holder, store
from vmtailor.base.cache.store import locked


def test_who_holds_a_lock_says_how_far_it_is(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with locked(path), progress.step("compiling \x1b[2J") as step:
        lock_holder._own.last = 0.0
        step.update(42)
        assert path.read_text().rstrip().endswith("2J")  # nothing is known of how far it is
        lock_holder._own.last = 0.0
        step.update(42, 100, "about 3 min left")
        file = os.open(path, os.O_RDONLY)
        holder = lock_holder.read(file)
        os.close(file)
    assert holder is not None and holder.pid == os.getpid() and holder.said.startswith("compiling")
    assert "42 %, about 3 min left" in holder.said
    assert holder.words(holder.since_s + 185).startswith(f"process {os.getpid()}, for 3 min: compiling")


@pytest.mark.attack
@pytest.mark.parametrize("content", [b"", b"x", b"1", b"1 x", b"\xff\xfe", b"\xc2\xb2 1 y", b"9" * 5000])
def test_an_odd_lock_names_nobody(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lock"
    path.write_bytes(content)
    file = os.open(path, os.O_RDONLY)
    assert lock_holder.read(file) is None
    os.close(file)


def test_who_waits_says_it_again_each_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(store, "SAY_S", 0.2)
    monkeypatch.setattr(store, "FIRST_SAY_S", 0.1)
    path = tmp_path / "lock"
    with held_elsewhere(path) as holder:
        threading.Timer(1.0, holder.kill).start()
        with locked(path, "the same kernel"):
            pass
    said = capsys.readouterr().err.splitlines()
    waits = f"waiting for the same kernel, which another vmtailor has under way (process {holder.pid}, for "
    assert len(said) >= 2 and all(line.startswith(waits) for line in said)
    assert said[-1].endswith(" s: compiling the kernel: 7 %)")


def test_a_thread_that_waits_for_its_own_process_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(store, "FIRST_SAY_S", 0.0)
    path, begun, let_go = tmp_path / "lock", threading.Event(), threading.Event()

    def hold() -> None:
        with locked(path):
            begun.set()
            let_go.wait(30)

    holder = threading.Thread(target=hold)
    holder.start()
    assert begun.wait(30)
    threading.Timer(0.4, let_go.set).start()
    with locked(path, "the native parts"):
        pass
    holder.join()
    assert capsys.readouterr().err == ""


def test_a_short_wait_is_not_worth_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "lock"
    with held_elsewhere(path) as holder:
        threading.Timer(0.2, holder.kill).start()
        with locked(path, "the same trace"):
            pass
    assert capsys.readouterr().err == ""


HOLD = """
import sys
from collections.abc import Iterator
from pathlib import Path
from vmtailor.base.cache import lock_holder
from vmtailor.base.cache.store import locked
with locked(Path(sys.argv[1])):
    lock_holder.say("compiling the kernel: 7 %")
    print("held", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def held_elsewhere(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Have another process hold a lock until it is killed."""
    argv = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
        try:
            yield holder
        finally:
            holder.kill()


def test_a_step_is_never_silent_for_long(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "SILENT_S", 0.1)
    with progress.step("booting") as step:
        step.update(1, 4)
        time.sleep(0.6)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "booting …" and lines[-1].startswith("✓ booting")
    assert len(lines) >= 3 and all("min so far, 25 %" in line for line in lines[1:-1])


def test_a_short_step_says_no_more_than_before(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.step("booting"):
        pass
    assert len(capsys.readouterr().err.splitlines()) == 2
