# SPDX-License-Identifier: Apache-2.0
"""Root file systems by the real tools: everything is in them, they are reproducible, and nobody needs to be root."""

from __future__ import annotations

import hashlib
import io
import os
import random
import re
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from tests.fakes.tars import device, directory, entry, file, hardlink, layers_of, read_flat, symlink, tar_of

import vmtailor
from vmtailor.base.errors import BuildError, HostError, UserInputError
from vmtailor.base.process import run
from vmtailor.drivers.image.layers import merge
from vmtailor.drivers.rootfs.rootfs import Extra, ExtraKind, build, erofs_reads_tar, ext4_size, extra_layer, identity
from vmtailor.model.plan import ImageRoot, RootFormat

pytestmark = pytest.mark.contract

CAPABILITY = b"\x01\x00\x00\x02\x00\x04\x00\x00" + bytes(12)
BIG = bytes(range(256)) * 1000
EXTRA = [
    Extra(".vmtailor", ExtraKind.DIRECTORY, mode=0o711),
    Extra(".vmtailor/init", data=b"our own", mode=0o755),
    Extra(".vmtailor/rw", ExtraKind.DIRECTORY, mode=0o700),
]

#: The formats that are made for containers.
MADE = [RootFormat(one) for one in ImageRoot]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    headers = {"SCHILY.xattr.security.capability": CAPABILITY.decode("utf-8", "surrogateescape")}
    data = tar_of(
        directory("bin", mode=0o755),
        file("bin/ping", b"x" * 5000, mode=0o4755, uid=12, gid=34, pax_headers=headers),
        file("big", BIG, mode=0o640, uid=100_000),
        hardlink("bin/pong", "bin/ping", mode=0o4755, uid=12, gid=34),
        symlink("sh", "bin/ping"),
        device("dev/zero", 1, 5),
        (entry("fifo", tarfile.FIFOTYPE, mode=0o600), b""),
        directory("tmp", mode=0o1777),
        file("new\nline", b"odd"),
        directory(".vmtailor"),
        file(".vmtailor/init", b"the image's, to be hidden"),
        file(".vmtailor/more", b"hidden too"),
    )
    out = tmp_path / "flat.tar"
    merge(layers_of(tmp_path, [data]), out)
    return out


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("form", MADE)
def test_two_builds_give_the_same_bytes(archive: Path, tmp_path: Path, form: RootFormat) -> None:
    first = build(archive, tmp_path / "one" / "root", form, EXTRA)
    time.sleep(1.1)  # what takes a time stamp of its own would show it
    second = build(archive, tmp_path / "two" / "other-name", form, EXTRA)
    assert sha256(first) == sha256(second)
    assert first.stat().st_size > 0
    assert [path.name for path in (tmp_path / "one").iterdir()] == ["root"]


def test_erofs_holds_everything(archive: Path, tmp_path: Path) -> None:
    image = build(archive, tmp_path / "root", RootFormat.EROFS, EXTRA)
    run(["fsck.erofs", str(image)], timeout_s=60)

    def about(path: str) -> str:
        return run(["dump.erofs", f"--path={path}", str(image)], timeout_s=60).text

    ping = about("/bin/ping")
    assert (re.search(r"Links: 2\b", ping) and "Uid: 12   Gid: 34" in ping and "4755" in ping) or "0755" in ping
    look = (
        "import os, subprocess, sys; subprocess.run(sys.argv[2:], check=True); print(oct(os.stat(sys.argv[1]).st_mode))"
    )
    extract = ["fsck.erofs", f"--extract={tmp_path / 'x'}", "--preserve", str(image)]
    command = ["fakeroot", "--", "/usr/bin/python3", "-c", look, str(tmp_path / "x/bin/ping"), *extract]
    assert run(command, timeout_s=60).text.strip() == "0o104755"
    assert "Xattr size: 0" not in ping
    assert CAPABILITY in image.read_bytes()
    assert "2023-11-14 22:13:20" in ping
    assert about("/bin/pong").splitlines()[2:] == ping.splitlines()[2:]
    assert "char dev" in about("/dev/console") and "char dev" in about("/dev/zero")
    assert "FIFO" in about("/fifo") and "symlink" in about("/sh") and "Size: 256000" in about("/big")
    assert "Size: 7 " in about("/.vmtailor/init")
    assert about("/.vmtailor/more") == ""


def acl(*entries: tuple[int, ...]) -> str:
    """A list of (tag, rights), or of (tag, rights, how many users from 1000 on)."""
    packed = [
        struct.pack("<HHI", tag, rights, 1000 + n if many else 2**32 - 1)
        for tag, rights, *many in entries
        for n in range(many[0] if many else 1)
    ]
    return (struct.pack("<I", 2) + b"".join(packed)).decode("utf-8", "surrogateescape")


#: What mkfs.erofs 1.5 under fakeroot cannot be given: each alone makes our own writer take its place.
BEYOND = {
    "a name of 255 bytes": file("n" * 255, b"long"),
    "a name of 255 bytes that are no letters": file("d/" + "é" * 127 + "z", b"long"),
    "an attribute of 1,100 bytes": file("large", b"x", pax_headers={"SCHILY.xattr.user.large": "v" * 1100}),
    "an attribute of 60,000 bytes of a folder": directory("l", pax_headers={"SCHILY.xattr.user.large": "v" * 60_000}),
    "many attributes": file("many", pax_headers={f"SCHILY.xattr.user.{'n' * 90}{n}": "v" * 200 for n in range(20)}),
    "an access control list of 144 entries": file("list", b"x", pax_headers={
        "SCHILY.xattr.system.posix_acl_access": acl((1, 7), (2, 7, 140), (4, 5), (0x10, 7), (0x20, 5))}),
    "folders 302 deep": file("d/" * 302 + "f", b"deep"),
}  # fmt: skip
SIZES = [0, 1, 3000, 4031, 4032, 4033, 4095, 4096, 4097, 8000, 8191, 8192, 8193, 12_288 + 4032, 1 << 20, (1 << 20) + 5]


def beyond(folder: Path, *more: tuple[tarfile.TarInfo, bytes]) -> Path:
    """An archive with all sizes, kinds and numbers, and what mkfs.erofs is not given."""
    headers = {"SCHILY.xattr.security.capability": CAPABILITY.decode("utf-8", "surrogateescape"),
               "SCHILY.xattr.user.a": "b", "mtime": "1700000000.25"}  # fmt: skip
    data = tar_of(
        *(file(f"sizes/{size}", random.Random(size).randbytes(size), mode=0o640, uid=size) for size in SIZES),
        *(file(f"names/{'x' * (n % 200)}{n}!", str(n).encode()) for n in range(400)),
        file("bin/ping", b"x" * 5000, mode=0o4755, uid=12, gid=34, pax_headers=headers),
        symlink("sh", "bin/ping"), symlink("far", "/" + "far/" * 1000), device("dev/zero", 1, 5),
        device("dev/odd", 4095, 0xFFFFF), (entry("fifo", tarfile.FIFOTYPE, mode=0o600), b""),
        directory("tmp", mode=0o1777, uid=4_000_000_000), directory("empty/folder"), *more,
        hardlink("bin/pong", "bin/ping", mode=0o4755, uid=12, gid=34, pax_headers=headers),
    )  # fmt: skip
    merge(layers_of(folder, [data]), folder / "beyond.tar")
    return folder / "beyond.tar"


@pytest.mark.parametrize("what", BEYOND)
def test_what_mkfs_cannot_be_given_is_written_all_the_same(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmtailor.drivers.rootfs.rootfs.erofs_reads_tar", lambda _: False)
    monkeypatch.setattr("vmtailor.drivers.rootfs.rootfs._feed", None)  # mkfs.erofs is not started
    flat = beyond(tmp_path, BEYOND[what])
    image = build(flat, tmp_path / "root", RootFormat.EROFS, EXTRA)
    assert sha256(image) == sha256(build(flat, tmp_path / "again", RootFormat.EROFS, EXTRA))
    run(["fsck.erofs", str(image)], timeout_s=60)
    wanted, out = tree_of(flat), tmp_path / "out"
    # Its own owner's rights would not let it into folders again.
    run(["fsck.erofs", f"--extract={out}", "--no-preserve", str(image)], timeout_s=60)
    for name, (info, data) in wanted.items():
        path = out / name
        if info.issym():
            assert os.readlink(path) == info.linkname  # noqa: PTH115  # as it is written
        elif info.isreg():
            assert path.read_bytes() == data, name
    about = run(["dump.erofs", "--path=/bin/pong", str(image)], timeout_s=60).text
    assert re.search(r"Links: 2\b", about) and "Uid: 12   Gid: 34" in about and "2023-11-14 22:13:20.250000000" in about


def tree_of(flat: Path) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    return {name: found for name, found in read_flat(flat).items() if not name.startswith(".vmtailor")}


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root; the other tests look with the tools' own eyes")
def test_a_kernel_reads_back_what_our_writer_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmtailor.drivers.rootfs.rootfs.erofs_reads_tar", lambda _: False)
    flat = beyond(tmp_path, *BEYOND.values())
    image = build(flat, tmp_path / "root", RootFormat.EROFS, EXTRA)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    if run(["mount", "-o", "loop,ro", str(image), str(mounted)], timeout_s=30, ok=range(256)).returncode != 0:
        pytest.skip("this kernel does not mount erofs")
    try:
        wanted = tree_of(flat)
        for name, (said, data) in wanted.items():
            path = mounted / name
            status = path.lstat()
            info = wanted[said.linkname][0] if said.islnk() else said
            assert not said.islnk() or status.st_ino == (mounted / said.linkname).lstat().st_ino
            assert stat.S_IMODE(status.st_mode) == info.mode and (status.st_uid, status.st_gid) == (info.uid, info.gid)
            assert status.st_mtime == float(info.pax_headers.get("mtime", info.mtime)), name
            if info.isreg() and data:
                assert path.read_bytes() == data
            elif info.issym():
                assert os.readlink(path) == info.linkname  # noqa: PTH115
            elif info.ischr() and name != "dev/console":
                assert (os.major(status.st_rdev), os.minor(status.st_rdev)) == (info.devmajor, info.devminor)
            elif info.isdir():
                inside = {Path(other).name for other in wanted if other != "." and str(Path(other).parent) == name}
                assert {one.name for one in path.iterdir()} - {".vmtailor", "console"} == inside - {"console"}
                links = 2 + sum(one.is_dir() and not one.is_symlink() for one in path.iterdir())
                assert status.st_nlink == links
            keys = {
                key.removeprefix("SCHILY.xattr."): value for key, value in info.pax_headers.items() if "xattr" in key
            }
            for key, value in keys.items():
                found = os.getxattr(path, key, follow_symlinks=False)
                assert found == value.encode("utf-8", "surrogateescape"), (name, key)
    finally:
        run(["umount", str(mounted)], timeout_s=30)


@pytest.mark.parametrize(
    ("form", "what"),
    [(RootFormat.EXT4, "an attribute of 1,100 bytes"), (RootFormat.EXT4, "an access control list of 144 entries"),
     (RootFormat.EXT4, "folders 302 deep"), (RootFormat.EXT4, "many attributes"),
     (RootFormat.SQUASHFS, "an access control list of 144 entries")],
)  # fmt: skip
def test_what_a_format_cannot_hold_is_named_with_the_cure(tmp_path: Path, form: RootFormat, what: str) -> None:
    merge(layers_of(tmp_path, [tar_of(BEYOND[what])]), tmp_path / "flat")
    with pytest.raises(UserInputError) as caught:
        build(tmp_path / "flat", tmp_path / "root", form)
    assert f"/{BEYOND[what][0].name[:20]}" in caught.value.message and "--root erofs" in caught.value.hint
    assert not (tmp_path / "root").exists()


def test_files_of_more_names_than_a_host_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmtailor.drivers.rootfs.rootfs.erofs_reads_tar", lambda _: False)
    monkeypatch.setattr("vmtailor.drivers.rootfs.rootfs.LINKS", 3)
    data = tar_of(file("0", b"x"), *(hardlink(f"d/{n}", "0") for n in range(1, 5)))
    merge(layers_of(tmp_path, [data]), tmp_path / "flat")
    with pytest.raises(UserInputError, match="has more than 3 names"):
        build(tmp_path / "flat", tmp_path / "ext4", RootFormat.EXT4)
    monkeypatch.setattr("vmtailor.drivers.rootfs.rootfs._feed", None)  # mkfs.erofs is not started
    image = build(tmp_path / "flat", tmp_path / "erofs")
    assert re.search(r"Links: 5\b", run(["dump.erofs", "--path=/d/4", str(image)], timeout_s=60).text)


def test_an_attribute_that_no_root_holds_is_named(tmp_path: Path) -> None:
    large = file("f", b"x", pax_headers={"SCHILY.xattr.user.most": "v" * 65_536})
    merge(layers_of(tmp_path, [tar_of(directory("d"), large)]), tmp_path / "flat")
    with pytest.raises(UserInputError, match=r"/f has 65536 bytes in the attribute user\.most"):
        build(tmp_path / "flat", tmp_path / "root")


@pytest.mark.parametrize("form", [RootFormat.SQUASHFS, RootFormat.EXT4])
def test_names_of_255_bytes_in_other_formats(tmp_path: Path, form: RootFormat) -> None:
    merge(layers_of(tmp_path, [tar_of(BEYOND["a name of 255 bytes"])]), tmp_path / "flat")
    image = build(tmp_path / "flat", tmp_path / "root", form)
    if form is RootFormat.SQUASHFS:
        assert "n" * 255 in run(["rdsquashfs", "--describe", str(image)], timeout_s=60).text
    else:
        assert "n" * 255 in run(["debugfs", "-R", "ls -p /", str(image)], timeout_s=60).text


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root; the other tests look with the tools' own eyes")
@pytest.mark.parametrize("form", MADE)
def test_a_kernel_reads_back_what_was_put_in(archive: Path, tmp_path: Path, form: RootFormat) -> None:
    image = build(archive, tmp_path / "root", form, EXTRA)
    mounted = tmp_path / "mounted"
    mounted.mkdir()
    if run(["mount", "-o", "loop,ro", str(image), str(mounted)], timeout_s=30, ok=range(256)).returncode != 0:
        pytest.skip(f"this kernel does not mount {form}")
    try:
        ping, pong = (mounted / "bin" / name for name in ("ping", "pong"))
        status = ping.stat()
        assert (status.st_mode, status.st_uid, status.st_gid, status.st_nlink) == (0o104755, 12, 34, 2)
        assert status.st_mtime == 1_700_000_000 and status.st_ino == pong.stat().st_ino
        assert os.getxattr(pong, "security.capability") == CAPABILITY
        assert os.major((mounted / "dev/console").stat().st_rdev) == 5
        assert (mounted / "big").read_bytes() == BIG and (mounted / "big").stat().st_uid == 100_000
        assert (mounted / "tmp").stat().st_mode == 0o041777
        assert (mounted / "sh").readlink() == Path("bin/ping")
        names = {path.name for path in mounted.iterdir()} - {"lost+found"}
        assert names == {".vmtailor", "big", "bin", "dev", "fifo", "new\nline", "sh", "tmp"}
        assert {path.name for path in (mounted / ".vmtailor").iterdir()} == {"init", "rw"}
    finally:
        run(["umount", str(mounted)], timeout_s=30)


def test_erofs_compressed_is_smaller(archive: Path, tmp_path: Path) -> None:
    plain = build(archive, tmp_path / "plain")
    packed = build(archive, tmp_path / "packed", compression="lz4hc")
    assert packed.stat().st_size < plain.stat().st_size
    run(["fsck.erofs", str(packed)], timeout_s=60)
    with pytest.raises(BuildError, match=r"mkfs\.erofs") as caught:
        build(archive, tmp_path / "none", compression="nonsense")
    assert "nonsense" in caught.value.details
    assert not (tmp_path / "none").exists()


def test_squashfs_holds_everything(archive: Path, tmp_path: Path) -> None:
    image = build(archive, tmp_path / "root", RootFormat.SQUASHFS, EXTRA)
    listed = run(["rdsquashfs", "--describe", str(image)], timeout_s=60).text
    assert re.search(r"file /?bin/ping 04755 12 34", listed)
    assert re.search(r"nod /?dev/console 0600 0 0 c 5 1", listed)
    assert run(["rdsquashfs", "--cat", "bin/pong", str(image)], timeout_s=60).stdout == b"x" * 5000
    assert run(["rdsquashfs", "--cat", "big", str(image)], timeout_s=60).stdout == BIG
    assert run(["rdsquashfs", "--cat", ".vmtailor/init", str(image)], timeout_s=60).stdout == b"our own"
    attributes = run(["rdsquashfs", "--xattr", "bin/ping", str(image)], timeout_s=60).text
    assert "security.capability" in attributes


def test_ext4_holds_everything(archive: Path, tmp_path: Path) -> None:
    image = build(archive, tmp_path / "root", RootFormat.EXT4, EXTRA)
    run(["e2fsck", "-fn", str(image)], timeout_s=60)

    def debugfs(command: str) -> str:
        return run(["debugfs", "-R", command, str(image)], timeout_s=60).text

    stat = debugfs("stat /bin/ping")
    assert "Mode:  04755" in stat and re.search(r"User:\s+12\s+Group:\s+34", stat) and "Links: 2" in stat
    assert "mtime: 0x6553f100" in stat and "ctime: 0x6553f100" in stat
    assert "security.capability" in debugfs("ea_list /bin/ping")
    assert "05:01" in debugfs("stat /dev/console")
    assert debugfs("cat /.vmtailor/init") == "our own"
    with pytest.raises(BuildError, match="compressed"):
        build(archive, tmp_path / "no", RootFormat.EXT4, compression="lz4")


def test_ext4_of_our_own_entries_has_no_time_of_the_clock(tmp_path: Path) -> None:
    made = build(None, tmp_path / "ext4", RootFormat.EXT4, [Extra("argv", data=b"x")]).read_bytes()
    # When it was written, checked and made, in its superblock.
    assert [int.from_bytes(made[1024 + at :][:4], "little") for at in (0x30, 0x40, 0x108)] == [1, 1, 1]


def test_ext4_has_room_for_many_files_and_for_large_ones(tmp_path: Path) -> None:
    many = [file(f"d{n % 7}/{'n' * 200}{n}", b"x" * (n % 3)) for n in range(3000)]
    merge(layers_of(tmp_path, [tar_of(*many, file("large", bytes(30 << 20)))]), tmp_path / "flat")
    image = build(tmp_path / "flat", tmp_path / "root", RootFormat.EXT4)
    run(["e2fsck", "-fn", str(image)], timeout_s=60)
    assert image.stat().st_size < 2 * ((30 << 20) + 3000 * 4096)


def test_an_image_whose_dev_is_a_link_cannot_move_the_console(tmp_path: Path) -> None:
    merge(layers_of(tmp_path, [tar_of(symlink("dev", "/etc"), file("etc/passwd", b"x"))]), tmp_path / "flat")
    image = build(tmp_path / "flat", tmp_path / "root", RootFormat.SQUASHFS)
    listed = run(["rdsquashfs", "--describe", str(image)], timeout_s=60).text
    # The link stays as the image has it; the node lies where the link leads, which is where the kernel looks.
    assert re.search(r"nod /?etc/console", listed)


def test_our_layer_hides_the_image_s_files() -> None:
    with tarfile.open(fileobj=io.BytesIO(extra_layer(EXTRA))) as archive:
        names = archive.getnames()
    assert names[0] == ".wh..vmtailor"
    assert names[1:] == [item.path for item in EXTRA]


@pytest.mark.skipif(os.geteuid() != 0, reason="every other test here already runs without root")
@pytest.mark.parametrize("form", MADE)
def test_nobody_gets_the_same_bytes_as_root(archive: Path, tmp_path: Path, form: RootFormat) -> None:
    ours = build(archive, tmp_path / "root", form)
    # A copy of the source, and root's rights end when all is imported: the checkout and its packages may lie in a home
    # that nobody else can enter.
    script = (
        "import os, sys; from pathlib import Path; from vmtailor.drivers.rootfs.rootfs import build;"
        "from vmtailor.model.plan import ImageRoot, RootFormat;"
        "os.setgroups([]); os.setresgid(*3 * [65534]); os.setresuid(*3 * [65534]);"
        "build(Path(sys.argv[1]), Path(sys.argv[2]), RootFormat(sys.argv[3]))"
    )
    place = Path("/tmp") / f"vmtailor-test-{os.getpid()}-{form}"
    place.mkdir(mode=0o755)
    try:
        source = place / "src"
        shutil.copytree(Path(vmtailor.__file__).parent, source / "vmtailor", ignore=shutil.ignore_patterns("_native"))
        copied = place / "flat.tar"
        copied.write_bytes(archive.read_bytes())
        for path in (place, copied):
            os.chown(path, 65534, 65534)
        packages = Path(pytest.__file__).parents[1]
        # The system's own interpreter: that of the virtual environment may lie in such a home, too.
        run(
            ["/usr/bin/python3", "-c", script, str(copied), str(place / "out"), form.value],
            timeout_s=120, env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{source}:{packages}", "HOME": str(place)},
        )  # fmt: skip
        assert sha256(place / "out") == sha256(ours)
    finally:
        run(["rm", "-rf", str(place)], timeout_s=30)


def test_a_full_disk_is_a_host_error(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    archive = tmp_path / "flat"
    merge(layers_of(tmp_path, [tar_of(file("noise", random.Random(1).randbytes(1 << 20)))]), archive)
    small = tmp_path / "small"
    small.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(small)], timeout_s=30)
    try:
        for form in MADE:
            with pytest.raises(HostError, match="no space"):
                build(archive, small / "root", form)
            assert list(small.iterdir()) == []
    finally:
        run(["umount", str(small)], timeout_s=30)


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    big = [file(f"d{n}/f", b"x" * 3000) for n in range(4000)]
    merge(layers_of(tmp_path, [tar_of(*big)]), tmp_path / "flat")
    script = (
        "import sys; from pathlib import Path; from vmtailor.drivers.rootfs.rootfs import build;"
        "print('started', flush=True); build(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    out = tmp_path / "out"
    before = _queues()
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "flat"), str(out / "root")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == b"started\n"
    deadline = time.monotonic() + 30
    while not [*out.glob(".root-*/root/d*"), *out.glob(".root-*/image")] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors
    assert list(out.iterdir()) == []
    deadline = time.monotonic() + 10
    while (left := [*_running(str(tmp_path)), *(_queues() - before)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def _running(word: str) -> list[str]:
    """The command lines that hold a word."""
    return [line for line in run(["ps", "-eo", "args"], timeout_s=30).text.splitlines() if word in line]


def _queues() -> set[str]:
    """The message queues of this host, by which fakeroot talks."""
    return set(run(["ipcs", "-q"], timeout_s=30).text.splitlines())


@pytest.mark.parametrize("form", MADE)
def test_the_tool_s_version_is_known(form: RootFormat) -> None:
    assert re.search(r"\d+\.\d+", identity(form).split(" ", 1)[1])


def test_which_mkfs_reads_tar(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("#!/bin/sh\necho ' -zX  compressor' >&2\nexit 0\n")
    new.write_text("#!/bin/sh\necho ' --tar=X  generate from a tarball' >&2\nexit 1\n")
    for tool in (old, new):
        tool.chmod(0o755)
    assert not erofs_reads_tar(str(old))
    assert erofs_reads_tar(str(new))


def test_the_size_of_ext4_grows_with_the_tree(archive: Path, tmp_path: Path) -> None:
    from vmtailor.drivers.image.layers import Layer, read_tree

    tree = read_tree([Layer(archive, "flat")])
    inodes, blocks = ext4_size(tree)
    assert inodes >= 14 and blocks * 4096 > len(BIG)
    more, larger = ext4_size(tree, 64 << 20)
    assert more >= inodes + 4096 and (larger - blocks) * 4096 >= 64 << 20
