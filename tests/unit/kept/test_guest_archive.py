# SPDX-License-Identifier: Apache-2.0
"""Archives out of a guest: what they may write, and what they may not."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.fakes.tars import device, directory, entry, file, hardlink, symlink, tar_of

from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.drivers.host.guest_archive import ArchiveFromGuest, HostileArchive, Unpacked, packed, stays_inside


def cut(data: bytes, size: int = 700) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def unpack(data: bytes, folder: Path, name: str = "copy", **limits: int) -> Unpacked:
    folder.mkdir(exist_ok=True)
    return ArchiveFromGuest(cut(data), **limits).unpack(folder, name)


def tree(folder: Path) -> dict[str, str]:
    """Every name below a folder, with its kind or its content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            found[str(path.relative_to(folder))] = f"-> {path.readlink()}"
        else:
            found[str(path.relative_to(folder))] = "/" if stat.S_ISDIR(mode) else path.read_text()
    return found


def test_a_folder_comes_out_as_it_was(tmp_path: Path) -> None:
    data = tar_of(
        directory("etc", mode=0o750), file("etc/a", b"1", mode=0o640), directory("etc/d"), file("etc/d/b", b"22"),
        symlink("etc/d/up", "../a"), symlink("etc/beside", "a"), hardlink("etc/again", "etc/a"),
    )  # fmt: skip
    done = unpack(data, tmp_path / "out")
    assert tree(tmp_path / "out" / "copy") == {
        "a": "1", "again": "1", "beside": "-> a", "d": "/", "d/b": "22", "d/up": "-> ../a"
    }  # fmt: skip
    assert (done.members, done.content_bytes, dict(done.left_out)) == (7, 3, {})
    copy = tmp_path / "out" / "copy"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o750 and stat.S_IMODE((copy / "a").stat().st_mode) == 0o640
    assert (copy / "a").stat().st_mtime == 1_700_000_000 == copy.stat().st_mtime
    assert (copy / "a").stat().st_nlink == 2


def test_what_is_in_a_folder_goes_into_one_that_is_there(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o711)
    (out / "a").write_text("old")
    (out / "kept").write_text("kept")
    for top in ("etc", ".", "./etc/"):
        unpack(tar_of(directory(top, mode=0o700), file(f"{top}/a", b"new")), out, "")
        assert tree(out) == {"a": "new", "kept": "kept"} and stat.S_IMODE(out.stat().st_mode) == 0o711


def test_one_file_and_one_link(tmp_path: Path) -> None:
    assert unpack(tar_of(file("passwd", b"x")), tmp_path / "out", "users").members == 1
    assert ArchiveFromGuest(cut(tar_of(symlink("l", "/etc/x")))).link_target == "/etc/x"
    unpack(tar_of(symlink("l", "users")), tmp_path / "out", "l")
    assert tree(tmp_path / "out") == {"users": "x", "l": "-> users"}


def test_a_sparse_file_comes_out_whole(tmp_path: Path) -> None:
    whole, archive = tmp_path / "s", tmp_path / "s.tar"
    with whole.open("wb") as sparse:
        sparse.seek(3 << 20)
        sparse.write(b"data")
        sparse.truncate(5 << 20)
    subprocess.run(["tar", "-C", str(tmp_path), "--sparse", "-cf", str(archive), "s"], check=True)
    unpack(archive.read_bytes(), tmp_path / "out", "s")
    assert (tmp_path / "out" / "s").read_bytes() == whole.read_bytes()


@pytest.mark.attack
@pytest.mark.parametrize(
    "data",
    [
        tar_of(directory("etc"), file("../evil", b"x")),
        tar_of(directory("etc"), file("etc/../../evil", b"x")),
        tar_of(directory("etc"), file("/evil", b"x")),
        tar_of(directory("etc"), file("other/evil", b"x")),
        tar_of(file("../evil", b"x")),
        tar_of(file("a/b", b"x")),
        tar_of(file("f", b"x"), file("evil", b"x")),
        tar_of(file("f", b"x"), file("f/evil", b"x")),
        tar_of(directory("etc"), directory("etc")),
        tar_of(directory("etc"), hardlink("etc/evil", "/secret")),
        tar_of(directory("etc"), hardlink("etc/evil", "../secret")),
        tar_of(directory("etc"), hardlink("etc/evil", "etc")),
        tar_of(directory("etc"), hardlink("etc/evil", "secret")),
        tar_of(directory("etc"), file("etc/" + "x" * 256)),
        tar_of(directory("etc"), file("etc/" + "d/" * 2100 + "x")),
        tar_of(directory("etc"), (entry("etc/evil", b"Z"), b"")),
        tar_of(directory("etc"), (entry("etc/f", size=5), b""))[:1024],
        tar_of(directory("etc"), file("etc/f", b"x" * 2000))[:2000],
        b"",
        b"x" * 5000,
        bytes(5000),
    ],
)  # fmt: skip
def test_nothing_is_written_outside(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(VmtailorError):
        unpack(data, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) in ([*before], sorted([*before, tmp_path / "out"]))
    assert (
        not any("secret" in text for text in tree(tmp_path / "out").values()) if (tmp_path / "out").exists() else True
    )


@pytest.mark.attack
@pytest.mark.parametrize(
    "target", ["/etc", "..", "../..", "../../x", "d/../../..", "./../../x", "a/..", "", "/", "//x", "x/../y"]
)
def test_links_that_lead_out_are_left_out(target: str, tmp_path: Path) -> None:
    info, _ = symlink("etc/l", target)
    done = unpack(tar_of(directory("etc"), (info, b""), file("etc/a", b"1")), tmp_path / "out")
    assert tree(tmp_path / "out") == {"copy": "/", "copy/a": "1"}
    assert dict(done.left_out) == {"link that leads out of the copy": 1}


@pytest.mark.attack
def test_a_way_through_links_is_none(tmp_path: Path) -> None:
    """`d/y` leads up within the copy, and `x` through it: each alone stays inside."""
    out, outside = tmp_path / "out", tmp_path / "outside"
    outside.mkdir()
    data = tar_of(directory("t"), directory("t/d"), symlink("t/d/y", ".."), symlink("t/x", "d/y"), file("t/x/f", b"1"))
    with pytest.raises(UserInputError, match="is in the way: it is not a folder"):
        unpack(data, out)
    # A link that is there already, of the user's own, is no way either.
    (out / "copy" / "link").symlink_to(outside)
    with pytest.raises(UserInputError, match="is in the way"):
        unpack(tar_of(directory("t"), file("t/link/f", b"1")), out)
    with pytest.raises(UserInputError, match="is in the way"):
        unpack(tar_of(directory("t"), directory("t/link")), out)
    # What replaces it is written in its place.
    (outside / "f").write_text("kept")
    (out / "copy" / "file").symlink_to(outside / "f")
    unpack(tar_of(directory("t"), file("t/file", b"new")), out)
    assert list(outside.iterdir()) == [outside / "f"] and (outside / "f").read_text() == "kept"
    assert (out / "copy" / "file").read_text() == "new" and not (out / "copy" / "file").is_symlink()


@pytest.mark.attack
def test_devices_pipes_and_set_user_id_bits_are_left_out(tmp_path: Path) -> None:
    data = tar_of(
        directory("t", mode=0o7777), device("t/null", 1, 3), (entry("t/pipe", tarfile.FIFOTYPE), b""),
        file("t/su", b"x", mode=0o6755), hardlink("t/dev2", "t/null"), file("t/sticky", b"", mode=0o1777),
    )  # fmt: skip
    done = unpack(data, tmp_path / "out")
    copy = tmp_path / "out" / "copy"
    assert sorted(path.name for path in copy.iterdir()) == ["sticky", "su"]
    assert stat.S_IMODE((copy / "su").stat().st_mode) == 0o755 and stat.S_IMODE(copy.stat().st_mode) == 0o777
    assert dict(done.left_out) == {
        "device": 1, "named pipe": 1, "set-user-ID or set-group-ID bit": 1,
        "second name of a file that was left out": 1,
    }  # fmt: skip
    assert all(path.stat().st_uid == os.geteuid() for path in copy.iterdir())


@pytest.mark.attack
def test_an_archive_is_bounded(tmp_path: Path) -> None:
    many = tar_of(directory("t"), *(file(f"t/{n}") for n in range(50)))
    with pytest.raises(HostileArchive, match="more than 20 members"):
        unpack(many, tmp_path / "many", most_members=20)
    with pytest.raises(HostileArchive, match="unpacks to more than"):
        unpack(tar_of(directory("t"), file("t/f", b"x" * 100_000)), tmp_path / "large", most_bytes=50_000)
    hole = tarfile.TarInfo("t")
    hole.size = 1 << 50
    with pytest.raises(HostileArchive, match="unpacks to more than 64G"):
        unpack(hole.tobuf() + bytes(512), tmp_path / "hole")
    long_name = tarfile.TarInfo("x" * 6_000_000)
    with pytest.raises(HostileArchive):
        unpack(long_name.tobuf(tarfile.PAX_FORMAT), tmp_path / "name")


@pytest.mark.attack
def test_what_is_in_the_way_is_not_replaced(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "copy" / "d").mkdir(parents=True)
    (out / "copy" / "f").write_text("x")
    os.mkfifo(out / "copy" / "pipe")
    for data in (
        tar_of(directory("t"), file("t/d", b"x")),
        tar_of(directory("t"), directory("t/f")),
        tar_of(directory("t"), file("t/pipe", b"x")),
        tar_of(directory("t"), symlink("t/d", "f")),
    ):
        with pytest.raises(UserInputError, match="is in the way"):
            unpack(data, out)


@pytest.mark.attack
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_archive_stays_inside(tmp_path: Path, data: st.DataObject) -> None:
    names = st.sampled_from(
        ["t", "t/a", "t/a/b", "t/b", "t/a/../c", "../x", "/t/a", "t/./b", "t/l", "t/l/x", "t/a/l/y"]
    )
    targets = st.sampled_from(["a", "..", "../..", "/", "a/..", "b", "l", ".", "../../..", "../a", "t/a"])
    made = st.one_of(
        st.builds(directory, names), st.builds(file, names, st.binary(max_size=3)), st.builds(symlink, names, targets),
        st.builds(hardlink, names, names), st.builds(device, names, st.just(1), st.just(3)),
    )  # fmt: skip
    members = data.draw(st.lists(made, max_size=8))
    box = tmp_path / os.urandom(8).hex()
    (box / "in").mkdir(parents=True)
    (box / "beside").write_text("beside")
    with contextlib.suppress(VmtailorError):
        unpack(tar_of(directory("t"), *members), box / "in", data.draw(st.sampled_from(["", "copy"])))
    assert {path.name for path in box.iterdir()} == {"in", "beside"} and (box / "beside").read_text() == "beside"
    for path in (box / "in").rglob("*"):
        mode = path.lstat().st_mode
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
        assert Path(os.path.realpath(path)).is_relative_to(box / "in")


def test_links_by_their_depth() -> None:
    assert stays_inside("a", 0) and stays_inside("../a", 1) and stays_inside("./.././../a/b", 2)
    assert not stays_inside("..", 0) and not stays_inside("../../a", 1) and not stays_inside("/a", 5)


# ---- the other way


def test_what_goes_into_a_guest_is_what_is_there(tmp_path: Path) -> None:
    source = tmp_path / "s"
    (source / "d").mkdir(parents=True)
    (source / "a").write_bytes(b"x" * 700)
    (source / "a").chmod(0o4711)
    os.link(source / "a", source / "d" / "again")
    (source / "link").symlink_to("/etc/passwd")
    (source / "ü\udcff").write_text("1")
    os.mkfifo(source / "pipe")

    def members(name: str, **wishes: bool) -> dict[str, tarfile.TarInfo]:
        data = b"".join(packed(source, name, **wishes))
        assert len(data) % 512 == 0
        with tarfile.open(fileobj=io.BytesIO(data), errors="surrogateescape") as archive:
            return {info.name: info for info in archive}

    found = members("new")
    assert set(found) == {"new", "new/a", "new/d", "new/d/again", "new/link", "new/ü\udcff", "new/pipe"}
    assert found["new/link"].linkname == "/etc/passwd" and found["new/pipe"].isfifo()
    again = {found["new/a"].type, found["new/d/again"].type}
    assert again == {tarfile.REGTYPE, tarfile.LNKTYPE} and found["new/a"].mode == 0o4711
    assert {(info.uid, info.gid) for info in found.values()} == {(0, 0)}
    assert set(members("")) == {"a", "d", "d/again", "link", "ü\udcff", "pipe"}
    os.chown(source / "d", 7, 8) if os.geteuid() == 0 else None
    owner = (source / "d").stat()
    assert (members("new", owners=True)["new/d"].uid, owner.st_gid) == (owner.st_uid, owner.st_gid)


def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"x" * 1000)
    pieces = packed(tmp_path / "f", "f")
    head = next(pieces)
    (tmp_path / "f").write_bytes(b"y")
    with tarfile.open(fileobj=io.BytesIO(head + b"".join(pieces))) as archive:
        source = archive.extractfile("f")
        assert source is not None and source.read() == b"y" + bytes(999)
