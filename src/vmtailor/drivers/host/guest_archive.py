# SPDX-License-Identifier: Apache-2.0
"""Archives (tar) that go to a guest and come out of one.

What comes out is a stranger's. Every step is taken from the descriptor of the folder that the user named, and follows
no link. Nothing is written outside it: names that lead up are refused; links that lead out, devices and set-user-ID
bits are left out, and counted. Members, names and content are bounded."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vmtailor.base import notation
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files.regular_files import kind_of
from vmtailor.base.text import plain
from vmtailor.drivers.image.allowance import Room
from vmtailor.drivers.image.layer_reader import (
    BLOCK,
    DamagedLayer,
    ForwardReader,
    checked_map,
    headers_of,
    split_path,
)

#: Members and bytes of one archive that are unpacked.
MOST_MEMBERS, MOST_BYTES = 1_000_000, 64 << 30
_PART = 256 << 10
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: Errors of a step that would go through a link, or through a file.
_NO_WAY = (errno.ELOOP, errno.ENOTDIR)
_DAMAGE = (tarfile.TarError, ValueError, OverflowError, IndexError, KeyError, RecursionError, TypeError, EOFError)
_SPECIAL = {tarfile.CHRTYPE: "device", tarfile.BLKTYPE: "device", tarfile.FIFOTYPE: "named pipe"}
_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE)


class HostileArchive(GuestError):
    """An archive is damaged, or asks for what none may ask for."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the archive that the machine sent is damaged or hostile: {plain(what[:300])}")


@dataclass
class Unpacked:
    """The members that were written, and what was left out, by kind."""

    members: int = 0
    content_bytes: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


class ArchiveFromGuest:
    """An archive as it comes. `first` is its first member, the one that was asked for."""

    def __init__(
        self, chunks: Iterator[bytes], *, most_members: int = MOST_MEMBERS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._most_members, self._most_bytes = most_members, most_bytes
        self._spent = 0
        self._reader = ForwardReader(chunks, self._spend)
        self._headers = headers_of(self._reader)
        with _damage():
            first = next(self._headers, None)
            if first is None:
                self._reader.drain()  # whoever sends it may say why
                raise ValueError("it is empty")
            self.first = first
            self._top = split_path(first.name, "")
            if len(self._top) > 1:
                raise ValueError(f"it does not begin with what was asked for, but with {first.name!r}")

    def _spend(self, size: int) -> None:
        self._spent += size
        if self._spent > self._most_bytes:
            raise _too_large(self._most_bytes)

    @property
    def is_folder(self) -> bool:
        return self.first.isdir()

    @property
    def link_target(self) -> str | None:
        """Return the target of a symbolic link; None for another kind."""
        return self.first.linkname if self.first.issym() else None

    def unpack(self, folder: Path, name: str, *, owners: bool = False) -> Unpacked:
        """Write the archive into a folder of the host, its first member under `name`; with "" what is in the first
        member, a folder, goes into `folder` itself. `owners`: members keep the numbers of their users and groups.

        Raises HostileArchive; UserInputError where something is in the way; HostError when the disk is full, OSError.
        """
        done = Unpacked()
        base = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.closing(_Writer(base, folder, name, done, Room(folder), owners)) as writer:
            member: tarfile.TarInfo | None = self.first
            while member is not None:
                with _damage():
                    parts = self._below(member)
                    done.members += 1
                    if done.members > self._most_members:
                        raise ValueError(f"it has more than {self._most_members} members")
                    if member.size < 0 or (member.isreg() and member.size > self._most_bytes):
                        raise _too_large(self._most_bytes)
                self._write(writer, member, parts)
                with _damage():
                    member = next(self._headers, None)
            with _damage():
                self._reader.drain()
            writer.finish()
        return done

    def _below(self, member: tarfile.TarInfo) -> tuple[str, ...]:
        """Return the components of a member's name below the first one's."""
        parts = split_path(member.name, "")
        if parts[: len(self._top)] != self._top or (member is not self.first and not self.is_folder):
            raise ValueError(f"{member.name[:200]!r} is not below what was asked for")
        if member is not self.first and len(parts) == len(self._top):
            raise ValueError(f"{member.name[:200]!r} is there twice")
        return parts[len(self._top) :]

    def _write(self, writer: _Writer, member: tarfile.TarInfo, parts: tuple[str, ...]) -> None:
        if member.isdir():
            writer.folder(parts, member)
        elif member.issym():
            writer.symlink(parts, member)
        elif member.islnk():
            with _damage():
                target = split_path(member.linkname, "")
                if target[: len(self._top)] != self._top or len(target) == len(self._top):
                    raise ValueError(f"{member.name[:200]!r} is a link to {member.linkname[:200]!r}, which is outside")
            writer.hard_link(parts, member, target[len(self._top) :])
        elif member.type in _REGULAR:
            writer.file(parts, member, self._reader)
        elif member.type in _SPECIAL:
            writer.leave_out(_SPECIAL[member.type])
        else:
            raise HostileArchive(f"{member.name[:200]!r} is of the unknown type {member.type!r}")


def _too_large(most_bytes: int) -> HostileArchive:
    return HostileArchive(f"it unpacks to more than {notation.size_text(most_bytes)}")


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    """Turn whatever a parser says about bad bytes into HostileArchive. Failures to write must not be raised inside."""
    try:
        yield
    except DamagedLayer as error:
        raise HostileArchive(error.what) from error
    except _DAMAGE as error:
        raise HostileArchive(str(error) or type(error).__name__) from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise HostileArchive(str(error) or "it makes no sense") from error


class _Writer:
    """Writes members below the descriptor of a folder."""

    def __init__(self, base: int, path: Path, name: str, done: Unpacked, room: Room, owners: bool) -> None:
        self._base, self._path, self._name = base, path, name
        self._done, self._room, self._owners = done, room, owners
        self._folders: dict[tuple[str, ...], tuple[int, int, tuple[int, int]]] = {}
        self._open: tuple[tuple[str, ...], int] | None = None

    def close(self) -> None:
        if self._open is not None:
            os.close(self._open[1])
        os.close(self._base)

    def _place(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the components below the user's folder."""
        return (self._name, *parts) if self._name else parts

    def _at(self, parents: tuple[str, ...]) -> int:
        """Return a descriptor of a folder below ours; missing ones are made. It is closed by the next call."""
        if self._open is not None and self._open[0] == parents:
            return self._open[1]
        here = os.dup(self._base)
        try:
            for number, part in enumerate(parents):
                there = self._step(here, part, parents[: number + 1])
                os.close(here)
                here = there
        except BaseException:
            os.close(here)
            raise
        if self._open is not None:
            os.close(self._open[1])
        self._open = (parents, here)
        return here

    def _step(self, here: int, part: str, parts: tuple[str, ...]) -> int:
        with contextlib.suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=here)
            self._folders[parts] = (0o755, 0, (-1, -1))
        try:
            return os.open(part, _FOLDER, dir_fd=here)
        except OSError as error:
            if error.errno not in _NO_WAY:
                raise
            raise UserInputError(
                f"{self._path.joinpath(*parts)} is in the way: it is not a folder", hint="copy to another folder"
            ) from error

    def leave_out(self, kind: str) -> None:
        """Count a member, or a part of one, that is not written."""
        self._done.left_out[kind] += 1

    def folder(self, parts: tuple[str, ...], member: tarfile.TarInfo) -> None:
        place = self._place(parts)
        if place:
            parent = self._at(place[:-1])
            os.close(self._step(parent, place[-1], place))
            self._folders[place] = (self._mode(member), _time_ns(member), self._owner(member))

    def file(self, parts: tuple[str, ...], member: tarfile.TarInfo, reader: ForwardReader) -> None:
        place = self._place(parts)
        parent = self._at(place[:-1])
        self._clear(parent, place)
        handle = os.open(place[-1], _NEW, 0o600, dir_fd=parent)
        with open(handle, "wb") as out:  # noqa: PTH123
            for offset, length in _pieces(member):
                out.seek(offset)
                self._content(out.write, reader, length)
            out.truncate(member.size)
            out.flush()
            owner = self._owner(member)
            if owner[0] >= 0:
                os.chown(handle, *owner)
            os.fchmod(handle, self._mode(member))
            time_ns = _time_ns(member)
            os.utime(handle, ns=(time_ns, time_ns))
        self._done.content_bytes += member.size

    def _content(self, write: Callable[[bytes], object], reader: ForwardReader, length: int) -> None:
        left = length
        while left:
            with _damage():
                piece = reader.take(min(left, _PART))
                if not piece:
                    raise ValueError("it ends in the middle of a file")
            self._room.take(len(piece))
            write(piece)
            left -= len(piece)

    def symlink(self, parts: tuple[str, ...], member: tarfile.TarInfo) -> None:
        place = self._place(parts)
        if not place or not stays_inside(member.linkname, max(0, len(parts) - 1)):
            self.leave_out("link that leads out of the copy")
            return
        parent = self._at(place[:-1])
        self._clear(parent, place)
        os.symlink(member.linkname, place[-1], dir_fd=parent)
        with contextlib.suppress(OSError):
            time_ns = _time_ns(member)
            os.utime(place[-1], ns=(time_ns, time_ns), dir_fd=parent, follow_symlinks=False)

    def hard_link(self, parts: tuple[str, ...], member: tarfile.TarInfo, target: tuple[str, ...]) -> None:
        place, source = self._place(parts), self._place(target)
        if place == source:
            return
        there = os.dup(self._at(source[:-1]))
        try:
            found = os.stat(source[-1], dir_fd=there, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode):
                self.leave_out("second name of what is no file")
                return
            parent = self._at(place[:-1])
            self._clear(parent, place)
            os.link(source[-1], place[-1], src_dir_fd=there, dst_dir_fd=parent, follow_symlinks=False)
        except FileNotFoundError:
            self.leave_out("second name of a file that was left out")
        finally:
            os.close(there)

    def _clear(self, parent: int, place: tuple[str, ...]) -> None:
        """Remove a file or a link that has the name; anything else is in the way."""
        try:
            mode = os.stat(place[-1], dir_fd=parent, follow_symlinks=False).st_mode
        except FileNotFoundError:
            return
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
            raise UserInputError(
                f"{self._path.joinpath(*place)} is in the way: it is {kind_of(mode)}", hint="copy to another place"
            )
        os.unlink(place[-1], dir_fd=parent)

    def finish(self) -> None:
        """Give folders their modes and times, the innermost first."""
        for place, (mode, time_ns, owner) in sorted(self._folders.items(), reverse=True):
            try:
                handle = os.open(place[-1], _FOLDER, dir_fd=self._at(place[:-1]))
            except OSError:
                continue
            try:
                if owner[0] >= 0:
                    os.chown(handle, *owner)
                os.fchmod(handle, mode)
                if time_ns:
                    os.utime(handle, ns=(time_ns, time_ns))
            finally:
                os.close(handle)

    def _mode(self, member: tarfile.TarInfo) -> int:
        if member.mode & (stat.S_ISUID | stat.S_ISGID) and not member.isdir():
            self.leave_out("set-user-ID or set-group-ID bit")
        return member.mode & 0o777

    def _owner(self, member: tarfile.TarInfo) -> tuple[int, int]:
        if not self._owners:
            return (-1, -1)
        if not (0 <= member.uid < 2**32 - 1 and 0 <= member.gid < 2**32 - 1):
            raise HostileArchive(f"{member.name[:200]!r} belongs to user or group {member.uid}")
        return (member.uid, member.gid)


def stays_inside(target: str, depth: int) -> bool:
    """Return whether a symbolic link, so many folders below the copy's own, leads to a place within the copy. Steps up
    count at its beginning alone: behind another link they would lead anywhere."""
    parts = [part for part in target.split("/") if part not in ("", ".")]
    ups = 0
    while ups < len(parts) and parts[ups] == "..":
        ups += 1
    return bool(target) and not target.startswith("/") and ups <= depth and ".." not in parts[ups:]


def _pieces(member: tarfile.TarInfo) -> tuple[tuple[int, int], ...]:
    sparse = getattr(member, "sparse", None)
    if sparse is None:
        return ((0, member.size),)
    with _damage():
        return checked_map(sparse, member.size)


def _time_ns(member: tarfile.TarInfo) -> int:
    """Return the time of a member, within what every file system can hold."""
    time_s = member.mtime
    if not isinstance(time_s, int | float) or not 0 <= time_s < 2**32:
        return 0
    return int(time_s) * 10**9


def packed(source: Path, name: str, *, owners: bool = False) -> Iterator[bytes]:
    """Yield a tar of a file, a folder or a link of the host, under `name`; with "" what is in a folder. Owners are root
    unless `owners`. Sockets are passed over. Raises OSError."""
    links: dict[tuple[int, int], str] = {}
    waiting = [(source, name)]
    while waiting:
        path, inner = waiting.pop()
        info = _info(path, inner, owners)
        if info is None:
            continue
        found = path.lstat()
        first = links.setdefault((found.st_dev, found.st_ino), inner) if info.isreg() and found.st_nlink > 1 else inner
        if first != inner:
            info.type, info.linkname, info.size = tarfile.LNKTYPE, first, 0
        if inner:
            yield info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        if info.isreg():
            yield from _file_content(path, info.size)
        if info.isdir():
            names = sorted((one.name for one in path.iterdir()), reverse=True)
            waiting += [(path / one, f"{inner}/{one}" if inner else one) for one in names]
    yield bytes(2 * BLOCK)


def _info(path: Path, name: str, owners: bool) -> tarfile.TarInfo | None:
    """Return the header of a file of the host; None for a socket."""
    found = path.lstat()
    kinds = {
        stat.S_IFREG: tarfile.REGTYPE, stat.S_IFDIR: tarfile.DIRTYPE, stat.S_IFLNK: tarfile.SYMTYPE,
        stat.S_IFIFO: tarfile.FIFOTYPE, stat.S_IFCHR: tarfile.CHRTYPE, stat.S_IFBLK: tarfile.BLKTYPE,
    }  # fmt: skip
    kind = kinds.get(stat.S_IFMT(found.st_mode))
    if kind is None:
        return None
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.mtime = kind, stat.S_IMODE(found.st_mode), int(found.st_mtime)
    info.uid, info.gid = (found.st_uid, found.st_gid) if owners else (0, 0)
    if kind == tarfile.REGTYPE:
        info.size = found.st_size
    elif kind == tarfile.SYMTYPE:
        info.linkname = str(path.readlink())
    elif kind in (tarfile.CHRTYPE, tarfile.BLKTYPE):
        info.devmajor, info.devminor = os.major(found.st_rdev), os.minor(found.st_rdev)
    return info


def _file_content(path: Path, size: int) -> Iterator[bytes]:
    """Yield exactly so many bytes, and the zeros up to the next block: a file may change while it is read."""
    left = size
    with path.open("rb", buffering=0) as file:
        while left and (piece := file.read(min(left, _PART))):
            left -= len(piece)
            yield piece
    while left:
        yield bytes(min(left, _PART))
        left -= min(left, _PART)
    yield bytes(-size % BLOCK)
