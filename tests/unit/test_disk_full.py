# SPDX-License-Identifier: Apache-2.0
"""A full disk is told as one, whoever says so, and nothing else is."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from vmtailor.base.disk_full import disk_full_is_a_host_error, no_space, says_full
from vmtailor.base.errors import HostError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), True),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), True),
        (shutil.Error([("a", "b", "[Errno 28] No space left on device: 'b'")]), True),
        (shutil.Error([("a", "b", "[Errno 13] Permission denied: 'b'")]), False),
        (OSError(errno.EACCES, "Permission denied"), False),
    ],
)
def test_only_a_full_disk_is_told_as_one(error: OSError, told: bool) -> None:
    with pytest.raises(HostError if told else type(error)) as raised, disk_full_is_a_host_error(Path("/there")):
        raise error
    assert not told or "/there" in str(raised.value)


@pytest.mark.parametrize(
    ("words", "full"),
    [
        ("cc1: fatal error: closing: No space left on device", True),
        ("write /var/tmp/x: no space left on device", True),
        ("cp: error writing 'x': Disk quota exceeded", True),
        ("I/O error", False),
        ("", False),
    ],
)
def test_programs_tell_a_full_disk_in_words(words: str, full: bool) -> None:
    assert says_full(words) is full


def test_the_error_names_the_place_and_a_way_out() -> None:
    error = no_space("in /there", elsewhere="name a folder elsewhere with -o", details="what a tool said")
    assert error.message == "no space is left in /there" and error.details == "what a tool said"
    assert error.hint == "free some space, or name a folder elsewhere with -o"


def test_only_a_file_in_the_way_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), disk_full_is_a_host_error(tmp_path):
        (tmp_path / "none").read_text()
