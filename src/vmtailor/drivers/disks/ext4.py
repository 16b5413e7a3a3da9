# SPDX-License-Identifier: Apache-2.0
"""An ext4 file system on a disk image, read and written by debugfs: nothing is mounted."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from vmtailor.base.errors import UserInputError
from vmtailor.base.process import CommandFailed, OutputTooLong
from vmtailor.drivers.disks.file_system import Entry
from vmtailor.drivers.disks.sandbox import run_shut_in
from vmtailor.model.systems.tree import Node, NodeKind

ROOT_INODE = 2
#: Bytes that one listing prints at most, and folders requested at once.
_MOST_BYTES, _AT_ONCE = 256 << 20, 500
_TIMEOUT_S = 120.0
_ENTRY = re.compile(rb"/(\d{1,10})/([0-7]{6})/\d+/\d+/([^/\0]{1,255})/(\d*)/", re.DOTALL)
_FAST_LINK = re.compile(rb'^Fast link dest: "', re.MULTILINE)
#: A number of bmap's, and digits of the largest that fits a disk.
_NUMBER, _DIGITS = re.compile(rb"[0-9]+"), 20
_SIZE = re.compile(rb"^User: .*?\bSize: (\d{1,20})$", re.MULTILINE)
_KINDS = {0o10: NodeKind.FILE, 0o04: NodeKind.FOLDER, 0o12: NodeKind.LINK}
#: The superblock: where it is, its magic number, and the fields that say how it was left.
_SUPER_AT, _SUPER_BYTES, _MAGIC = 1024, 1024, 0xEF53
_NEEDS_RECOVERY, _JOURNAL_DEVICE = 0x4, 0x8
#: Blocks have 1024 bytes shifted by this at most: 64 KiB.
_MOST_SHIFT = 6
_CLEAN, _WITH_ERRORS = 1, 2
_PATH_BYTES = 4095
_BROKEN = "for details, run e2fsck -f on a copy of it"
#: A command without effect that is repeated like all others: behind the last answer, it shows that nothing is cut off.
_END = "# end of the answers"
#: The only line of its errors that tells of none.
_BANNER = re.compile(rb"debugfs \d[^\n]*")


@dataclass(frozen=True)
class _Debugfs:
    """debugfs on the file system at an offset of raw bytes. `fault` and `hint`: of the UserInputError for one that it
    cannot open. `writable`: whether it may write to the folder of `raw`."""

    raw: Path
    offset: int
    fault: str
    hint: str = ""
    writable: bool = False

    def answer(self, command: str, most_bytes: int) -> bytes:
        """Return its answer to one command. Raises UserInputError where it complains."""
        return self._run(["-R", command], None, most_bytes, complains=False)

    def script(self, commands: Sequence[str], most_bytes: int, *, write: bool = False, complains: bool = True) -> bytes:
        """Return its answers to commands; it repeats each command before its answer. `write`: they change files.
        `complains`: whether it may say that something is wrong."""
        words = [*(["-w"] if write else []), "-f", "-"]
        return self._run(words, "".join(f"{one}\n" for one in commands).encode(), most_bytes, complains=complains)

    def _run(self, words: list[str], commands: bytes | None, most_bytes: int, *, complains: bool) -> bytes:
        try:
            done = run_shut_in(
                "debugfs", [*words, f"{self.raw}?offset={self.offset}"], shown=() if self.writable else (self.raw,),
                written=self.raw.parent if self.writable else None, package="e2fsprogs", most_bytes=most_bytes,
                timeout_s=_TIMEOUT_S, stdin_bytes=commands,
            )  # fmt: skip
        except OutputTooLong as error:
            raise UserInputError(f"{self.fault}: {error.message}", hint=self.hint) from error
        except CommandFailed as error:
            raise UserInputError(self.fault, hint=self.hint, details=error.details) from error
        said = b"Filesystem not open" in done.stderr or b"while trying to open" in done.stderr
        # It ends well whatever it could not read, and what it has printed until then looks like all.
        if said or not (complains or all(map(_BANNER.fullmatch, done.stderr.splitlines()))):
            raise UserInputError(self.fault, hint=self.hint, details=done.error_text[-2000:])
        return done.stdout


class Ext4:
    """The file system at an offset of raw bytes. Raises UserInputError when it is not whole, clean and plain. `name`:
    what messages call it."""

    root = ROOT_INODE

    def __init__(self, raw: Path, offset: int, name: str) -> None:
        self._raw = raw
        self._debugfs = _Debugfs(raw, offset, f"{name} is damaged", _BROKEN)
        self._name = name
        self._offset = offset
        self._block = require_clean(raw, offset, name)
        self._blocks = max(0, raw.stat().st_size - offset) // self._block

    def folders(self, inodes: Sequence[int]) -> dict[int, dict[str, Entry]]:
        """Return the content of directories. Raises UserInputError where one cannot be read whole."""
        found = {}
        for inode, text in self._ask_each("ls -p", inodes).items():
            entries = {}
            for number, mode, name, size in _ENTRY.findall(text):
                kind = _KINDS.get(int(mode, 8) >> 12, NodeKind.OTHER)
                known = name.decode("utf-8", "surrogateescape")
                if known not in (".", "..") and int(number):
                    entries[known] = Entry(int(number), Node(kind, int(size or 0) if kind is NodeKind.FILE else 0))
            found[inode] = entries
        return found

    def targets(self, inodes: Sequence[int]) -> dict[int, str]:
        """Return the targets of symbolic links; empty for a path that is none."""
        found = {}
        for inode, text in self._ask_each("stat", inodes).items():
            fast, size = _FAST_LINK.search(text), _SIZE.search(text)
            # The target may hold line feeds and quotation marks: the last mark at the end of a line ends it.
            target = text[fast.end() : max(fast.end(), (text + b"\n").rfind(b'"\n'))] if fast else b""
            if not fast and size and 0 < int(size[1]) <= _PATH_BYTES:
                target = self.read(inode, int(size[1]))
            found[inode] = target.decode("utf-8", "surrogateescape")
        return found

    def read(self, inode: int, size: int) -> bytes:
        """Return the content of a file of `size` bytes. Raises UserInputError when it has not so many."""
        data = self._debugfs.answer(f"cat <{inode}>", size + 4096)
        if len(data) != size:
            raise UserInputError(f"{self._name} is damaged: a file has {len(data)} bytes, not {size}", hint=_BROKEN)
        return data

    def begin(self, inode: int, count: int) -> bytes:
        """Return the first bytes of a file. Holes are zeros; of a file within its inode there are none."""
        numbers = range(-(-count // self._block))
        found = b""
        with self._raw.open("rb") as file:
            for said in self._ask([f"bmap <{inode}> {number}" for number in numbers]):
                at = self._offset + self._block * self._number(said)
                if at > self._offset:
                    file.seek(at)
                    found += file.read(self._block)
                else:
                    found += bytes(self._block)
        return found[:count]

    def _number(self, said: bytes) -> int:
        """Return a block's number; 0 for a hole. Raises UserInputError for one that is beyond the file system."""
        number = _NUMBER.match(said)
        if number is None:
            return 0
        if len(number[0]) > _DIGITS or int(number[0]) >= self._blocks:
            raise UserInputError(f"{self._name} is damaged: a file reaches beyond its end", hint=_BROKEN)
        return int(number[0])

    def _ask_each(self, command: str, inodes: Sequence[int]) -> dict[int, bytes]:
        """Return the answers of one command for each inode."""
        unique = list(dict.fromkeys(inodes))
        return dict(zip(unique, self._ask([f"{command} <{inode}>" for inode in unique]), strict=True))

    def _ask(self, commands: Sequence[str]) -> list[bytes]:
        """Return the answers of debugfs to different commands."""
        found: list[bytes] = []
        for first in range(0, len(commands), _AT_ONCE):
            some = commands[first : first + _AT_ONCE]
            said = self._debugfs.script([*some, _END], _MOST_BYTES, complains=False)
            if not said.endswith(b"\n" + _END.encode() + b"\n"):
                raise UserInputError(f"{self._name} cannot be read: debugfs stopped before its end", hint=_BROKEN)
            said = said[: -len(_END) - 1]
            echoes = [f"debugfs: {one}\n".encode() for one in some]
            at = 0 if said.startswith(echoes[0]) else said.find(b"\n" + echoes[0]) + 1
            for echo, after in zip(echoes, [*echoes[1:], b""], strict=True):
                start = at + len(echo)
                end = said.find(b"\n" + after, start - 1) + 1 if after else len(said)
                if said[at:start] != echo or end < start:
                    raise UserInputError(f"{self._name} is damaged: its directories cannot be read", hint=_BROKEN)
                found.append(said[start:end])
                at = end
        return found


def require_clean(raw: Path, offset: int, name: str) -> int:
    """Return bytes of a block. Raises UserInputError for a file system that was not left in order: what its journal
    still holds is not in place."""
    with raw.open("rb") as file:
        file.seek(offset + _SUPER_AT)
        block = file.read(_SUPER_BYTES)
    if len(block) < _SUPER_BYTES or struct.unpack_from("<H", block, 0x38)[0] != _MAGIC:
        raise UserInputError(f"{name} is not an ext4 file system", hint=_BROKEN)
    state, shift = struct.unpack_from("<H", block, 0x3A)[0], struct.unpack_from("<I", block, 0x18)[0]
    incompatible = struct.unpack_from("<I", block, 0x60)[0]
    if incompatible & _JOURNAL_DEVICE:
        raise UserInputError(f"{name} is the journal of another file system", hint="give the disk that has the system")
    if incompatible & _NEEDS_RECOVERY or not state & _CLEAN:
        raise UserInputError(
            f"{name} was not cleanly unmounted: its machine runs, or was switched off",
            hint="start the machine and shut it down, or run e2fsck -p on a copy of the disk",
        )
    if state & _WITH_ERRORS:
        raise UserInputError(f"{name} has errors that its kernel recorded", hint=_BROKEN)
    if shift > _MOST_SHIFT:
        raise UserInputError(f"{name} is damaged: its blocks have no known size", hint=_BROKEN)
    return 1024 << int(shift)


#: A path whose parts cannot be read as anything but names in debugfs's commands.
_PLAIN = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[\w.@+-]{1,255})+", re.ASCII)
_ROOM_BYTES = 1 << 20
_OWNER = re.compile(rb"^User:\s+(\d+)\s+Group:\s+(\d+)\b", re.MULTILINE)
_MODE = re.compile(rb"\bType: regular\s+Mode:\s+([0-7]{4})\b")
_THERE = re.compile(rb"\bType: (?:regular|symlink)\b")


def require_plain(path: str) -> None:
    """Raise UserInputError for a path that is not absolute, or has more than plain names in it."""
    if not _PLAIN.fullmatch(path):
        raise UserInputError(
            f"{path!r} is not a path that can be changed",
            hint="give an absolute path of letters, digits and . _ - + @, like /etc/docker/daemon.json",
        )


def put(raw: Path, offset: int, files: Mapping[str, bytes | None], name: str) -> None:
    """Give files other content; None: no such file is left. One that is there keeps its owner and mode, a new one is
    root's, for all to read; a link is replaced by a file. `raw`: raw bytes in a folder of our own; `name`: what
    messages call the file system.

    Raises UserInputError for a path that is not plain, whose folder is not there, or for which there is no room."""
    for path in files:
        require_plain(path)
    require_clean(raw, offset, name)
    debugfs = _Debugfs(raw, offset, f"{name} cannot be written to", writable=True)
    commands, contents = [], []
    for number, (path, data) in enumerate(files.items()):
        at = PurePosixPath(path)
        about = debugfs.script([f"stat {path}"], _MOST_BYTES)
        mode, owner = _MODE.search(about), _OWNER.search(about)
        if _THERE.search(about):
            commands.append(f"rm {path}")
        if data is not None:
            content = raw.with_name(f"{raw.name}.content-{number}")
            content.write_bytes(data)
            contents.append(content)
            user, group = (int(owner[1]), int(owner[2])) if mode and owner else (0, 0)
            commands += [f"cd {at.parent}", f"write {_quoted(content)} {at.name}", f"sif {at.name} uid {user}"]
            commands += [f"sif {at.name} gid {group}", f"sif {at.name} mode 010{mode[1].decode() if mode else '0644'}"]
    try:
        debugfs.script(commands, raw.stat().st_size + _ROOM_BYTES, write=True)
    finally:
        for content in contents:
            content.unlink()
    for path, data in files.items():
        _require_there(debugfs, path, data, name)


def _require_there(debugfs: _Debugfs, path: str, data: bytes | None, name: str) -> None:
    """debugfs ends well whatever becomes of its commands: what it has done is looked at."""
    there = _THERE.search(debugfs.script([f"stat {path}"], _MOST_BYTES)) is not None
    if data is None and not there:
        return
    if data is not None and there and debugfs.answer(f"cat {path}", len(data) + _ROOM_BYTES) == data:
        return
    raise UserInputError(
        f"{path} cannot be changed on {name}",
        hint=f"there must be a folder {PurePosixPath(path).parent}, and room for the file",
    )


def _quoted(path: Path) -> str:
    """Return one word of debugfs's, whatever the cache's folder is called."""
    return '"' + str(path).replace('"', '""') + '"'
