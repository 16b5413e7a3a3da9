# SPDX-License-Identifier: Apache-2.0
"""What the next scope removes of those before it, and what it spares."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from vmtailor.bench.runtimes import scope
from vmtailor.bench.runtimes.host_cgroups import PASSED_ON, HostCgroups

NOBODY = 65534


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where scopes lie; the host's cgroups are folders, too."""
    (tmp_path / "cgroup").mkdir()
    monkeypatch.setattr(scope, "HostCgroups", lambda: HostCgroups([tmp_path / "cgroup"], managed=tmp_path / "nobody"))
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def left(place: Path, name: str = "vtb-1") -> Path:
    """What a scope left whose process was killed."""
    folder = place / name
    (folder / "docker/layer").mkdir(parents=True)
    (folder / "job.json").write_text("{}")
    (place.parent / "cgroup" / name).mkdir()
    return folder


def test_what_nobody_holds_is_removed_and_nothing_else(place: Path) -> None:
    gone = left(place)
    (place / "others").mkdir()
    (place / "vtb-file").write_text("of somebody")
    (place / "vtb-link").symlink_to(place / "others")
    (place / "others/file").touch()
    scope.sweep(place)
    assert not gone.exists() and not (place.parent / "cgroup/vtb-1").exists()
    assert {entry.name for entry in place.iterdir()} == {"others", "vtb-file", "vtb-link"}
    assert (place / "others/file").exists()


def test_a_scope_that_is_held_is_spared_until_it_is_let_go(place: Path) -> None:
    folder = left(place)
    holder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(holder, fcntl.LOCK_EX)
        scope.sweep(place)
        assert (folder / "docker/layer").is_dir() and (folder / "job.json").exists()
        assert (place.parent / "cgroup/vtb-1").is_dir()
    finally:
        os.close(holder)
    scope.sweep(place)
    assert not folder.exists() and not (place.parent / "cgroup/vtb-1").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders away")
def test_a_folder_that_somebody_else_made_stays(place: Path) -> None:
    folder = left(place)
    os.chown(folder, NOBODY, NOBODY)
    scope.sweep(place)
    assert (folder / "docker/layer").is_dir() and (place.parent / "cgroup/vtb-1").is_dir()
    os.chown(folder, 0, 0)
    scope.sweep(place)
    assert not folder.exists()


def test_while_its_cgroup_is_there_a_scope_stays_known(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = left(place)
    (folder / PASSED_ON).write_text("memory")
    monkeypatch.setattr(HostCgroups, "remove", lambda *_: False)  # a process in it waits for a disk
    scope.sweep(place)
    assert [entry.name for entry in folder.iterdir()] == [PASSED_ON]  # and takes no room


def test_one_that_cannot_be_removed_keeps_none_of_the_others(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders, removed = [left(place, f"vtb-{number}") for number in range(3)], HostCgroups.remove
    order = [entry.name for entry in os.scandir(place)]

    def refused(cgroups: HostCgroups, name: str, folder: Path) -> bool:
        if name == order[0]:
            raise PermissionError(13, "of another")
        return removed(cgroups, name, folder)

    monkeypatch.setattr(HostCgroups, "remove", refused)
    scope.sweep(place)
    assert [folder.name for folder in folders if folder.exists()] == [order[0]]
