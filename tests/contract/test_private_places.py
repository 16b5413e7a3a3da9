# SPDX-License-Identifier: Apache-2.0
"""Folders of the host that an engine writes to, and cgroups that are mounted twice: in mounts of a process's own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vmtailor.bench.runtimes import private_places
from vmtailor.bench.runtimes.host_cgroups import hierarchies


def in_mounts_of_its_own(code: str, *words: str | Path) -> str:
    """What a Python program says that has mounts which end with it."""
    if os.geteuid() != 0:
        pytest.skip("mounts need root")
    before = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*before, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to make namespaces")
    ended = subprocess.run(
        [*before, sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


HIDE = """
import sys
from pathlib import Path
from vmtailor.bench.runtimes.private_places import hide
scope, *places = map(Path, sys.argv[1:])
hide(places, scope / "engine/private", scope)
for place in places:
    print(sorted(path.name for path in place.iterdir()))
    (place / "key.json").write_text("written")
"""


def test_an_engine_writes_to_a_copy_and_leaves_the_host_as_it_was(tmp_path: Path) -> None:
    scope, there, lacking = tmp_path / "scope", tmp_path / "etc/there", tmp_path / "var/none/engine"
    for folder in (scope, there, tmp_path / "var"):
        folder.mkdir(parents=True)
    (there / "daemon.json").write_text("{}")
    (there / "link").symlink_to("/nowhere")
    said = in_mounts_of_its_own(HIDE, scope, there, lacking)
    assert said.splitlines() == ["['daemon.json', 'link']", "[]"]
    assert sorted(path.name for path in there.iterdir()) == ["daemon.json", "link"]
    assert (scope / "engine/private/0/key.json").read_text() == "written"
    assert lacking.is_dir() and not any(lacking.iterdir())
    private_places.take_away(scope)
    assert [path.name for path in (tmp_path / "var").iterdir()] == [] and there.is_dir()


def test_what_somebody_put_into_a_folder_of_ours_stays(tmp_path: Path) -> None:
    in_mounts_of_its_own(HIDE, tmp_path, tmp_path / "var/engine")
    (tmp_path / "var/engine/theirs").touch()
    private_places.take_away(tmp_path)
    assert (tmp_path / "var/engine/theirs").exists()
    private_places.take_away(tmp_path / "no such scope")


TWICE = """
import subprocess
import sys
from pathlib import Path
from vmtailor.bench.runtimes import scope
from vmtailor.bench.runtimes.host_cgroups import hierarchies
before = hierarchies()
again = Path(sys.argv[1]) / "again"
again.mkdir()
subprocess.run(["mount", "--bind", before[0], again], check=True)
assert str(again) in Path("/proc/self/mounts").read_text()
assert hierarchies() == before
with scope.held(Path(sys.argv[1])) as one:
    sys.exit(subprocess.run([*one.words(), "true"]).returncode)
"""


def test_cgroups_that_are_mounted_twice_are_one_hierarchy(tmp_path: Path) -> None:
    if not all(os.access(root, os.W_OK) for root in hierarchies()):
        pytest.skip("needs cgroups that can be written")
    in_mounts_of_its_own(TWICE, tmp_path)


def test_each_hierarchy_is_there_once_where_none_can_be_asked(tmp_path: Path) -> None:
    table = tmp_path / "mounts"
    table.write_text("a /no/one cgroup rw 0 0\nb /no/two cgroup2 rw 0 0\nc /no/one cgroup rw 0 0\nd / ext4 rw 0 0\n")
    assert hierarchies(table) == [Path("/no/one"), Path("/no/two")]
