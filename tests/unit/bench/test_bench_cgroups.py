# SPDX-License-Identifier: Apache-2.0
"""Cgroups of instances, of both versions, on folders that stand for them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from vmtailor.base.errors import HostError
from vmtailor.bench.model.instance import Limits
from vmtailor.bench.runtimes.instance_cgroups import Cgroups, limit_files, remove_tree

FULL = Limits(memory_bytes=1 << 28, cpus=0.5, pids=64, cpuset="1")


def version_1(folder: Path) -> Cgroups:
    for name, files in {
        "memory": ["memory.limit_in_bytes"],
        "cpu": ["cpu.cfs_quota_us", "cpu.cfs_period_us"],
        "pids": ["pids.max"],
        "cpuset": ["cpuset.cpus", "cpuset.mems"],
    }.items():
        for where in (folder / name, folder / name / "one"):
            where.mkdir(parents=True)
            (where / "cgroup.procs").touch()
            for file in files:
                (where / file).write_text("0-3")
    return Cgroups(folder)


def version_2(folder: Path) -> Cgroups:
    (folder / "one").mkdir(parents=True)
    (folder / "cgroup.controllers").write_text("cpuset cpu memory pids")
    (folder / "cgroup.subtree_control").touch()
    (folder / "cgroup.procs").touch()
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    for file in ("memory.max", "cpu.max", "pids.max", "cpuset.cpus", "cgroup.procs"):
        (folder / "one" / file).touch()
    return Cgroups(folder)


def test_version_1_sets_each_limit_in_its_hierarchy(tmp_path: Path) -> None:
    found = version_1(tmp_path)
    files = found.make("one", FULL)
    assert found.version == "v1" and len(files) == 4
    assert (tmp_path / "memory/one/memory.limit_in_bytes").read_text() == str(1 << 28)
    assert (tmp_path / "cpu/one/cpu.cfs_quota_us").read_text() == "50000"
    assert (tmp_path / "cpuset/one/cpuset.cpus").read_text() == "1"
    assert (tmp_path / "cpuset/one/cpuset.mems").read_text() == "0-3"  # without which nothing can enter


def test_a_limit_to_memory_is_none_that_swapping_gets_around(tmp_path: Path) -> None:
    older, unified = version_1(tmp_path / "1"), version_2(tmp_path / "2")
    for file in (tmp_path / "1/memory/one/memory.memsw.limit_in_bytes", tmp_path / "2/one/memory.swap.max"):
        file.write_text("max")
    for one in (older, unified):
        one.make("one", Limits(pids=3))  # which says nothing of memory
    assert (tmp_path / "2/one/memory.swap.max").read_text() == "max"
    for one in (older, unified):
        one.make("one", FULL)
    assert (tmp_path / "1/memory/one/memory.memsw.limit_in_bytes").read_text() == str(1 << 28)
    assert (tmp_path / "2/one/memory.swap.max").read_text() == "0"


def test_version_2_sets_all_in_one(tmp_path: Path) -> None:
    found = version_2(tmp_path)
    assert found.make("one", FULL) == [tmp_path / "one/cgroup.procs"]
    assert found.version == "v2" and found.cpu_s() == 2.5
    assert (tmp_path / "one/cpu.max").read_text() == "50000 100000"
    assert (tmp_path / "one/pids.max").read_text() == "64"


def test_version_2_harness_leaves_the_root_to_others(tmp_path: Path) -> None:
    found = version_2(tmp_path)
    (tmp_path / "cgroup.procs").write_text("71\n")
    found.enter_harness()
    assert (tmp_path / "harness/cgroup.procs").read_text() == "71"
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+pids"  # the last of those written


def test_a_controller_that_is_not_there_is_named(tmp_path: Path) -> None:
    found = version_1(tmp_path)
    (tmp_path / "pids/one/pids.max").unlink()
    with pytest.raises(HostError, match=r"pids\.max"):
        found.make("one", FULL)


def test_no_limits_write_nothing() -> None:
    assert limit_files(Limits(), unified=True) == limit_files(Limits(), unified=False) == []


def test_a_tree_is_removed_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    (tmp_path / "one/two").mkdir(parents=True)
    assert remove_tree(tmp_path / "one") and not (tmp_path / "one").exists()
    assert remove_tree(tmp_path / "one")  # nothing there is done at once
    (tmp_path / "three").mkdir()
    (tmp_path / "three/stuck").touch()  # a real cgroup's files go with it; this one does not
    assert not remove_tree(tmp_path / "three", patience_s=0.05) and (tmp_path / "three/stuck").exists()


def test_where_no_file_kills_all_each_process_is_ended_but_ourselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda process, number: ended.append((process, number)))
    (tmp_path / "one").mkdir()
    (tmp_path / "one/cgroup.kill").symlink_to(tmp_path / "nothing/there")  # which older kernels do not have
    (tmp_path / "one/cgroup.procs").write_text(f"4711\n{os.getpid()}\n4712\n")
    remove_tree(tmp_path / "one", patience_s=0.0)
    assert {*ended} == {(4711, signal.SIGKILL), (4712, signal.SIGKILL)}


def test_what_was_set_can_be_read_again_under_one_set_of_names(tmp_path: Path) -> None:
    older, unified = version_1(tmp_path / "v1"), version_2(tmp_path / "v2")
    for found in (older, unified):
        found.make("one", FULL)
    assert older.limits("one") == {
        "memory_limit": str(1 << 28),
        "cpu_quota": "50000",
        "cpu_period": "100000",
        "pids_limit": "64",
    }
    assert unified.limits("one") == {"memory_limit": str(1 << 28), "cpu_quota": "50000 100000", "pids_limit": "64"}
    assert older.limits("nobody") == {}
