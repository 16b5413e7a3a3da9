# SPDX-License-Identifier: Apache-2.0
"""What several unit tests use."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from tests.fakes.hostile_bundles import own_cache, verified
from tests.fakes.started import Ended, Start

from vmtailor.cli.main import main

__all__ = ["own_cache", "start", "verified"]

_CACHES = count()


@pytest.fixture(autouse=True)
def _no_cache_of_the_users(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No unit test reads or writes what the user has in the cache, or keeps of machines: a test's own is made where one
    is asked for."""
    number = next(_CACHES)
    for name in ("cache_home", "state_home", "runtime_dir"):
        monkeypatch.setenv(f"XDG_{name.upper()}", str(Path(tmp_path_factory.getbasetemp(), f"no-{name}-{number}")))


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Start]:
    """Starts `vmtailor ARGUMENTS`, and gives what came of it."""
    terminated = signal.getsignal(signal.SIGTERM)

    def run(*arguments: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["vmtailor", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        out, err = capsys.readouterr()
        code = end.value.code
        assert isinstance(code, int)
        return code, out, err

    yield run
    signal.signal(signal.SIGTERM, terminated)
