# SPDX-License-Identifier: Apache-2.0
"""What several contract tests use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.fakes.small_kernel import small_kernel

from vmtailor.drivers.qemu import qemu_program


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


@pytest.fixture(params=["the QEMU on the PATH", "the QEMU of $VMTAILOR_QEMU"])
def program(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> qemu_program.Qemu:
    """The QEMU on the PATH; then a second one, of another version, if $VMTAILOR_QEMU names one."""
    if "$" not in request.param:
        monkeypatch.delenv(qemu_program.BINARY_VARIABLE, raising=False)
    elif qemu_program.BINARY_VARIABLE not in os.environ:
        pytest.skip(f"{qemu_program.BINARY_VARIABLE} does not name a second QEMU")
    return qemu_program.installed()
