# SPDX-License-Identifier: Apache-2.0
"""What several contract tests use."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a cache and a place for temporary files of its own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path
