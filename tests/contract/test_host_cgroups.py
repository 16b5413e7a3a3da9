# SPDX-License-Identifier: Apache-2.0
"""The scope's cgroups: on folders that stand for version 2, with and without a service manager; and, where root can try
it, with the real program and the real hierarchy. The host is left as it was found."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from vmtailor.base.process import on_path, spawn
from vmtailor.bench.runtimes import host_cgroups, scope
from vmtailor.bench.runtimes.host_cgroups import MANAGED, PASSED_ON, HostCgroups

ROOTS = ("one", "two")


def unified(tmp_path: Path, passed: str = "cpuset cpu io memory") -> Path:
    root = tmp_path / "cgroup"
    root.mkdir()
    (root / "cgroup.controllers").write_text("cpuset cpu io memory hugetlb pids rdma\n")
    (root / "cgroup.subtree_control").write_text(f"{passed}\n")
    return root


def folder_of(tmp_path: Path, name: str) -> Path:
    folder = tmp_path / "place" / name
    folder.mkdir(parents=True)
    return folder


def test_what_the_root_did_not_pass_on_is_passed_on_and_withdrawn(tmp_path: Path) -> None:
    root, folder = unified(tmp_path), folder_of(tmp_path, "vtb-1")
    found = HostCgroups([root], managed=tmp_path / "nobody")
    assert not found.managed and found.begun("vtb-1") == [] and found.within("vtb-1") == "vtb-1"
    found.make("vtb-1", folder)
    assert (folder / PASSED_ON).read_text() == "pids" and (root / "vtb-1").is_dir()
    assert (root / "cgroup.subtree_control").read_text() == "+pids"
    found.remove("vtb-1", folder)
    assert (root / "cgroup.subtree_control").read_text() == "-pids" and not (root / "vtb-1").exists()


def test_where_all_is_passed_on_nothing_is_changed(tmp_path: Path) -> None:
    root, folder = unified(tmp_path, "cpuset cpu io memory pids"), folder_of(tmp_path, "vtb-1")
    found = HostCgroups([root], managed=tmp_path / "nobody")
    found.make("vtb-1", folder)
    found.remove("vtb-1", folder)
    assert (root / "cgroup.subtree_control").read_text() == "cpuset cpu io memory pids\n"


def test_another_scope_inherits_what_it_lives_on_and_withdraws_it(tmp_path: Path) -> None:
    root, first, second = unified(tmp_path), folder_of(tmp_path, "vtb-1"), folder_of(tmp_path, "vtb-2")
    found = HostCgroups([root], managed=tmp_path / "nobody")
    found.make("vtb-1", first)
    (root / "cgroup.subtree_control").write_text("cpuset cpu io memory pids\n")  # as a kernel would show it
    found.make("vtb-2", second)
    assert (second / PASSED_ON).read_text() == ""
    found.remove("vtb-1", first)
    assert (root / "cgroup.subtree_control").read_text() == "cpuset cpu io memory pids\n"
    assert (second / PASSED_ON).read_text() == "pids"
    found.remove("vtb-2", second)
    assert (root / "cgroup.subtree_control").read_text() == "-pids"


def test_a_scope_whose_cgroup_is_still_held_is_not_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, folder = unified(tmp_path), folder_of(tmp_path, "vtb-1")
    found = HostCgroups([root], managed=tmp_path / "nobody")
    found.make("vtb-1", folder)
    (folder / "docker").mkdir()
    (folder / "job.json").touch()
    with monkeypatch.context() as patched:
        patched.setattr(host_cgroups, "remove_tree", lambda path: not path.exists())  # it waits for a disk
        patched.setattr(scope, "HostCgroups", lambda: found)
        scope.sweep_one(tmp_path / "place", "vtb-1")
        assert [path.name for path in folder.iterdir()] == [PASSED_ON]  # the rest is gone, the note is not
        assert (root / "cgroup.subtree_control").read_text() == "+pids"
    monkeypatch.setattr(scope, "HostCgroups", lambda: found)
    scope.sweep(tmp_path / "place")  # the next scope's
    assert not folder.exists() and not (root / "vtb-1").exists()
    assert (root / "cgroup.subtree_control").read_text() == "-pids"


def test_a_service_manager_makes_the_scope_as_a_unit_that_it_delegates(tmp_path: Path) -> None:
    root, folder, manager = unified(tmp_path, ""), folder_of(tmp_path, "vtb-1"), tmp_path / "systemd"
    manager.mkdir()
    found = HostCgroups([root], managed=manager)
    assert found.managed and found.within("vtb-1") == "system.slice/vtb-1.scope"
    words = found.begun("vtb-1")
    assert words[:2] == ["systemd-run", "--scope"] and words[-1] == "--"
    for word in ("--unit=vtb-1.scope", "--slice=system.slice", "--property=Delegate=yes", "--property=TasksMax=16384"):
        assert word in words
    found.make("vtb-1", folder)
    assert (root / "cgroup.subtree_control").read_text() == "\n"  # the manager's, and its alone
    assert sorted(path.name for path in root.iterdir()) == ["cgroup.controllers", "cgroup.subtree_control"]
    (root / "system.slice/vtb-1.scope/outside").mkdir(parents=True)  # as it and the scope make them
    (root / "system.slice/other.scope").mkdir()
    found.remove("vtb-1", folder)
    assert [path.name for path in (root / "system.slice").iterdir()] == ["other.scope"]


def test_version_1_is_nobody_s(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in ROOTS]
    for root in roots:
        root.mkdir()
    found = HostCgroups(roots, managed=tmp_path)  # a manager is there
    assert not found.managed
    found.make("vtb-1", folder_of(tmp_path, "vtb-1"))
    assert all((root / "vtb-1").is_dir() for root in roots)
    found.remove("vtb-1", tmp_path / "place/vtb-1")
    assert not any((root / "vtb-1").exists() for root in roots)


@pytest.mark.skipif(on_path("systemd-run") is None or MANAGED.is_dir(), reason="no systemd-run, or it would do it")
def test_systemd_run_takes_the_words(tmp_path: Path) -> None:
    (tmp_path / "systemd").mkdir()
    words = HostCgroups([unified(tmp_path)], managed=tmp_path / "systemd").begun("vtb-test")
    ended = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1 and "bus" in ended.stderr.lower()  # the words are right; nobody is there to hear them
    wrong = subprocess.run([*words[:1], "--scoop", *words[1:], "true"], capture_output=True, text=True, check=False)
    assert "unrecognized option" in wrong.stderr


def test_who_waits_outside_leaves_the_scope_s_root_to_what_is_in_it(tmp_path: Path) -> None:
    """Version 2 gives no controllers to cgroups below one that has processes."""
    if os.geteuid() != 0:
        pytest.skip("scopes need root")
    unified_ones = [root for root in host_cgroups.hierarchies() if (root / "cgroup.controllers").is_file()]
    if not unified_ones or MANAGED.is_dir():
        pytest.skip("needs cgroup version 2 that nobody manages")
    if not all(os.access(root, os.W_OK) for root in host_cgroups.hierarchies()):
        pytest.skip("needs cgroups that can be written")
    if subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], check=False).returncode:
        pytest.skip("needs the right to make namespaces")
    with scope.held(tmp_path) as one:
        own = unified_ones[0] / one.name
        with spawn([*one.words(), "sleep", "60"]) as process:
            deadline = time.monotonic() + 30
            while not (own / "outside").is_dir() or len(_processes(own)) < 2:
                assert process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
            assert _processes(own / "outside") == [process.pid]
            assert process.pid not in _processes(own) and len(_processes(own)) == 2  # its first process, and sleep
    assert not own.exists() and scope.leftovers(tmp_path, one.name) == []


def _processes(folder: Path) -> list[int]:
    return [int(word) for word in (folder / "cgroup.procs").read_text().split()]
