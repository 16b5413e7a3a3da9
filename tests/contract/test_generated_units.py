# SPDX-License-Identifier: Apache-2.0
"""Units of `vmtailor generate systemd`, read by systemd itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.supervisor import made

from vmtailor.base.errors import UserInputError
from vmtailor.base.process import require_tool
from vmtailor.cli import generate


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program, and a folder for state, at paths that say much to systemd."""
    folder = tmp_path / "100% \"q\" $HOME \\n 'é'"
    path = folder / "vmtailor"
    folder.mkdir()
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(path)])
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    return path


def unit(**record: Any) -> str:
    return generate.unit(made("web", **record))


def values(text: str, key: str) -> list[str]:
    return [line.partition("=")[2] for line in text.splitlines() if line.startswith(f"{key}=")]


@pytest.mark.parametrize("user", [0, 1000])
def test_systemd_reads_odd_paths_and_names(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int
) -> None:
    folder = made("web", image="50% \\", restart="always")
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    if os.geteuid() != user:
        monkeypatch.setattr(os, "geteuid", lambda: user)
    text = generate.unit(folder)
    monkeypatch.undo()
    path = tmp_path / "vmtailor-web.service"
    path.write_text(text)
    manager = [] if user == 0 else ["--user"]
    ended = subprocess.run(
        [require_tool("systemd-analyze"), *manager, "verify", "--man=no", path],
        env={**os.environ, "XDG_RUNTIME_DIR": str(runtime)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ("network-online" in text) == (user == 0)
    assert values(text, "WantedBy") == ["multi-user.target" if user == 0 else "default.target"]
    # systemd refuses some characters in a program's path, and reads $ in arguments alone.
    (start,), (state,) = values(text, "ExecStart"), values(text, "Environment")
    assert start.startswith("/usr/bin/env ") and '100%% \\"q\\" $$HOME \\\\n \'é\'/vmtailor" start --attach ' in start
    assert '100%% \\"q\\" $HOME ' in state


@pytest.mark.parametrize(
    ("policy", "restart"),
    [("no", "no"), ("on-failure", "on-failure"), ("on-failure:3", "on-abnormal"), ("always", "always"),
     ("unless-stopped", "always")],
)  # fmt: skip
def test_systemd_starts_again_what_the_supervisor_does_not(policy: str, restart: str) -> None:
    """The supervisor counts restarts: after the last one its status says that all is over."""
    assert values(unit(restart=policy), "Restart") == [restart]


@pytest.mark.parametrize(("grace_s", "text"), [(10.0, "25"), (0.5, "15"), (None, "infinity"), (-1.0, "infinity")])
def test_systemd_waits_as_long_as_the_machine_may_take(grace_s: float | None, text: str) -> None:
    found = unit(stop_timeout_s=grace_s)
    assert values(found, "TimeoutStopSec") == values(found, "TimeoutStartSec") == [text]


def test_a_machine_that_runs_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/nowhere/python"])
    text = unit()
    (before,), (start,), (stop,) = (values(text, f"Exec{what}") for what in ("StartPre", "Start", "Stop"))
    assert before == stop and start.startswith(f"{sys.executable} -m vmtailor start --attach ")
    assert values(text, "Type") == ["exec"] and values(text, "KillMode") == ["mixed"]


def test_a_path_with_control_characters_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = made("web", image="x\nX=1")
    assert "\nX=1" not in generate.unit(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "two\nlines"))
    with pytest.raises(UserInputError, match="systemd takes no path with control characters"):
        generate.unit(folder)
