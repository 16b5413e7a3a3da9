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
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from tests.fakes.tars import device, directory, entry, file, hardlink, layers_of, symlink, tar_of

import vmtailor
from vmtailor.base.errors import BuildError, HostError
from vmtailor.base.process import run
from vmtailor.drivers.image.layers import merge
from vmtailor.drivers.rootfs.rootfs import Extra, ExtraKind, build, erofs_reads_tar, ext4_size, extra_layer, identity
from vmtailor.model.plan import RootFormat

pytestmark = pytest.mark.contract

CAPABILITY = b"\x01\x00\x00\x02\x00\x04\x00\x00" + bytes(12)
BIG = bytes(range(256)) * 1000
EXTRA = [
    Extra(".vmtailor", ExtraKind.DIRECTORY, mode=0o711),
    Extra(".vmtailor/init", data=b"our own", mode=0o755),
    Extra(".vmtailor/rw", ExtraKind.DIRECTORY, mode=0o700),
]


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    headers = {"SCHILY.xattr.security.capability": CAPABILITY.decode("utf-8", "surrogateescape")}
    data = tar_of(
        directory("bin", mode=0o755),
        file("bin/ping", b"x" * 5000, mode=0o4755, uid=12, gid=34, pax_headers=headers),
        file("big", BIG, mode=0o640, uid=100_000),
        hardlink("bin/pong", "bin/ping"),
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


@pytest.mark.parametrize("form", list(RootFormat))
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


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root; the other tests look with the tools' own eyes")
@pytest.mark.parametrize("form", list(RootFormat))
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
@pytest.mark.parametrize("form", list(RootFormat))
def test_nobody_gets_the_same_bytes_as_root(archive: Path, tmp_path: Path, form: RootFormat) -> None:
    ours = build(archive, tmp_path / "root", form)
    # A copy of the source, and root's rights end when all is imported: the checkout and its packages may lie in a home
    # that nobody else can enter.
    script = (
        "import os, sys; from pathlib import Path; from vmtailor.drivers.rootfs.rootfs import build;"
        "from vmtailor.model.plan import RootFormat;"
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
        for form in RootFormat:
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


@pytest.mark.parametrize("form", list(RootFormat))
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
