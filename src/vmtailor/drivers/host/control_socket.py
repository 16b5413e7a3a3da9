# SPDX-License-Identifier: Apache-2.0
"""The control socket of a machine's supervisor.

Frames both ways: type (1 byte) | length (4, little endian) | payload (at most 64 KiB). The first one is a request:
records, `do VERB` before all others. The supervisor is a program of ours; what it passes on is a guest's."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from vmtailor.base.errors import AnswerNo, HostError, UserInputError
from vmtailor.base.text import plain
from vmtailor.drivers.guest.guest_text import parse_exit
from vmtailor.drivers.host.machine_folders import MachineFolder, parse_records

MAX_PAYLOAD = 64 << 10
_HEAD = struct.Struct("<cI")
#: Bytes that are read at once.
_PART = 256 << 10
#: Bytes that may wait to be sent, before more is taken from whoever sends.
AHEAD_BYTES = 128 << 10
#: Seconds for a supervisor to take a connection, and to answer a plain question.
CONNECT_S, ANSWER_S = 5.0, 15.0
_AGAIN = "vmtailor ps -a shows its state"


class ToSupervisor(StrEnum):
    REQUEST = "Q"
    STDIN = "i"
    STDIN_END = "e"
    SIGNAL = "s"
    WINDOW = "w"


class FromSupervisor(StrEnum):
    STDOUT = "O"
    STDERR = "E"
    EXIT = "X"
    ANSWER = "R"
    FAILURE = "F"


_KINDS = {str(kind) for kind in FromSupervisor}


@dataclass(frozen=True)
class ProgramExit:
    """The end of a program in the guest. `signal`: that ended it, or 0; `why`: it could not be executed."""

    code: int
    signal: int = 0
    why: str = ""


class NotRunning(AnswerNo):
    """A machine that does not run was asked for something that only a running one can do."""

    def __init__(self, folder: MachineFolder) -> None:
        name = folder.record.name
        super().__init__(f"the machine {name} is not running", hint=f"vmtailor start {name}")


class BrokenLine(HostError):
    """The supervisor said what is no frame, or ended in the middle of one."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the machine's supervisor {what}", hint=_AGAIN)


class RequestRefused(AnswerNo):
    """The supervisor, or the guest, refused a request."""


def frame(kind: str, payload: bytes = b"") -> bytes:
    """Return a frame as bytes. Raises ValueError for a payload that is too long."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a frame holds {MAX_PAYLOAD} bytes, not {len(payload)}")
    return _HEAD.pack(kind.encode("ascii"), len(payload)) + payload


def request(verb: str, pairs: Iterable[tuple[str, str]] = ()) -> bytes:
    """Return the frame of a request. Raises UserInputError for a NUL in a value, and for what no frame can hold."""
    out = bytearray()
    for key, value in (("do", verb), *pairs):
        if "\0" in value:
            raise UserInputError(f"a NUL in {key!r}: {value[:80]!r}", hint="no argument, variable or path can hold one")
        out += f"{key} {value}".encode("utf-8", "surrogateescape") + b"\0"
    if len(out) > MAX_PAYLOAD:
        raise UserInputError(
            f"the command and its variables have {len(out)} bytes, and a request has room for {MAX_PAYLOAD}",
            hint="put them into a file, and copy it with vmtailor cp",
        )
    return frame(ToSupervisor.REQUEST, bytes(out))


class FrameReader:
    """Takes bytes as they come, and gives frames; holds no more than one that is not whole."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[tuple[str, bytes]]:
        """Return the frames that are whole now. Raises BrokenLine for what is no frame."""
        self._held += data
        frames: list[tuple[str, bytes]] = []
        at = 0
        while len(self._held) - at >= _HEAD.size:
            raw, length = _HEAD.unpack_from(self._held, at)
            kind = raw.decode("latin-1")
            if kind not in _KINDS or length > MAX_PAYLOAD:
                raise BrokenLine(f"says what cannot be understood: {plain(repr(bytes(self._held[at : at + 5])))}")
            end = at + _HEAD.size + length
            if end > len(self._held):
                break
            frames.append((kind, bytes(self._held[at + _HEAD.size : end])))
            at = end
        del self._held[:at]
        return frames

    @property
    def within(self) -> bool:
        """Return whether a frame has begun and is not whole."""
        return bool(self._held)


class ControlSocket:
    """One connection to a machine's supervisor, with its request sent. Reads and writes do not block."""

    def __init__(self, folder: MachineFolder, first: bytes) -> None:
        self.folder = folder
        self._reader = FrameReader()
        self._sending = bytearray()
        self.ended = False
        self._socket = _connected(folder)
        self._socket.setblocking(False)
        self.send(first)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    @property
    def unsent(self) -> int:
        """Return the bytes that wait to be sent."""
        return len(self._sending)

    def send(self, data: bytes) -> None:
        """Queue a frame, and send what can be sent at once. What can no longer be sent is dropped: the end of the
        connection is read as such."""
        self._sending += data
        self.flush()

    def flush(self) -> None:
        """Send what waits, as far as it goes now."""
        while self._sending:
            try:
                sent = self._socket.send(memoryview(self._sending)[:_PART])
            except BlockingIOError:
                return
            except OSError:
                self._sending.clear()
                return
            del self._sending[:sent]

    def receive(self) -> list[tuple[str, bytes]]:
        """Return the frames that have come; empty when there are none yet, and once `ended`. Raises BrokenLine."""
        try:
            data = self._socket.recv(_PART)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if data:
            return self._reader.feed(data)
        self.ended = True
        if self._reader.within:
            raise BrokenLine("ended in the middle of an answer")
        return []


def _connected(folder: MachineFolder) -> socket.socket:
    """Return a connection to the supervisor of a machine, which is our own or root's. Raises NotRunning."""
    path = folder.control
    try:
        held = folder.runtime.lstat()
        if not stat.S_ISDIR(held.st_mode) or held.st_uid != os.geteuid() or held.st_mode & 0o022:
            raise HostError(f"{folder.runtime} is not a folder of yours alone", hint=f"remove {folder.runtime}")
    except FileNotFoundError as error:
        raise NotRunning(folder) from error
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    directory = -1
    try:
        made.settimeout(CONNECT_S)
        # A socket's path has 108 bytes at most: a folder deep below another home has more.
        directory = os.open(folder.runtime, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        made.connect(f"/proc/self/fd/{directory}/{path.name}")
        if peer_of(made) not in (0, os.geteuid()):
            raise HostError(f"somebody else answers at {path}", hint=f"remove {folder.runtime}")
    except (FileNotFoundError, ConnectionRefusedError) as error:
        made.close()
        raise NotRunning(folder) from error
    except TimeoutError as error:
        made.close()
        raise HostError(f"the supervisor of {folder.record.name} takes no connection", hint=_AGAIN) from error
    except BaseException:
        made.close()
        raise
    finally:
        if directory >= 0:
            os.close(directory)
    return made


def peer_of(connection: socket.socket) -> int:
    """Return the user who answers a connection."""
    form = struct.Struct("3i")
    return int(form.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, form.size))[1])


@contextlib.contextmanager
def asked(folder: MachineFolder, verb: str, pairs: Iterable[tuple[str, str]] = ()) -> Iterator[ControlSocket]:
    """Ask a supervisor for something; yields the connection. Raises NotRunning."""
    line = ControlSocket(folder, request(verb, pairs))
    try:
        yield line
    finally:
        line.close()


def frames(line: ControlSocket, timeout_s: float | None) -> Iterator[tuple[str, bytes]]:
    """Yield frames until the connection ends. Raises HostError when none has come for so long, BrokenLine, and
    RequestRefused for a failure that the supervisor tells."""
    wait_ms = None if timeout_s is None else round(1000 * timeout_s)
    poll = select.poll()
    while not line.ended:
        poll.register(line.fileno(), select.POLLIN | (select.POLLOUT if line.unsent else 0))
        ready = poll.poll(wait_ms)
        if not ready:
            raise HostError(f"the supervisor of {line.folder.record.name} does not answer", hint=_AGAIN)
        if ready[0][1] & select.POLLOUT:
            line.flush()
        if ready[0][1] & ~select.POLLOUT:
            for kind, payload in line.receive():
                if kind == FromSupervisor.FAILURE:
                    raise RequestRefused(failure_of(payload), hint=_AGAIN)
                yield kind, payload


def failure_of(payload: bytes) -> str:
    """Return the words of a failure, on one line."""
    return plain(payload[:2000].decode("utf-8", "replace").strip()) or "the machine's supervisor refused"


def exit_of(payload: bytes) -> ProgramExit:
    """Return the end that a frame tells: `CODE SIGNAL WHY`."""
    return ProgramExit(*parse_exit(payload))


def answer(folder: MachineFolder, verb: str, pairs: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """Return the records of one answer. Raises NotRunning, RequestRefused, HostError."""
    with asked(folder, verb, pairs) as line:
        for kind, payload in frames(line, ANSWER_S):
            if kind == FromSupervisor.ANSWER:
                return parse_records(payload)
            if kind == FromSupervisor.EXIT:
                return {}
    raise BrokenLine("ended without an answer")
