# SPDX-License-Identifier: Apache-2.0
"""Machines with a name, the quick way: `run -d` of a bundle whose orders were kept, and `start` of one machine by the
orders in its folder. What is not as expected goes the long way, which says what is wrong.

As cli/quick_start.py, this imports next to nothing."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import time
from collections.abc import Iterable
from typing import Any

from vmtailor.base.files import file_lock
from vmtailor.drivers.host import machine_names, user_folders

#: Exit status of a supervisor that found a file changed, and has started nothing.
_DECLINED = 200
_MARK = b"\0named\0"
_VERSION = b"vmtailor 1\0"
_MOST_BYTES = 64 << 20
_HEX, _NAME = frozenset("0123456789abcdef"), frozenset("_.-")
_DISK = "layer.raw"


def template(record: bytes, note: str, make_disk: Iterable[str], orders: bytes) -> bytes:
    """Return what is kept of a machine, for others like it. `record`: of its folder, and `orders`, both without
    variables of -e; `note`: a line that is to be said, without the name; `make_disk`: the command that makes the disk
    of what it writes, without its path, or nothing."""
    parts = [b"record " + record, b"note " + note.encode("utf-8", "surrogateescape")]
    parts += [b"runtime " + os.fsencode(user_folders.runtime_home())]
    parts += [b"mkfs " + os.fsencode(word) for word in make_disk]
    return b"\0".join(parts) + _MARK + orders


def follow(kept: bytes, supervisor: str, name: str, variables: list[str], words: list[str]) -> None:
    """Make a machine as the kept one was, and become its supervisor; returns where that cannot be, and nothing is left
    then. `variables`: of -e; `words`: the program's arguments."""
    head, _, orders = kept.partition(_MARK)
    pairs = [part.partition(b" ")[::2] for part in head.split(b"\0")]
    values = dict(pairs)
    try:
        record: dict[str, Any] = json.loads(values[b"record"])
        asked = _with_variables(record, variables)
        made = _Made(record["id"], orders)
        made.make(name, record, [os.fsdecode(value) for key, value in pairs if key == b"mkfs"], asked)
    except (OSError, ValueError, KeyError, _Impossible):
        return
    try:
        if note := values[b"note"].decode("utf-8", "surrogateescape"):
            from vmtailor.base import output

            output.note(f"vmtailor: {made.name} {note}")
        runtime = os.fsdecode(values[b"runtime"])
        anew = (sys.executable, "-P", "-m", "vmtailor.cli.run_anew", "--undo", made.identifier, *words)
        more = [("start-print", made.identifier), *(("otherwise", word) for word in anew)]
        number = _orders(made.orders, made.path, f"{runtime}/{made.identifier}", more)
        os.execv(supervisor, [supervisor, str(number)])
    except OSError:
        made.remove()


class _Impossible(Exception):
    """It goes the long way."""


def _with_variables(record: dict[str, Any], variables: list[str]) -> bytes:
    """Put variables into a record, and return them as orders. Raises UnicodeError for what is no text."""
    given = {name: value for name, _, value in (one.partition("=") for one in variables)}
    "".join(variables).encode()
    if given:
        record["env"] = [[name, value] for name, value in {**dict(record["env"]), **given}.items()]
        record["options"]["env"] = [f"{name}={value}" for name, value in given.items()]
    return b"".join(f"run env {name}={value}\0".encode() for name, value in given.items())


class _Made:
    """A new machine: its identifier, name and folder, and its orders."""

    def __init__(self, before: str, orders: bytes) -> None:
        if len(before) != 64 or not set(before) <= _HEX:
            raise _Impossible
        self.identifier = os.urandom(32).hex()
        home = user_folders.state_home()
        self.machines, self.names = home / "machines", home / "names"
        self.path = f"{self.machines}/{self.identifier}"
        self.name = ""
        self.orders = orders.replace(before.encode(), self.identifier.encode())

    def make(self, name: str, record: dict[str, Any], make_disk: list[str], asked: bytes) -> None:
        """Make the folder and all that is in it. Raises OSError, and leaves nothing then."""
        from vmtailor.base.errors import HostError

        try:
            user_folders.private(self.machines)
            user_folders.private(self.names)
        except HostError as error:
            raise _Impossible from error
        os.mkdir(self.path, 0o700)  # noqa: PTH102
        try:
            self._take(name)
            self.orders += asked
            now = time.time_ns() // 1000
            created = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 10**6))
            record.update(id=self.identifier, name=self.name, created=f"{created}.{now % 10**6:06d}Z")
            _write(f"{self.path}/machine.json", (json.dumps(record, indent=1, ensure_ascii=False) + "\n").encode())
            _write(f"{self.path}/orders", self.orders)
            if make_disk:
                _make_disk(f"{self.path}/{_DISK}", record["layer_bytes"], make_disk)
        except BaseException:
            self.remove()
            raise

    def _take(self, name: str) -> None:
        for attempt in range(20):
            chosen = name or machine_names.drawn(attempt)
            with contextlib.suppress(FileExistsError):
                os.symlink(self.identifier, f"{self.names}/{chosen}")  # noqa: PTH211
                self.name = chosen
                return
            if name:
                break
        raise _Impossible

    def remove(self) -> None:
        """Remove what was made."""
        import shutil

        if self.name:
            with contextlib.suppress(OSError):
                os.unlink(f"{self.names}/{self.name}")  # noqa: PTH108
        shutil.rmtree(self.path, ignore_errors=True)


def _write(path: str, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(file, "wb") as opened:  # noqa: PTH123
        opened.write(data)


def _make_disk(path: str, size: int, command: list[str]) -> None:
    _write(path, b"")
    os.truncate(path, size)
    pid = os.posix_spawn(command[0], [*command, path], os.environ)
    if os.waitpid(pid, 0)[1]:
        raise _Impossible


def _orders(orders: bytes, folder: str, runtime: str, more: Iterable[tuple[str, str]]) -> int:
    """Return the descriptor of orders in memory, with those of one start in the background."""
    pairs = [("state", folder), ("runtime", runtime), ("detached", "1"), *more]
    data = orders + b"".join(f"{key} {value}\0".encode("utf-8", "surrogateescape") for key, value in pairs)
    number = os.memfd_create("vmtailor-orders", 0)
    view = memoryview(data)
    while view:
        view = view[os.write(number, view) :]
    os.lseek(number, 0, os.SEEK_SET)
    return number


def is_name(text: str) -> bool:
    """Return whether a text may name a machine."""
    plain = all(one.isascii() and (one.isalnum() or one in _NAME) for one in text)
    return 1 < len(text) <= 128 and plain and text[0].isalnum()


# --- start


def start(name: str) -> None:
    """Start a machine by the orders in its folder, print its name once it is up, and exit; returns where that cannot
    be, and nothing was started then."""
    from vmtailor.base.errors import HostError

    try:
        home = user_folders.state_home()
        identifier = os.readlink(f"{home}/names/{name}").rpartition("/")[2]  # noqa: PTH115
        if len(identifier) != 64 or not set(identifier) <= _HEX:
            return
        folder = f"{home}/machines/{identifier}"
        orders = _of_us(folder, "orders")
        record = json.loads(_of_us(folder, "machine.json"))
        first = orders.removeprefix(_VERSION).partition(b"\0")[0]
        whole = orders.startswith(_VERSION) and orders.endswith(b"\0") and first.startswith(b"arg /")
        supervisor = os.path.join(os.path.dirname(os.fsdecode(first[4:])), "supervise")  # noqa: PTH118, PTH120
        if not whole or record["id"] != identifier or record["remove"] or file_lock.is_held(f"{folder}/alive"):
            return
        runtime = user_folders.private(user_folders.private(user_folders.runtime_home()) / identifier)
        number = _orders(orders, folder, str(runtime), ())
        said = os.memfd_create("vmtailor-said", 0)
        null = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, one, at) for at, one in enumerate((null, null, said))]
        pid = os.posix_spawn(supervisor, [supervisor, str(number)], os.environ, file_actions=actions)
    except (OSError, ValueError, KeyError, TypeError, HostError):
        return
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status == 0:
        from vmtailor.base import output

        output.say(name)
        sys.exit(0)
    if status != _DECLINED:
        _fail(name, os.pread(said, _MOST_BYTES, 0).decode("utf-8", "replace").strip())
    for one in (number, said, null):
        os.close(one)


def _fail(name: str, words: str) -> None:
    from vmtailor.base.errors import AnswerNo
    from vmtailor.cli.main import finish

    def fail() -> None:
        raise AnswerNo(f"{name} could not be started", hint=f"vmtailor inspect {name}", details=words)

    finish(fail, sys.argv[1:])


def _of_us(folder: str, name: str) -> bytes:
    """Return a file that we alone can have written. Raises OSError for another one."""
    file = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(file, "rb") as opened:  # noqa: PTH123
        found = os.fstat(file)
        if found.st_uid != os.geteuid() or not stat.S_ISREG(found.st_mode) or found.st_mode & 0o077:
            raise PermissionError
        return opened.read(_MOST_BYTES)
