# SPDX-License-Identifier: Apache-2.0
"""`cp`: files between the host and a named machine, by the rules of `docker cp`."""

from __future__ import annotations

import contextlib
import os
import posixpath
import select
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import AnswerNo, HostError, UserInputError
from vmtailor.base.text import plain
from vmtailor.drivers.host import control_socket, guest_archive
from vmtailor.drivers.host.control_socket import (
    AHEAD_BYTES,
    ControlSocket,
    FromSupervisor,
    ToSupervisor,
    exit_of,
    failure_of,
    frame,
)
from vmtailor.drivers.host.guest_archive import ArchiveFromGuest, Unpacked
from vmtailor.drivers.host.machine_folders import MachineFolder, MachineFolders

#: Standard input or output.
STREAM = "-"
#: Seconds in which a guest must take or give something: over a serial line, on a busy host, 64 KiB take minutes.
SILENCE_S = 600.0
#: Links that are followed one behind the other.
_MOST_LINKS = 40
_PART = 64 << 10
_SAID_BYTES = 4096


@dataclass(frozen=True)
class CopyPlace:
    """One end of a copy. `machine`: its name; empty for the host."""

    machine: str
    path: str


def parse_place(text: str) -> CopyPlace:
    """Return the place that `NAME:PATH` or `PATH` names; a path that begins with `/` or `.` is the host's."""
    name, colon, path = text.partition(":")
    if not colon or text.startswith(("/", ".")):
        return CopyPlace("", text)
    return CopyPlace(name, path)


@dataclass(frozen=True)
class CopyWishes:
    """`owners`: numbers of users and groups are kept. `follow`: a link that is the source is followed."""

    owners: bool = False
    follow: bool = False


def copy(source: str, target: str, wishes: CopyWishes, folders: MachineFolders) -> str:
    """Copy from a machine to the host, or the other way; returns words for whoever looks at a terminal.

    Raises UserInputError, NoMachine, NotRunning, AnswerNo where the guest refuses, HostileArchive, HostError."""
    here, there = parse_place(source), parse_place(target)
    if bool(here.machine) == bool(there.machine):
        what = "neither end is in a machine" if not here.machine else "both ends are in machines"
        raise UserInputError(
            f"{what}: {plain(source)}, {plain(target)}", hint="vmtailor cp NAME:PATH PATH, or the other way"
        )
    if here.machine:
        return _from_guest(folders.find(here.machine), here.path, there.path, wishes)
    return _to_guest(folders.find(there.machine), here.path, there.path, wishes)


def _absolute(path: str) -> str:
    """Return a guest's path, from its root; what is at its end (`/`, `/.`) stays."""
    return path if path.startswith("/") else f"/{path}"


def _base(path: str) -> str:
    """Return the last component of a path; empty where it names a folder's content (`x/.`, `/`)."""
    if path.endswith("/.") or path == ".":
        return ""
    name = path.rstrip("/").rpartition("/")[2]
    return "" if name == ".." else name


def _refused(folder: MachineFolder, path: str, words: str) -> AnswerNo:
    return AnswerNo(f"{folder.record.name}:{plain(path)}: {words or 'the machine refused'}")


# --- out of a guest


def _sent(line: ControlSocket, folder: MachineFolder, path: str) -> Iterator[bytes]:
    """Yield an archive as it comes. Raises AnswerNo where the guest says that it is not whole."""
    said = bytearray()
    for kind, payload in control_socket.frames(line, SILENCE_S):
        if kind == FromSupervisor.STDOUT:
            yield payload
        elif kind == FromSupervisor.STDERR:
            said += payload[: _SAID_BYTES - len(said)]
        elif kind == FromSupervisor.EXIT:
            end = exit_of(payload)
            if end.code:
                raise _refused(folder, path, plain(end.why or bytes(said).decode("utf-8", "replace").strip()))
            return
    raise control_socket.BrokenLine("ended in the middle of a copy")


@contextlib.contextmanager
def _archive(folder: MachineFolder, path: str) -> Iterator[Iterator[bytes]]:
    # What stands behind the last slash is for our rules: `etc/.` is the folder `etc`.
    asked = posixpath.normpath(path) if path.endswith(("/", "/.")) else path
    with control_socket.asked(folder, "archive", [("path", asked)]) as line:
        try:
            yield _sent(line, folder, path)
        except control_socket.RequestRefused as error:
            raise _refused(folder, path, error.message) from error


def _from_guest(folder: MachineFolder, path: str, target: str, wishes: CopyWishes) -> str:
    source = _absolute(path)
    if wishes.follow:
        source = _followed(folder, source)
    with _archive(folder, source) as chunks:
        if target == STREAM:
            for part in chunks:
                _write_whole(part)
            return ""
        archive = ArchiveFromGuest(chunks)
        if source.endswith(("/", "/.")) and not archive.is_folder:
            raise _refused(folder, path, "it is not a folder")
        into, name = host_place(Path(target), target, folder=archive.is_folder, base=_base(source))
        return _told(archive.unpack(into, name, owners=wishes.owners))


def _write_whole(part: bytes) -> None:
    view = memoryview(part)
    while view:
        try:
            view = view[os.write(1, view) :]
        except BlockingIOError:
            select.select([], [1], [], 1.0)


def host_place(path: Path, text: str, *, folder: bool, base: str) -> tuple[Path, str]:
    """Return the folder of the host that an archive goes into, and the name of its first member there; "" where what is
    in it goes there. `text`: the path as it was given. Raises UserInputError."""
    wants_folder = text.endswith(("/", "/.")) or text in (".", "..")
    path = Path(os.path.realpath(path))
    if path.is_dir():
        return path, base
    if os.path.lexists(path):
        if folder:
            raise UserInputError(f"{path} is a file, and a folder cannot take its place", hint="name a folder")
        if wants_folder:
            raise UserInputError(f"{path} is not a folder", hint="leave the last / out")
        return path.parent, path.name
    if not path.parent.is_dir():
        raise UserInputError(f"the folder {path.parent} does not exist", hint="make it first")
    if wants_folder and not folder:
        raise UserInputError(f"the folder {path} does not exist", hint="make it first, or leave the last / out")
    return path.parent, path.name


def _told(done: Unpacked) -> str:
    parts = [f"{number} × {kind}" for kind, number in sorted(done.left_out.items())]
    return f"left out: {', '.join(parts)}" if parts else ""


def _followed(folder: MachineFolder, path: str) -> str:
    """Return the path that a link, or a chain of links, leads to."""
    for _ in range(_MOST_LINKS):
        target = _seen(folder, path)
        if target is None or target.link is None:
            return path
        path = posixpath.join(posixpath.dirname(path.rstrip("/")), target.link)
    raise _refused(folder, path, "too many links lead on from it")


@dataclass(frozen=True)
class GuestFile:
    """A file of a guest. `link`: where a symbolic link leads; None for another kind."""

    is_folder: bool
    link: str | None


def _seen(folder: MachineFolder, path: str) -> GuestFile | None:
    """Return the kind of a file in the guest; None where there is none. Only the head of its archive is read."""
    try:
        with _archive(folder, path) as chunks:
            found = ArchiveFromGuest(chunks)
            return GuestFile(found.is_folder, found.link_target)
    except control_socket.NotRunning:
        raise
    except AnswerNo as error:
        if "no such file" in error.message.lower():
            return None
        raise


# --- into a guest


def _to_guest(folder: MachineFolder, source: str, target: str, wishes: CopyWishes) -> str:
    place = _followed(folder, _absolute(target))
    there = _seen(folder, place)
    if source == STREAM:
        if there is None or not there.is_folder:
            raise _refused(folder, target, "a stream needs a folder that is there")
        _extract(folder, place, _stdin())
        return ""
    path = Path(os.path.realpath(source)) if wishes.follow else Path(source)
    if not os.path.lexists(path):
        raise UserInputError(f"{plain(source)} does not exist", hint="check the path")
    # A slash at the end follows a link.
    is_folder = path.is_dir() and (not path.is_symlink() or source.endswith(("/", "/.")))
    if source.endswith(("/", "/.")) and not is_folder:
        raise UserInputError(f"{plain(source)} is not a folder", hint="leave the last / out")
    base = _base(source) if source not in ("..", "../") else Path(os.path.realpath(source)).name
    into, name = _guest_place(folder, place, there, is_folder=is_folder, base=base)
    real = Path(os.path.realpath(path)) if is_folder else path
    _extract(folder, into, guest_archive.packed(real, name, owners=wishes.owners))
    return ""


def _guest_place(
    folder: MachineFolder, place: str, there: GuestFile | None, *, is_folder: bool, base: str
) -> tuple[str, str]:
    """Return the folder of the guest that an archive goes into, and the name of its first member there."""
    wants_folder = place.endswith(("/", "/."))
    clean = posixpath.normpath(place)
    if there is not None and there.is_folder:
        return clean, base
    if there is not None:
        if is_folder:
            raise _refused(folder, place, "it is a file, and a folder cannot take its place")
        if wants_folder:
            raise _refused(folder, place, "it is not a folder")
    elif wants_folder and not is_folder:
        raise _refused(folder, place, "the folder does not exist")
    parent, name = posixpath.split(clean)
    if there is None:
        above = _seen(folder, _followed(folder, parent))
        if above is None or not above.is_folder:
            raise _refused(folder, parent, "the folder does not exist")
    return parent, name


def _stdin() -> Iterator[bytes]:
    while data := os.read(0, _PART):
        yield data


def _extract(folder: MachineFolder, path: str, archive: Iterable[bytes]) -> None:
    """Send an archive to the guest, which unpacks it into a folder."""
    with control_socket.asked(folder, "extract", [("path", path)]) as line:
        talk = _Extraction(line, folder, path)
        for piece in archive:
            for at in range(0, len(piece), _PART):
                line.send(frame(ToSupervisor.STDIN, piece[at : at + _PART]))
                talk.wait_until(AHEAD_BYTES)
            if talk.ended:
                break
        if not talk.ended:
            line.send(frame(ToSupervisor.STDIN_END))
        talk.wait_for_end()


class _Extraction:
    """The guest's side of an archive that is sent to it."""

    def __init__(self, line: ControlSocket, folder: MachineFolder, path: str) -> None:
        self._line, self._folder, self._path = line, folder, path
        self._said = bytearray()
        self.ended = False

    def wait_until(self, unsent: int) -> None:
        """Wait until so little waits to be sent, or the guest has ended the session."""
        self._take(0.0)
        while not self.ended and self._line.unsent > unsent:
            self._take(SILENCE_S)

    def wait_for_end(self) -> None:
        """Wait for the guest's verdict. Raises AnswerNo."""
        while not self.ended:
            self._take(SILENCE_S)

    def _take(self, timeout_s: float) -> None:
        poll = select.poll()
        poll.register(self._line, select.POLLIN | (select.POLLOUT if self._line.unsent else 0))
        began_s = time.monotonic()
        ready = poll.poll(round(1000 * timeout_s))
        if not ready and timeout_s and time.monotonic() - began_s >= timeout_s:
            raise HostError(
                f"{self._folder.record.name} has taken nothing for {timeout_s:.0f} s",
                hint=f"vmtailor logs {self._folder.record.name}",
            )
        for _, events in ready:
            if events & select.POLLOUT:
                self._line.flush()
            if events & ~select.POLLOUT:
                self._hear()

    def _hear(self) -> None:
        for kind, payload in self._line.receive():
            if kind == FromSupervisor.STDERR:
                self._said += payload[: _SAID_BYTES - len(self._said)]
            elif kind == FromSupervisor.FAILURE:
                raise _refused(self._folder, self._path, failure_of(payload))
            elif kind == FromSupervisor.EXIT:
                self.ended = True
                end = exit_of(payload)
                if end.code:
                    words = end.why or bytes(self._said).decode("utf-8", "replace").strip()
                    raise _refused(self._folder, self._path, plain(words))
        if self._line.ended and not self.ended:
            raise control_socket.BrokenLine("ended in the middle of a copy")
