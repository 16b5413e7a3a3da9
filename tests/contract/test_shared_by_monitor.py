# SPDX-License-Identifier: Apache-2.0
"""Folders that a monitor serves itself (by 9p): what it sees of the host, and may do, also one that was taken over.

A shell stands in the monitor's place."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from vmtailor.drivers.confinement import confinement
from vmtailor.drivers.confinement.confinement import Root

pytestmark = [pytest.mark.contract, pytest.mark.attack]

#: What a shell and its tools need of the host.
_NEEDS = ("/bin", "/lib", "/lib64", "/usr")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is shared, beside a secret that is not."""
    (tmp_path / "secret").write_text("secret\n")
    made = tmp_path / "shared"
    made.mkdir()
    (made / "inside").write_text("inside\n")
    (made / "out").symlink_to(tmp_path / "secret")
    return made


def taken_over(folder: Path, script: str, *more: str, kind: str = "folder") -> subprocess.CompletedProcess[str]:
    """What a shell in the monitor's place says: /shared/a is the folder, and /shared/b/file a file alone."""
    how = confinement.available()
    if how.root is Root.SHARED:
        pytest.skip("this host has no namespaces for it")
    shown = [word for path in (*_NEEDS, "/proc/self") if Path(path).exists() for word in ("show", path)]
    place = "/shared/b/file" if kind.startswith("file") else "/shared/a"
    words = more or how.words
    argv = [str(confinement.launcher()), *words, "files", kind, str(folder), place, *shown, "device", "/dev/null"]
    return subprocess.run(
        [*argv, "--", "/bin/sh", "-c", f"exec 2>&1; {script}"], capture_output=True, text=True, timeout=60, check=False
    )


def test_it_reaches_its_folder_alone(folder: Path, tmp_path: Path) -> None:
    said = taken_over(
        folder,
        "cat /shared/a/inside /shared/a/out /shared/a/../secret /shared/a/../../secret "
        f"{tmp_path}/secret; ls -m / /proc; echo made > /shared/a/new; echo x > /shared/x; echo x > /usr/x",
    ).stdout
    assert said.startswith("inside\n") and "secret\n" not in said.replace(f"{tmp_path}/secret", "")
    assert (folder / "new").read_text() == "made\n" and said.count("Read-only file system") == 2
    assert re.search(r"^/proc:\nself$", said, re.MULTILINE)  # itself, and no other process


def test_its_rights_over_files_are_all_that_it_has(folder: Path) -> None:
    """Changes of owner, files of others, and modes; no devices, other users or signals to others."""
    (folder / "inside").chmod(0)
    said = taken_over(
        folder,
        "grep -E 'Cap(Eff|Bnd)|NoNewPrivs' /proc/self/status; cd /shared/a; cat inside; chown 0:0 new inside; "
        "chmod 600 inside; mknod device c 1 3; kill -9 1 || echo spared",
    ).stdout
    assert re.findall(r"(\w+):\s+(\w+)", said)[:3] == [
        ("CapEff", "000000000000001b"), ("CapBnd", "000000000000001b"), ("NoNewPrivs", "1"),
    ]  # fmt: skip
    assert "inside\n" in said and said.rstrip().endswith("spared") and not (folder / "device").exists()
    assert (folder / "inside").stat().st_mode & 0o777 == 0o600
    assert (folder / "inside").stat().st_uid == os.geteuid()


def test_what_is_to_be_read_it_cannot_write_either(folder: Path) -> None:
    said = taken_over(folder, "cd /shared/a; echo x > new; echo x >> inside; rm out", kind="folder-ro").stdout
    assert said.count("Read-only file system") == 3
    assert sorted(one.name for one in folder.iterdir()) == ["inside", "out"]


def test_beside_a_file_alone_there_is_nothing(folder: Path) -> None:
    said = taken_over(folder / "inside", "cd /shared/b; ls -A; echo y >> file; echo x > other", kind="file").stdout
    assert said.startswith("file\n") and "Read-only file system" in said
    assert (folder / "inside").read_text() == "inside\ny\n"


def test_devices_and_setuid_programs_of_a_folder_are_none(folder: Path) -> None:
    flags = "grep -o '/shared/a .*' /proc/self/mounts"
    options = taken_over(folder, flags).stdout.split()[2].split(",")
    assert {"nosuid", "nodev"} <= set(options)


def test_a_folder_that_became_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "swapped").symlink_to(folder)
    (tmp_path / "above").symlink_to(folder.parent)
    for path in (tmp_path / "swapped", tmp_path / "above" / "shared"):
        ended = taken_over(path, "echo reached")
        assert ended.returncode == 71 and "reached" not in ended.stdout
        assert re.match(f"launch: (open|share) {re.escape(str(path))}: ", ended.stderr)


def test_a_file_is_no_folder_and_a_device_neither(folder: Path) -> None:
    assert taken_over(folder / "inside", "true").returncode == 71
    assert taken_over(folder, "true", kind="file").returncode == 71
    assert taken_over(Path("/dev/null"), "true", kind="file").returncode == 71


def mapper(tmp_path: Path, name: str, map_name: str, ends: int = 0) -> str:
    """A program in the place of newuidmap or newgidmap."""
    made = tmp_path / name
    made.write_text(
        f'#!/bin/sh\np=$1; shift; echo "$@" $(grep -o "NoNewPrivs:.*" /proc/self/status) >> {tmp_path}/asked\n'
        f'[ {ends} = 0 ] && printf "%s %s %s\\n" "$@" > /proc/$p/{map_name}\nexit {ends}\n'
    )
    made.chmod(0o755)
    return str(made)


@pytest.mark.skipif(os.geteuid() != 0, reason="programs in the place of newuidmap need root")
def test_further_users_are_the_hosts_subordinate_ones(folder: Path, tmp_path: Path) -> None:
    words = ("root", "user", "uids", "100000", "65536", "gids", "200000", "65536", "mappers")
    given = (mapper(tmp_path, "u", "uid_map"), mapper(tmp_path, "g", "gid_map"))
    script = "cd /shared/a; touch own other; chown 7:8 other; stat -c '%u %g' own other"
    ended = taken_over(folder, script, *words, *given)
    assert ended.stdout.split("\n")[-3:-1] == ["0 0", "7 8"], ended
    assert ((folder / "other").stat().st_uid, (folder / "other").stat().st_gid) == (100006, 200007)
    # They are not of those that gain no rights: newuidmap is root's program.
    asked = (tmp_path / "asked").read_text().splitlines()
    assert asked == ["0 0 1 1 100000 65536 NoNewPrivs: 0", "0 0 1 1 200000 65536 NoNewPrivs: 0"]


@pytest.mark.skipif(os.geteuid() != 0, reason="programs in the place of newuidmap need root")
def test_without_the_users_that_were_asked_for_nothing_starts(folder: Path, tmp_path: Path) -> None:
    words = ("root", "user", "uids", "100000", "65536", "gids", "200000", "65536", "mappers")
    ended = taken_over(folder, "echo started", *words, mapper(tmp_path, "u", "uid_map", 1), "/bin/true")
    assert ended.returncode == 71 and "get users and groups" in ended.stderr and "started" not in ended.stdout
