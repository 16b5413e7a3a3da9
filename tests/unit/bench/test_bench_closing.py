# SPDX-License-Identifier: Apache-2.0
"""What is opened for a trial, or for the scope, is closed again where something fails."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from vmtailor.bench.runtimes import scope
from vmtailor.bench.runtimes.host_cgroups import HostCgroups
from vmtailor.bench.runtimes.stopwatch import CallBacks, said_until_now, timed


@pytest.fixture
def is_closed() -> Callable[[], bool]:
    """Whether as much is open as before the test."""
    timed(["true"], deadline_s=20.0)  # with the first one comes what ends all with us

    def count() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = count()
    return lambda: count() == before


def test_a_folder_that_cannot_be_watched(tmp_path: Path, is_closed: Callable[[], bool]) -> None:
    with pytest.raises(FileNotFoundError):
        CallBacks(tmp_path / "none")
    assert is_closed()


def test_a_command_that_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, is_closed: Callable[[], bool]) -> None:
    def interrupted() -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr("select.poll", interrupted)
    with pytest.raises(KeyboardInterrupt):
        timed(["sleep", "60"], deadline_s=60.0)
    assert is_closed()


def test_a_scope_that_nobody_watches(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_closed: Callable[[], bool]
) -> None:
    def refused(*_words: object, **_options: object) -> object:
        raise OSError(11, "no more processes")

    monkeypatch.setattr(scope, "require_root", lambda: None)
    monkeypatch.setattr(scope, "HostCgroups", lambda: HostCgroups([tmp_path / "cgroup"], managed=tmp_path / "nobody"))
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", refused)
        with pytest.raises(OSError, match="no more processes"), scope.held(tmp_path):
            pass
    assert is_closed() and not list(tmp_path.iterdir())


def test_a_running_program_goes_on_where_it_is() -> None:
    with TemporaryFile() as said, subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=said) as process:
        assert process.stdin is not None
        for text in (b"one ", b"two ", b"three"):
            before = said_until_now(said)
            process.stdin.write(text)
            process.stdin.flush()
            while (now := said_until_now(said)) == before:
                assert process.poll() is None
            assert now == before + text
        process.stdin.close()
        assert process.wait(20) == 0
