# SPDX-License-Identifier: Apache-2.0
"""What several contract tests use."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.small_kernel import small_kernel


@pytest.fixture(scope="session")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A kernel of a hundred bytes."""
    return small_kernel(tmp_path_factory.mktemp("kernel"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a cache and a place for temporary files of its own."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path
