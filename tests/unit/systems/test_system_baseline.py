# SPDX-License-Identifier: Apache-2.0
"""What is said of a system that does not pass its exercise on its own kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vmtailor.base.errors import GuestError
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.system_exercise import Saying, SystemExercise, SystemReady, SystemReadyKind
from vmtailor.model.guest import GuestReport
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.stages import system_verify
from vmtailor.stages.system_verify import SystemTarget

READY = SystemReady(SystemReadyKind.UNIT, unit="multi-user.target")
EXERCISE = SystemExercise("x.toml", READY, says=(Saying("engine", ("docker", "info"), errors=True),))


def asked(monkeypatch: pytest.MonkeyPatch, *failures: str, says: str | None = "fine\n") -> SystemRun:
    files = (("says-engine", says),) if says is not None else ()
    found = SystemRun(Boot(Outcome.READY, (), 1.0, failures=failures), GuestReport(files=files), "console")
    monkeypatch.setattr(system_verify, "run", lambda *_, **__: found)
    nothing: Any = None
    return system_verify.baseline(SystemTarget(nothing, nothing, EXERCISE, nothing), Path())


def test_one_that_passes_and_answers_is_the_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(monkeypatch).report.file("says-engine") == "fine\n"
    assert asked(monkeypatch, says="").words == "console"  # it may say nothing


def test_what_cannot_be_asked_is_told_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GuestError, match="engine cannot be asked"):
        asked(monkeypatch, says=None)


@pytest.mark.parametrize(
    ("failure", "network"),
    [
        ("load step 1 (nc x 80): 0 of 1 right: nc: can't connect to remote host: Network is unreachable", True),
        ("load step 1 (apt-get update): 0 of 1 right: Temporary failure resolving 'x'", True),
        ("load step 2 (curl x): 0 of 1 right: curl: (6) Could not resolve host: x", True),
        ("load step 2 (false): 0 of 1 right: exit status 1, not 0", False),
        ("the system did not become ready (http) within 5 s: the command did not end in time", False),
    ],
)
def test_a_network_that_is_not_there_has_its_own_hint(
    failure: str, network: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(GuestError) as wrong:
        asked(monkeypatch, failure)
    assert failure in wrong.value.message
    assert ("outside of its machine" in wrong.value.hint) is network
