# SPDX-License-Identifier: Apache-2.0
"""Folders that outlive nobody: swept when their process is gone, and only then."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from vmtailor.base.files.temporary import PREFIX, held_folder, sweep


def test_a_folder_is_gone_when_its_block_is_left(tmp_path: Path) -> None:
    with held_folder(tmp_path) as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "x").touch()
    assert list(tmp_path.iterdir()) == []


def test_the_next_start_removes_what_a_killed_process_left_and_nothing_else(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from vmtailor.base.files.temporary import held_folder\n"
        "with held_folder(Path(sys.argv[1])) as folder:\n (folder / 'x').touch(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / "vmtailor-of-the-user").mkdir()
    with held_folder(tmp_path) as held:
        sweep(tmp_path)
        assert sorted(tmp_path.iterdir()) == sorted([held, tmp_path / "vmtailor-of-the-user"])


@pytest.mark.parametrize("after", ["mkdtemp", "open"])
def test_a_folder_that_somebody_sweeps_before_it_is_held_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    """Two threads, or two processes, may begin at the same time."""
    swept: list[Path] = []
    module = tempfile if after == "mkdtemp" else os
    made = getattr(module, after)

    def racing(*arguments: Any, **options: Any) -> Any:
        found = made(*arguments, **options)
        inside = [path for path in tmp_path.iterdir() if path.name.startswith(PREFIX)]
        if inside and not swept:
            swept.append(inside[0])
            inside[0].rmdir()
        return found

    monkeypatch.setattr(module, after, racing)
    with held_folder(tmp_path) as folder:
        assert swept and folder not in swept and folder.is_dir()


def test_many_at_the_same_time(tmp_path: Path) -> None:
    def hold(_: int) -> bool:
        with held_folder(tmp_path) as folder:
            return folder.is_dir()

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(hold, range(400)))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.attack
def test_a_link_in_the_place_of_a_folder_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").touch()
    (tmp_path / f"{PREFIX}link").symlink_to(victim)
    sweep(tmp_path)
    assert (victim / "file").exists()
