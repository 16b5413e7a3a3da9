# SPDX-License-Identifier: Apache-2.0
"""Make a root file system (erofs, squashfs or ext4) from the flat archive of an image, and entries of our own.

No root is needed. The archive streams into the tool: `tar2sqfs`, `mkfs.erofs --tar` where it has that, otherwise the
tool runs under fakeroot on a private temporary folder (docs/decisions/0006-root-file-systems-under-fakeroot.md). What
neither takes is written by `erofs_writer`. Equal input gives equal bytes: fixed UUIDs, time stamps from the archive."""

from __future__ import annotations

import contextlib
import io
import math
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import IO

from vmtailor.base.disk_full import disk_full_is_a_host_error, no_space, says_full
from vmtailor.base.errors import BuildError, HostError, UserInputError
from vmtailor.base.process import pasteable, require_tool, run, spawn
from vmtailor.drivers.image.attributes import ACLS
from vmtailor.drivers.image.layer_tree import LayerTree
from vmtailor.drivers.image.layers import OWN, Layer, read_tree, write_archive
from vmtailor.drivers.rootfs import erofs_writer, unpack
from vmtailor.model.plan import RootFormat

#: Changes when the same input would give other bytes.
VERSION = "1"
#: File system UUID and seed of directory hashes. One machine has one root, so it need not be unique.
UUID = "766d7461-696c-4f72-8000-000000000001"
BLOCK = 4096
INODE_BYTES = 256
#: Longest name that mkfs.erofs before 1.6 takes whole.
EROFS_NAME_BYTES = 254
#: Bytes of an attribute with its name, and of the names of all of a file, that fakeroot keeps in its books, less a few.
ATTRIBUTE_BYTES = 1000
#: Names of one file: ext4 ends at 65,000, here and below a private folder.
LINKS = 64_000
#: Folders within folders, and bytes of a path, that a private folder of the host gets.
FOLDERS, PATH_BYTES = 256, 3000


class ExtraKind(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    CHARACTER_DEVICE = "character-device"


@dataclass(frozen=True)
class Extra:
    """An entry of our own, put over the image's. `path` has no leading slash. A file's `data` are bytes or a file to
    read; a link has `target`; a device (major, minor). All belong to root."""

    path: str
    kind: ExtraKind = ExtraKind.FILE
    data: bytes | Path = b""
    mode: int = 0o644
    target: str = ""
    device: tuple[int, int] = (0, 0)


#: The node that the kernel opens for PID 1 before anything is mounted.
CONSOLE = Extra("dev/console", ExtraKind.CHARACTER_DEVICE, mode=0o600, device=(5, 1))


_TOOLS = {
    RootFormat.EROFS: ("mkfs.erofs", "erofs-utils", "--version"),
    RootFormat.SQUASHFS: ("tar2sqfs", "squashfs-tools-ng", "--version"),
    RootFormat.EXT4: ("mke2fs", "e2fsprogs", "-V"),
}


def build(
    archive: Path | None,
    out: Path,
    form: RootFormat = RootFormat.EROFS,
    extra: Sequence[Extra] = (),
    *,
    compression: str = "",
    spare_bytes: int = 0,
) -> Path:
    """Make a root file system. `archive` is a flat archive, or None for our own entries alone. `extra` comes on top (a
    `/dev/console` always does); any top directory of `extra` whose name begins with a dot hides what the image has
    there.

    `compression`: erofs takes `lz4` or `lz4hc`, squashfs `zstd` (its default), `gzip`, `lz4`, `xz`; ext4 none.
    `spare_bytes`: room that ext4 has beyond its content, for whoever writes to it.
    Raises HostError (tool missing, disk full) or BuildError with what the tool said. `out` is replaced whole or not.

    Returns `out`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with (
        disk_full_is_a_host_error(out.parent),
        tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as name,
    ):
        work = Path(name)
        over = work / "extra.tar"
        over.write_bytes(extra_layer([CONSOLE, *extra]))
        layers = [Layer(archive, archive.name)] if archive is not None else []
        layers.append(Layer(over, "our own entries"))
        tree = read_tree(layers, OWN)
        newest = int(max(math.ceil(float(node.mtime)) for _, node in tree.walk()))
        source = _Source(tree, layers, newest, spare_bytes)
        made = work / "image"
        _BUILDERS[form](source, made, work, compression)
        made.chmod(0o644)
        made.replace(out)
    return out


def extra_layer(extra: Sequence[Extra]) -> bytes:
    """Return our entries as a layer, with whiteouts for what they replace."""
    out = io.BytesIO()
    tops = sorted({top for item in extra if (top := item.path.split("/")[0]).startswith(".")})
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for top in tops:
            archive.addfile(tarfile.TarInfo(f".wh.{top}"))
        for item in extra:
            info = tarfile.TarInfo(item.path)
            info.mode = item.mode
            data = b""
            if item.kind == ExtraKind.FILE:
                data = item.data if isinstance(item.data, bytes) else item.data.read_bytes()
                info.size = len(data)
            elif item.kind == ExtraKind.DIRECTORY:
                info.type = tarfile.DIRTYPE
            elif item.kind == ExtraKind.SYMLINK:
                info.type, info.linkname = tarfile.SYMTYPE, item.target
            else:
                info.type = tarfile.CHRTYPE
                info.devmajor, info.devminor = item.device
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


@dataclass(frozen=True)
class _Source:
    """The input of a tool. `newest` is the latest time stamp, in seconds; `spare_bytes` the room beyond the content."""

    tree: LayerTree
    layers: Sequence[Layer]
    newest: int
    spare_bytes: int = 0

    @property
    def size(self) -> int:
        """Return bytes of all files, further names counted again."""
        return sum(node.size for _, node in self.tree.walk())

    def write(self, out: IO[bytes]) -> None:
        write_archive(self.tree, self.layers, out)


def _feed(tool: str, argv: Sequence[str], source: _Source, where: Path, env: Mapping[str, str]) -> None:
    """Run a tool that writes to the folder `where`, with the archive on its standard input. Raises HostError or
    BuildError with its words."""
    with tempfile.TemporaryFile() as words:
        with spawn(argv, stdin=subprocess.PIPE, stdout=words, stderr=words, env={**os.environ, **env}) as process:
            assert process.stdin is not None
            try:
                with contextlib.suppress(BrokenPipeError):  # it ended early: its status and words say why
                    source.write(process.stdin)
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
                # All of the archive has been read: what is left is bounded by the size of the image.
                code = process.wait(3600)
            except subprocess.TimeoutExpired:
                raise HostError(f"{tool} did not end within an hour", details=pasteable(argv)) from None
            except BaseException:
                _end_gently(process.pid)
                raise
        words.seek(0)
        said = words.read()[-4000:].decode("utf-8", "replace").strip()
    if code == 0:
        return
    # On a full disk tar2sqfs says no more than "I/O error", and mkfs.erofs 1.8 complains of a checksum: the space
    # tells better than the words, which are shown all the same.
    cramped = shutil.disk_usage(where).free < source.size
    if cramped or says_full(said):
        raise no_space("for the root file system", details=said)
    raise BuildError(
        f"{tool} could not make the root file system (status {code})",
        hint="where these words name a file, change it in the image",
        details=f"{pasteable(argv)}\n{said}",
    )


def _end_gently(group: int) -> None:
    """Interrupt a group, and wait for its end. fakeroot stops its server, which has a session of its own and message
    queues that outlive it, only when it is interrupted, not when it is terminated."""
    deadline = time.monotonic() + 3
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGINT)
        while time.monotonic() < deadline:
            os.killpg(group, 0)
            time.sleep(0.02)


@cache
def identity(form: RootFormat) -> str:
    """Return what the bytes depend on beside the input, as part of every cache key: our own version and the tool's."""
    name, package, option = _TOOLS[form]
    finished = run([require_tool(name, package), option], timeout_s=30, ok=range(256))
    words = (finished.text + finished.error_text).strip().splitlines()
    return f"{VERSION} {words[0] if words else name}"


@cache
def erofs_reads_tar(program: str) -> bool:
    """Return whether this mkfs.erofs has `--tar` (1.7 and later; bookworm has 1.5)."""
    finished = run([program, "--help"], timeout_s=30, ok=range(256))
    return "--tar=" in finished.text + finished.error_text


def _beyond_fakeroot(tree: LayerTree, name_bytes: int = 255) -> Iterator[str]:
    """Yield what a private folder under fakeroot cannot have, in words with the path, as far as it is asked for.
    `name_bytes`: those of the longest name that the tool takes."""
    names_of: dict[int, int] = {}
    for path, node in tree.walk():
        name = path.rpartition("/")[2]
        if node.linked:
            count = names_of[id(node)] = names_of.get(id(node), 0) + 1
            if count > LINKS:
                yield f"the file /{path[:200]} has more than {LINKS} names"
        if len(os.fsencode(name)) > name_bytes:
            yield f"the name /{path[:300]} has {len(os.fsencode(name))} bytes"
        if path.count("/") >= FOLDERS or len(os.fsencode(path)) > PATH_BYTES:
            yield f"/{path[:60]}… is {path.count('/') + 1} folders deep"
        sizes = [(len(os.fsencode(key)), len(os.fsencode(value)), key) for key, value in node.xattrs]
        for key, value, text in sizes:
            if key + 1 + value > ATTRIBUTE_BYTES:
                yield f"the attribute {text[:80]} of /{path[:200]} has {value} bytes"
        names, values = sum(key + 1 for key, _, _ in sizes), sum(value for _, value, _ in sizes)
        if names > ATTRIBUTE_BYTES or names + values > 3 * ATTRIBUTE_BYTES:
            yield f"the attributes of /{path[:200]} have {names + values} bytes"


def _cannot_hold(form: RootFormat, what: str, *, fixed: bool = False) -> UserInputError:
    """Return the error for a file. `fixed`: the format is not the user's choice."""
    cure = "change that file in the tree" if fixed else "choose the format that holds it: --root erofs"
    return UserInputError(f"{what}, which vmtailor cannot put into {form}", hint=cure)


def _under_fakeroot(folder: Path, *command: str) -> list[str]:
    fakeroot = require_tool("fakeroot")
    return [fakeroot, "--", sys.executable, "-I", str(Path(unpack.__file__)), str(folder), *command]


def _build_erofs(source: _Source, made: Path, work: Path, compression: str) -> None:
    program = require_tool("mkfs.erofs", "erofs-utils")
    options = ["--quiet", f"-U{UUID}", *([f"-z{compression}"] if compression else [])]
    # Time stamps later than this would be cut to it: it is the newest, so none is; and it becomes the build time.
    env = {"SOURCE_DATE_EPOCH": str(source.newest)}
    if erofs_reads_tar(program):
        _feed("mkfs.erofs", [program, "--tar=f", *options, str(made)], source, work, env)
        return
    if next(_beyond_fakeroot(source.tree, EROFS_NAME_BYTES), None) is not None:
        with made.open("w+b") as out:
            erofs_writer.write(source.tree, source.layers, out, UUID, source.newest)
        return
    folder = work / "root"
    folder.mkdir(mode=0o700)
    _feed("mkfs.erofs", _under_fakeroot(folder, program, *options, str(made), str(folder)), source, work, env)


def _build_squashfs(source: _Source, made: Path, work: Path, compression: str) -> None:
    program = require_tool("tar2sqfs", "squashfs-tools-ng")
    for path, node in source.tree.walk():
        for name, _ in node.xattrs:
            if name in ACLS:
                raise _cannot_hold(RootFormat.SQUASHFS, f"/{path[:200]} has an access control list ({name})")
    env = {"SOURCE_DATE_EPOCH": str(source.newest)}
    argv = [program, "--quiet", "--no-skip", "--compressor", compression or "zstd", "--num-jobs", "1", str(made)]
    _feed("tar2sqfs", argv, source, work, env)


def _build_ext4(source: _Source, made: Path, work: Path, compression: str) -> None:
    if compression:
        raise BuildError(
            f"ext4 cannot be compressed with {compression}", hint="choose erofs or squashfs, or no compression"
        )
    for what in _beyond_fakeroot(source.tree):
        raise _cannot_hold(RootFormat.EXT4, what, fixed=source.spare_bytes > 0)
    program = require_tool("mke2fs", "e2fsprogs")
    folder = work / "root"
    folder.mkdir(mode=0o700)
    inodes, blocks = ext4_size(source.tree, source.spare_bytes)
    options = [
        "-q",
        "-F",
        "-t",
        "ext4",
        "-b",
        str(BLOCK),
        "-I",
        str(INODE_BYTES),
        "-N",
        str(inodes),
        "-m",
        "0",
        "-U",
        UUID,
    ]
    # Said in full, since what a distribution's /etc/mke2fs.conf adds would show in the bytes. No journal: what a
    # machine writes to its root does not outlive it.
    features = "none,ext_attr,extent,filetype,huge_file,large_file,sparse_super,dir_nlink,extra_isize"
    extended = f"hash_seed={UUID},lazy_itable_init=0,root_owner=0:0"
    argv = [program, *options, "-O", features, "-E", extended, "-d", str(folder), str(made), f"{blocks}"]
    # 0, the time of our own entries, would be taken for none at all: the clock's would stand in its place.
    env = {"E2FSPROGS_FAKE_TIME": str(max(1, source.newest)), "MKE2FS_CONFIG": "/dev/null"}
    _feed("mke2fs", _under_fakeroot(folder, *argv), source, work, env)
    _fix_ext4_times(made, source.newest)


#: Spare bytes of ext4 for each spare inode, as mke2fs reckons.
_BYTES_A_FILE = 16 << 10


def ext4_size(tree: LayerTree, spare_bytes: int = 0) -> tuple[int, int]:
    """Return inodes and blocks of 4096 bytes that a tree needs in ext4, with some room, and spare room beyond that."""
    inodes, data = 16, 0
    seen: set[int] = set()
    for _, node in tree.walk():
        if node.linked:
            if id(node) in seen:
                continue
            seen.add(id(node))
        inodes += 1
        data += (node.size + BLOCK - 1) // BLOCK + (1 if node.xattrs or node.kind == tarfile.SYMTYPE else 0)
        if node.children is not None:
            # A block of a directory holds at least 15 names of the longest kind; most are shorter.
            data += 1 + sum(8 + 4 * len(name) for name in node.children) // BLOCK
        # Extents beyond the four in the inode, for files that do not lie in one piece.
        data += node.size // (128 << 20)
    inodes = (inodes + spare_bytes // _BYTES_A_FILE + 16) // 16 * 16 + 16
    blocks = data + inodes * 256 // BLOCK + spare_bytes // BLOCK
    return inodes, blocks + blocks // 32 + 1024


def _fix_ext4_times(image: Path, when: int) -> None:
    """mke2fs -d takes the change times of the temporary files, which differ each time: set them to a fixed one.

    In place, since debugfs takes a millisecond for each field of each file. Without checksums of metadata, and with
    one group descriptor of 32 bytes for each group, the layout is the simple one of ext2."""
    with image.open("r+b") as file, mmap.mmap(file.fileno(), 0) as disk:
        blocks, first, per_group, inodes_per_group = (
            struct.unpack_from("<I", disk, 1024 + at)[0] for at in (4, 20, 32, 40)
        )
        for group in range((blocks - first + per_group - 1) // per_group):
            table = struct.unpack_from("<I", disk, (first + 1) * BLOCK + group * 32 + 8)[0] * BLOCK
            for inode in range(table, table + inodes_per_group * INODE_BYTES, INODE_BYTES):
                if disk[inode] or disk[inode + 1]:  # it has a mode: it is used
                    struct.pack_into("<I", disk, inode + 12, when)  # ctime
                    struct.pack_into("<I", disk, inode + 132, 0)  # and its fraction
                    struct.pack_into("<II", disk, inode + 144, when, 0)  # crtime and its fraction


_BUILDERS: dict[RootFormat, Callable[[_Source, Path, Path, str], None]] = {
    RootFormat.EROFS: _build_erofs,
    RootFormat.SQUASHFS: _build_squashfs,
    RootFormat.EXT4: _build_ext4,
}
