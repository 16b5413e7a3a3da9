# SPDX-License-Identifier: Apache-2.0
"""The index of a flat archive, and its links."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.image.flat_archive import FlatArchive, read


def write(path: Path) -> Path:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, data in (("usr/lib/a.so.1", b"\x7fELF more"), ("etc/passwd", b"root")):
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for name, target, kind in (
            ("lib", "usr/lib", tarfile.SYMTYPE),
            ("usr/lib/a.so", "a.so.1", tarfile.SYMTYPE),
            ("usr/lib/up", "../../etc", tarfile.SYMTYPE),
            ("abs", "/usr", tarfile.SYMTYPE),
            ("copy", "etc/passwd", tarfile.LNKTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            tar.addfile(info)
    return path


def test_links_are_followed_inside_the_archive(tmp_path: Path) -> None:
    archive = read(write(tmp_path / "a.tar"))
    assert archive.resolve("/lib/a.so") == "/usr/lib/a.so.1"
    assert archive.resolve("/lib/up/passwd") == "/etc/passwd"
    assert archive.resolve("/abs/lib/./a.so") == "/usr/lib/a.so.1"
    assert archive.resolve("/../../etc/passwd") == "/etc/passwd"


def test_first_bytes_are_read_through_links(tmp_path: Path) -> None:
    archive = read(write(tmp_path / "a.tar"))
    assert archive.head("/lib/a.so", 4) == b"\x7fELF"
    assert archive.head("/copy") == b"root"
    assert archive.head("/no/such") == archive.head("/lib") == b""
    assert archive.files == {"/usr/lib/a.so.1": 9, "/etc/passwd": 4, "/copy": 4}


def test_a_damaged_archive_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"no tar" * 500)
    with pytest.raises(UserInputError):
        read(tmp_path / "x")


@given(st.text("/.ab", max_size=12), st.dictionaries(st.text("/.ab", max_size=5), st.text("/.ab", max_size=5)))
def test_no_links_make_it_loop(path: str, links: dict[str, str]) -> None:
    assert FlatArchive(Path("x"), {}, links, {}).resolve(path).startswith("/")


def test_whole_files_parts_modes_and_capabilities(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        for name, mode, more in (
            ("bin/su", 0o4755, {}),
            ("bin/ping", 0o755, {"SCHILY.xattr.security.capability": "x"}),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.pax_headers = 10, mode, more
            tar.addfile(info, io.BytesIO(b"0123456789"))
        info = tarfile.TarInfo("bin/ping6")
        info.type, info.linkname = tarfile.LNKTYPE, "bin/ping"
        tar.addfile(info)
    archive = read(tmp_path / "a.tar")
    assert archive.content("/bin/su") == b"0123456789"
    assert archive.content("/bin/ping6", 3, 4) == b"3456"
    assert archive.content("/bin/su", 8, 100) == b"89" and archive.content("/bin/su", 20) == b""
    assert archive.content("/none") == b""
    assert archive.modes["/bin/su"] == 0o4755 and archive.modes["/bin/ping6"] == 0o755
    assert archive.capable == {"/bin/ping", "/bin/ping6"}
