# SPDX-License-Identifier: Apache-2.0
"""A full disk, a power cut and a damaged disk image never give an answer that looks right: real tools, small disks."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import systems
from tests.fakes.systems import ext4, tool, tree

from vmtailor.base.cache.store import Store, writing
from vmtailor.base.disk_full import DiskFull
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import durable
from vmtailor.base.process import ProgramResult
from vmtailor.drivers.disks import disk_image
from vmtailor.drivers.disks.sandbox import run_shut_in
from vmtailor.drivers.image import allowance
from vmtailor.drivers.kernel.kconfig_shell import KconfigShell
from vmtailor.model.systems.system import System
from vmtailor.pipeline.systems import subjects
from vmtailor.stages.boot import own_kernel

pytestmark = pytest.mark.contract

KIB, MIB = 1 << 10, 1 << 20
UNITS, WANTS = 600, "etc/systemd/system/multi-user.target.wants"
RAM_DISKS = [f"initrd-{letter}" for letter in "abcdefghijklmnop"]


@contextlib.contextmanager
def mounted(folder: Path, *words: str) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    folder.mkdir()
    tool("mount", *words, folder)
    try:
        yield folder
    finally:  # this very process may still say there that it uses the cache
        tool("umount", "--lazy", folder)


@pytest.fixture
def small(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A small disk for temporary files."""
    with mounted(place / "small", "-t", "tmpfs", "-o", "size=4m", "tmpfs") as folder:
        monkeypatch.setenv("TMPDIR", str(folder))
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        yield folder


def leave(folder: Path, size: int) -> None:
    """Fill a disk up to so many bytes."""
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while (free := shutil.disk_usage(folder).free - size) > 0:
            file.write(bytes(min(free, 64 * KIB)))


@pytest.fixture
def many(place: Path) -> Path:
    """A disk with so many units that their list is longer than what a small disk takes, and an initial RAM disk in
    parts that lie among many other files."""
    root = tree(place / "tree")
    for number in range(UNITS):
        systems.put(root, f"{WANTS}/made-{number}-{'y' * 60}.service", "-> /dev/null/none")
        systems.put(root, f"boot/filler-{number}-{'y' * 80}")
    for name in RAM_DISKS:
        systems.put(root, f"boot/{name}", f"{name}\n"[-7:])
    menu = systems.GRUB_CFG.replace(
        f"initrd /boot/initrd.img-{systems.RELEASE}", "initrd " + " ".join(f"/boot/{name}" for name in RAM_DISKS)
    )
    systems.put(root, "boot/grub/grub.cfg", menu)
    return ext4(place / "many.raw", root)


def read(path: Path) -> System:
    with subjects.opened(f"disk:{path}", Store(), partition=None) as found:
        return found.subject


@pytest.mark.parametrize("left", [24 * KIB, 4 * KIB, 0])
def test_a_full_disk_cuts_no_list_short(many: Path, small: Path, left: int) -> None:
    leave(small, left)
    assert sum(unit.name.startswith("made-") for unit in read(many).units) == UNITS


def test_every_part_of_an_initial_ram_disk_is_taken_out_or_none(many: Path, small: Path, place: Path) -> None:
    leave(small, 24 * KIB)
    with subjects.opened(f"disk:{many}", Store(), partition=None) as found:
        own = own_kernel.taken_out(found.subject, found.root, Path("/nowhere"), place / "own")
    parts = own.initrd.read_bytes()
    assert [parts[at : at + 7].decode() for at in range(0, len(parts), 8)] == [f"{name}\n"[-7:] for name in RAM_DISKS]


@pytest.mark.parametrize("left", [100 * KIB, 24 * KIB, 4 * KIB])
def test_an_honest_image_is_not_called_damaged_for_want_of_space(many: Path, small: Path, left: int) -> None:
    packed = many.with_suffix(".qcow2")
    tool("qemu-img", "convert", "-c", "-O", "qcow2", many, packed)
    leave(small, left)
    with pytest.raises(DiskFull, match=rf"no space is left to unpack {re.escape(str(packed))}") as caught:
        read(packed)
    assert "TMPDIR" in caught.value.hint
    (small / "filler").unlink()
    assert sum(unit.name.startswith("made-") for unit in read(packed).units) == UNITS
    assert list(small.iterdir()) == []


def test_a_compiler_on_a_full_disk_gives_no_answer_that_is_kept(place: Path, small: Path) -> None:
    source = place / "source"
    source.mkdir()
    (source / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 0\n")
    asked = "echo 'int f(void) { return 1; }' | gcc -x c -c -o f.o - > /dev/null 2>&1 && echo y || echo n"
    shell = KconfigShell(source, store=Store(), source_id="made up")
    leave(small, 4 * KIB)
    with pytest.raises(DiskFull, match="no space is left"):
        shell(asked)
    shell.close()
    assert not list(Store().root.rglob("answers.json"))
    (small / "filler").unlink()
    assert shell(asked) == "y"


@pytest.mark.parametrize("settled", [True, False])
def test_a_power_cut_leaves_an_entry_whole_or_none(place: Path, monkeypatch: pytest.MonkeyPatch, settled: bool) -> None:
    """The disk of a loop device, copied as it is, is what a power cut leaves. Without our waiting the names of an entry
    are there, and its files are empty."""
    disk, cut = place / "disk", place / "cut"
    tool("mke2fs", "-q", "-F", "-t", "ext4", disk, "16M")
    if not settled:
        monkeypatch.setattr(durable, "settle", lambda _: None)
    content = {"large": os.urandom(200_000), "small": b"record"}
    with mounted(place / "at", "-o", "loop", str(disk)) as folder:
        Store(folder / "cache").get("kind", "ab" * 20, writing(content))
        with (folder / "other").open("wb") as other:  # somebody else's file, by which names get onto the disk
            other.write(b"1")
            other.flush()
            os.fsync(other.fileno())
        shutil.copyfile(disk, cut)
    with mounted(place / "again", "-o", "loop", str(cut)) as folder:
        there = {path.name: path.read_bytes() for path in (folder / "cache/kind" / ("ab" * 20)).iterdir()}
    assert (there == content) is settled


@pytest.mark.parametrize("verb", ["file", "entry"])
def test_the_kernel_is_asked_in_the_right_order(place: Path, verb: str) -> None:
    program = {
        "file": f"from vmtailor.base.files.regular_files import write_atomic as w; from pathlib import Path;"
        f" w(Path({str(place / 'record')!r}), b'x')",
        "entry": f"from vmtailor.base.cache.store import Store, writing; from pathlib import Path;"
        f" Store(Path({str(place / 'cache')!r})).get('kind', 'ab' * 20, writing({{'f': b'x'}}))",
    }[verb]
    log = place / "log"
    calls = "trace=fsync,rename,renameat,renameat2"
    argv = ["strace", "-qq", "-e", "signal=none", "-o", str(log), "-e", calls, sys.executable, "-c", program]
    subprocess.run(argv, check=True, env={**os.environ, "PYTHONPATH": str(Path(durable.__file__).parents[3])})
    seen = [line.partition("(")[0] for line in log.read_text().splitlines()]
    wanted = {"file": ["fsync", "rename", "fsync"], "entry": ["fsync", "fsync", "rename", "fsync"]}[verb]
    assert [re.sub("at2?$", "", one) for one in seen] == wanted


# What a stranger's disk may hold.


def bare(place: Path) -> tuple[Path, bytes]:
    """A disk without checksums, whose folders can be changed by hand; and its bytes."""
    root = tree(place / "tree")
    for number in range(UNITS):
        systems.put(root, f"{WANTS}/made-{number}-{'y' * 60}.service", "-> /dev/null/none")
    systems.put(root, "etc/swap", b"s" * 5000)
    fstab = (root / "etc/fstab").read_text()
    systems.put(root, "etc/fstab", f"{fstab}/etc/swap none swap sw 0 0\n")
    path = place / "disk.raw"
    tool("mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^has_journal", "-d", root, path, "16M")
    return path, path.read_bytes()


def inode_at(path: Path, data: bytes, name: str) -> int:
    """The place of a file's inode: the first of its bytes."""
    number = int(re.findall(rb"^Inode: (\d+)", tool("debugfs", "-R", f"stat /{name}", path))[0])
    size, per_group = struct.unpack_from("<H", data, 1024 + 88)[0], struct.unpack_from("<I", data, 1024 + 40)[0]
    group, index = divmod(number - 1, int(per_group))
    descriptor = 4096 + group * (int(struct.unpack_from("<H", data, 1024 + 0xFE)[0]) or 32)
    return int(struct.unpack_from("<I", data, descriptor + 8)[0]) * 4096 + index * int(size)


def moved(block: int, name: str) -> Callable[[Path], Path]:
    """The first extent of a file begins at a block, whatever the disk's size is."""

    def make(place: Path) -> Path:
        path, data = bare(place)
        extent = inode_at(path, data, name) + 40 + 12
        return systems.patched(path, extent + 6, struct.pack("<HI", block >> 32, block & 0xFFFFFFFF))

    return make


def torn(place: Path) -> Path:
    """One block in the middle of a folder is no folder's."""
    path, _ = bare(place)
    blocks = tool("debugfs", "-R", f"blocks /{WANTS}", path).split()
    return systems.patched(path, int(blocks[5]) * 4096, b"\xff" * 4096)


def summed(place: Path) -> Path:
    """The same on a disk with checksums, where the tool stops at that block."""
    root = tree(place / "tree")
    for number in range(UNITS):
        systems.put(root, f"{WANTS}/made-{number}-{'y' * 60}.service", "-> /dev/null/none")
    path = ext4(place / "disk.raw", root)
    blocks = tool("debugfs", "-R", f"blocks /{WANTS}", path).split()
    size = 1024 << struct.unpack_from("<I", path.read_bytes()[1024:2048], 24)[0]
    return systems.patched(path, int(blocks[20]) * size + 8, b"\xff" * 16)


@pytest.mark.attack
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(moved(0x7FFFFFFFFFFF, "etc/swap"), id="a swap file beyond 2^58"),
        pytest.param(moved(0xFFFFFFFFFFFF, "etc/swap"), id="a swap file at the last block of all"),
        pytest.param(moved(4096, "etc/swap"), id="a swap file just behind the disk"),
        pytest.param(moved(0xFFFFFFFFFFFF, WANTS), id="a folder beyond 2^60"),
        pytest.param(moved(0xFFFFFFFFFFFF, "etc/fstab"), id="a file beyond 2^60"),
        pytest.param(torn, id="a folder with a torn block"),
        pytest.param(summed, id="a folder with a wrong checksum"),
    ],
)
def test_what_cannot_be_read_whole_is_damaged_and_not_believed(
    place: Path, make: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place / "tmp"))
    path = make(place)
    with pytest.raises(UserInputError, match="damaged"):
        read(path)
    assert list((place / "tmp").iterdir()) == []


def bomb(path: Path, size: int) -> Path:
    """A qcow2 that names one compressed cluster for every place of a disk, by tables that are shared, too."""
    cluster = 1 << 16
    tables = -(-size // (cluster * 8192))
    packer = zlib.compressobj(9, zlib.DEFLATED, -12)
    packed = packer.compress(bytes((7 * at + 1) & 255 for at in range(256)) * 256) + packer.flush()
    first = -(-tables * 8 // cluster) * cluster
    table, content = cluster + first, 2 * cluster + first
    image = bytearray(content + 3 * cluster)
    head = struct.pack(">4sIQIIQIIQQIIQ", b"QFI\xfb", 3, 0, 0, 16, size, 0, tables, cluster, content + cluster, 1, 0, 0)
    image[: len(head) + 32] = head + struct.pack(">QQQII", 0, 0, 0, 4, 104)
    struct.pack_into(f">{tables}Q", image, cluster, *([table] * tables))
    entry = 1 << 62 | (-(-len(packed) // 512) - 1) << 54 | content
    struct.pack_into(">8192Q", image, table, *([entry] * 8192))
    image[content : content + len(packed)] = packed
    struct.pack_into(">Q", image, content + cluster, content + 2 * cluster)
    path.write_bytes(image)
    return path


@pytest.mark.attack
def test_a_qcow2_bomb_ends_at_the_limit_of_images(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place / "tmp"))
    monkeypatch.setattr(allowance, "SMALL_BYTES", 64 * MIB)
    monkeypatch.setattr(allowance, "DEFAULT_BYTES", 64 * MIB)
    path = bomb(place / "bomb.qcow2", 20 << 30)
    assert path.stat().st_size < 400 * KIB
    with pytest.raises(UserInputError, match=r"bomb\.qcow2 unpacks to more than 64M, the limit") as caught:
        read(path)
    assert f"qemu-img convert -O raw {path} bomb.raw" in caught.value.hint
    assert list((place / "tmp").iterdir()) == []


@pytest.mark.attack
def test_while_a_qcow2_is_unpacked_64_megabytes_of_disk_stay_free(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    least: list[int] = []
    with mounted(place / "small", "-t", "tmpfs", "-o", "size=256m", "tmpfs") as folder:
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        free_bytes = allowance.free_bytes

        def looked(where: Path) -> int:
            least.append(free := free_bytes(where))
            return free

        monkeypatch.setattr(allowance, "free_bytes", looked)
        with pytest.raises(DiskFull, match="no space is left to unpack"):
            read(bomb(place / "bomb.qcow2", 20 << 30))
        assert list(folder.iterdir()) == []
    assert min(least) >= allowance.RESERVE_BYTES


def test_an_image_whose_file_is_larger_than_the_limit_is_no_bomb(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place / "tmp"))
    monkeypatch.setattr(allowance, "SMALL_BYTES", MIB)
    monkeypatch.setattr(allowance, "DEFAULT_BYTES", MIB)
    root = tree(place / "tree")
    systems.put(root, "srv/noise", os.urandom(6 * MIB))
    raw = ext4(place / "disk.raw", root)
    tool("qemu-img", "convert", "-O", "qcow2", raw, place / "disk.qcow2")
    assert read(place / "disk.qcow2").kernel == systems.RELEASE


def test_a_converter_that_stops_early_is_not_believed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place / "tmp"))
    packed = place / "disk.qcow2"
    tool("qemu-img", "convert", "-O", "qcow2", ext4(place / "disk.raw", tree(place / "tree")), packed)

    def cut(tool: str, arguments: list[str], **how: Any) -> ProgramResult:
        done = run_shut_in(tool, arguments, **how)
        if arguments[0] == "convert":
            os.truncate(arguments[-1], 8 * MIB)
        return done

    monkeypatch.setattr(disk_image, "run_shut_in", cut)
    with pytest.raises(UserInputError, match="damaged") as caught:
        read(packed)
    assert "has unpacked 8388608 of 16777216 bytes" in caught.value.details
