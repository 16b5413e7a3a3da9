# SPDX-License-Identifier: Apache-2.0
"""A plain root file system directory → a flat archive, as `layers` makes one from an image."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from vmtailor.base.disk_full import disk_full_is_a_host_error
from vmtailor.base.errors import UserInputError
from vmtailor.base.text import encodable
from vmtailor.drivers.image import attributes
from vmtailor.drivers.image.allowance import DEPTH, ImageLimits, Room, too_many, too_much
from vmtailor.drivers.image.attributes import ForeignAttributes
from vmtailor.drivers.image.layer_reader import PATH_BYTES, TIME_MAX
from vmtailor.drivers.image.layers import Archived


def archive_directory(root: Path, out: Path, limits: ImageLimits | None = None) -> Archived:
    """Write the tree below `root` to the flat archive `out`: one file system, sockets left out, sorted.

    Run by a user who is not root, what belongs to that user and group becomes root's: a tree unpacked without root
    has no other owners. Raises UserInputError for what cannot be read or told in an archive, or changes meanwhile;
    TooLarge; HostError before the disk is full."""
    root = root.resolve()
    with disk_full_is_a_host_error(out.parent), out.open("wb") as file:
        writer = _Archiver(file, root, limits or ImageLimits(), Room(out.parent))
        for path, status in _walk(root):
            writer.add(path, status)
        writer.write(bytes(1024))
    return Archived(writer.digest.hexdigest(), writer.entries, writer.unpacked, writer.left_out.remarks())


def _walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield paths relative to the root with their status, parents first, siblings sorted; mount points stay empty."""
    device = root.stat().st_dev
    stack = ["."]
    while stack:
        path = stack.pop()
        if path.count("/") >= DEPTH or len(os.fsencode(root / path)) > PATH_BYTES:
            raise UserInputError(
                f"{root} is nested more than {DEPTH} folders or {PATH_BYTES} bytes deep, at {path[:60]}…",
                hint="remove that folder from the tree",
            )
        with _reported(root / path):
            status = os.lstat(root / path)
        yield path, status
        if stat.S_ISDIR(status.st_mode) and status.st_dev == device:
            with _reported(root / path):
                names = sorted(os.listdir(root / path), reverse=True)  # noqa: PTH208  # names, not paths
            stack.extend(name if path == "." else f"{path}/{name}" for name in names)


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Return the system's error about a path in the tree as a UserInputError."""
    try:
        yield
    except PermissionError:
        raise UserInputError(f"{path} cannot be read", hint="run as its owner, or give the tree as an image") from None
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise _changed(path) from None
    except OSError as error:
        words = (error.strerror or "").lower()
        raise UserInputError(f"{path} cannot be read: {words}", hint="remove it from the tree") from error


def _changed(path: Path) -> UserInputError:
    return UserInputError(
        f"{path} changed while it was read", hint="stop the programs that write to it, then try again"
    )


class _Archiver:
    def __init__(self, out: IO[bytes], root: Path, limits: ImageLimits, room: Room) -> None:
        self._out = out
        self._root = root
        self._limits = limits
        self._room = room
        self._own = os.geteuid() != 0
        self._seen: dict[tuple[int, int], str] = {}
        self.digest = hashlib.sha256()
        self.entries = -1  # the root does not count
        self.unpacked = 0
        self.left_out = ForeignAttributes()

    def write(self, data: bytes) -> None:
        self.digest.update(data)
        self._out.write(data)

    def add(self, path: str, status: os.stat_result) -> None:
        name = path.rsplit("/", 1)[-1]
        if name.startswith(".wh."):
            raise UserInputError(f"{self._root / path} has a name that marks deletions in images", hint="rename it")
        kind = _KINDS.get(stat.S_IFMT(status.st_mode))
        if kind is None:
            return  # a socket: it means nothing without its process
        info = tarfile.TarInfo(path)
        info.type, info.mode = kind, stat.S_IMODE(status.st_mode)
        info.uid = 0 if self._own and status.st_uid == os.geteuid() else status.st_uid
        info.gid = 0 if self._own and status.st_gid == os.getegid() else status.st_gid
        info.mtime = min(max(0, int(status.st_mtime)), TIME_MAX)
        info.pax_headers = self._xattrs(path, kind)
        if kind == tarfile.SYMTYPE:
            with _reported(self._root / path):
                info.linkname = os.readlink(self._root / path)  # noqa: PTH115  # as it is written
        elif kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
            info.devmajor, info.devminor = os.major(status.st_rdev), os.minor(status.st_rdev)
        if kind != tarfile.DIRTYPE and status.st_nlink > 1:
            first = self._seen.setdefault((status.st_dev, status.st_ino), path)
            if first != path:
                info.type, info.linkname, info.pax_headers = tarfile.LNKTYPE, first, {}
        self.entries += 1
        if self.entries > self._limits.entries:
            raise too_many(str(self._root), self._limits)
        if info.type == tarfile.REGTYPE:
            info.size = status.st_size
            self._add_file(path, info)
        else:
            self.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))

    def _add_file(self, path: str, info: tarfile.TarInfo) -> None:
        whole = self._root / path
        self.unpacked += info.size
        if self.unpacked > self._limits.unpacked_bytes:
            raise too_much(str(self._root), self._limits)
        # A file of a moment ago may now be a pipe, or a link to elsewhere.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with contextlib.ExitStack() as stack:
            with _reported(whole):
                source = stack.enter_context(os.fdopen(os.open(whole, flags), "rb"))
            if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
                raise _changed(whole)
            self.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))
            left = info.size
            while left:
                with _reported(whole):
                    piece = source.read(min(left, 1 << 20))
                if not piece:
                    raise _changed(whole)
                self._room.take(len(piece))
                self.write(piece)
                left -= len(piece)
        self.write(bytes(-info.size % 512))

    def _xattrs(self, path: str, kind: bytes) -> dict[str, str]:
        found = {}
        with contextlib.suppress(OSError):  # a file system without attributes
            for name in sorted(os.listxattr(self._root / path, follow_symlinks=False)):
                if name.startswith(("trusted.overlay.", "user.overlay.", "security.selinux")):
                    continue
                if encodable(name) != name:
                    raise UserInputError(
                        f"{self._root / path} has an extended attribute whose name is no text: {name!r}",
                        hint="remove it (setfattr -x)",
                    )
                raw = os.getxattr(self._root / path, name, follow_symlinks=False)
                value = raw.decode("utf-8", "surrogateescape")
                if attributes.has_place(name, value, kind):
                    found[f"SCHILY.xattr.{name}"] = value
                else:
                    self.left_out.add(name)
        return found


_KINDS = {
    stat.S_IFREG: tarfile.REGTYPE, stat.S_IFDIR: tarfile.DIRTYPE, stat.S_IFLNK: tarfile.SYMTYPE,
    stat.S_IFCHR: tarfile.CHRTYPE, stat.S_IFBLK: tarfile.BLKTYPE, stat.S_IFIFO: tarfile.FIFOTYPE,
}  # fmt: skip
