# SPDX-License-Identifier: Apache-2.0
"""The program that begins others in cgroups, networks and roots, as nobody where it is told to."""

from __future__ import annotations

import os
import subprocess

import pytest

from vmtailor.base.natives import locate

pytestmark = [
    pytest.mark.attack, pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
]  # fmt: skip


def entered(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(locate().folder / "enter"), *words], capture_output=True, text=True, check=False)


def test_who_is_nobody_stays_so() -> None:
    said = entered("-u", "cat", "/proc/self/status").stdout
    status = dict(line.split(":\t", 1) for line in said.splitlines() if ":\t" in line)
    assert status["Uid"].split() == status["Gid"].split() == ["65534"] * 4 and not status["Groups"].strip()
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1"  # no program of the image's makes it root again


def test_without_it_nothing_changes() -> None:
    assert entered("id", "-u").stdout.strip() == "0"


def test_a_root_is_entered_first() -> None:
    ended = entered("-u", "-r", "/proc/self/nothing", "id")
    assert ended.returncode == 126 and "chroot" in ended.stderr
