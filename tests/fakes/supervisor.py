# SPDX-License-Identifier: Apache-2.0
"""A supervisor that is none: a thread that speaks the control socket of a named machine, as a test wants it to."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from vmtailor.drivers.host import machine_folders
from vmtailor.drivers.host.machine_folders import MachineFolder, MachineFolders
from vmtailor.model.kept_machine import KeptMachine

HEAD = struct.Struct("<cI")
Pairs = list[tuple[str, str]]


class Caller:
    """One connection, from the supervisor's side."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._held = b""
        self.closed = False

    def _take(self, size: int) -> bytes:
        while len(self._held) < size:
            try:
                part = self._connection.recv(65536)
            except OSError:
                part = b""
            if not part:
                self.closed = True
                raise EOFError
            self._held += part
        taken, self._held = self._held[:size], self._held[size:]
        return taken

    def read(self) -> tuple[str, bytes]:
        """The next frame. Raises EOFError when the caller has left."""
        kind, length = HEAD.unpack(self._take(HEAD.size))
        return kind.decode(), self._take(length)

    def send(self, kind: str, payload: bytes = b"") -> None:
        self.send_raw(HEAD.pack(kind.encode(), len(payload)) + payload)

    def send_raw(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError:
            self.closed = True
            raise EOFError from None

    def stdin(self) -> Iterator[bytes]:
        """What comes until the end of standard input."""
        while True:
            kind, payload = self.read()
            if kind == "e":
                return
            if kind == "i":
                yield payload


Handler = Callable[["Supervisor", Caller, Pairs], None]


def pairs_of(payload: bytes) -> Pairs:
    parts = payload.split(b"\0")
    assert parts.pop() == b""
    split = [part.decode("utf-8", "surrogateescape").partition(" ") for part in parts]
    return [(key, value) for key, _, value in split]


def _stop(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
    supervisor.end(143)
    caller.send("X", b"143 15 ")


def _wait(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
    supervisor.ended.wait(10)
    caller.send("X", f"{supervisor.code} 0 ".encode())


def _echo(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
    if ("stdin", "1") in pairs:
        for part in caller.stdin():
            caller.send("O", part)
    caller.send("X", b"0 0 ")


def _stats(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
    text = b"cpu-ns %d\0memory 104857600\0memory-used 20971520\0processes 3\0"
    caller.send("R", text % time.monotonic_ns())


HANDLERS: dict[str, Handler] = {
    "stop": _stop, "wait": _wait, "exec": _echo, "attach": _echo, "stats": _stats,
    "kill": lambda supervisor, caller, pairs: caller.send("R"),
}  # fmt: skip


class Supervisor:
    """The supervisor of a machine while the block runs. `requests`: verbs and records that came, in their order."""

    def __init__(self, folder: MachineFolder, **handlers: Handler) -> None:
        self.folder = folder
        self.requests: list[tuple[str, Pairs]] = []
        self.ended = threading.Event()
        self.code = 0
        self.handlers = {**HANDLERS, **handlers}
        self.errors: list[BaseException] = []
        self._lock = -1

    def write_state(self, status: str, **more: Any) -> None:
        values = {"status": status, **{key.replace("_", "-"): value for key, value in more.items()}}
        text = b"vmtailor 1\0" + b"".join(f"{key} {value}\0".encode() for key, value in values.items())
        path = self.folder.path / machine_folders.STATE
        path.with_suffix(".new").write_bytes(text)
        path.with_suffix(".new").rename(path)

    def __enter__(self) -> Supervisor:
        self.folder.runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(self.folder.path / machine_folders.ALIVE, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self.began_ns = time.time_ns()
        self.write_state("running", pid=os.getpid(), started_ns=self.began_ns)
        self._listening = socket.socket(socket.AF_UNIX)
        self.folder.control.unlink(missing_ok=True)
        here = os.open(self.folder.runtime, os.O_PATH)
        self._listening.bind(f"/proc/self/fd/{here}/{machine_folders.CONTROL}")
        os.close(here)
        self._listening.listen()
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listening.close()
        if not self.ended.is_set():
            self.kill()
        assert not self.errors, self.errors

    def end(self, code: int) -> None:
        """The container ends by itself."""
        self.code = code
        self.write_state("exited", exit=code, started_ns=self.began_ns, finished_ns=time.time_ns())
        self.kill()

    def kill(self) -> None:
        """The supervisor is gone without a word."""
        self.folder.control.unlink(missing_ok=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        self.ended.set()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            caller = Caller(connection)
            try:
                kind, payload = caller.read()
                assert kind == "Q"
                (do, verb), *pairs = pairs_of(payload)
                assert do == "do"
                self.requests.append((verb, pairs))
                self.handlers[verb](self, caller, pairs)
            except EOFError:
                pass
            except Exception as error:
                self.errors.append(error)


def record(name: str = "web", **changes: Any) -> KeptMachine:
    """A record of a machine."""
    made = KeptMachine(
        id=machine_folders.new_id(), name=name, bundle="/bundles/web", bundle_digest="sha256:00", image="oci:web",
        image_digest="sha256:11", command=("/server", "--port", "80"), created=machine_folders.now(),
        memory_bytes=64 << 20,
    )  # fmt: skip
    return replace(made, **changes)


def made(name: str = "web", **changes: Any) -> MachineFolder:
    """The folder of a new machine."""
    return MachineFolders().create(record(name, **changes))


@contextmanager
def running(name: str = "web", *, handlers: dict[str, Handler] | None = None, **changes: Any) -> Iterator[Supervisor]:
    """A new machine that runs."""
    with Supervisor(made(name, **changes), **(handlers or {})) as supervisor:
        yield supervisor


def log_lines(folder: MachineFolder, *lines: str, name: str = "log") -> Path:
    """Write lines of a log."""
    path = folder.path / name
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
