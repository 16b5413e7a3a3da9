# SPDX-License-Identifier: Apache-2.0
"""A second `run` of the same bundle with the same options: orders that the first one made are kept in the cache, and
followed if nothing of what they were made from has changed. All else goes the long way, in which everything is checked.

This module is imported before anything that takes time, and imports next to nothing itself. What is of one start alone
is never kept: variables of -e, the size of the terminal, the key of the run, free ports, standard input."""

from __future__ import annotations

import os
import stat
import sys
import time

from vmtailor import __version__

TYPE_CHECKING = False  # `typing` and `collections` would be the largest part of a start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Options that may be among those of a kept start, without and with a value. Others go the long way.
FLAGS = (
    "-i", "--interactive", "-t", "--tty", "-it", "-ti", "--rm", "--init", "--outbound", "--no-outbound",
    "--host-loopback", "--privileged",
)  # fmt: skip
VALUES = (
    "-e", "--env", "-p", "--publish", "-u", "--user", "-w", "--workdir", "-h", "--hostname", "--entrypoint",
    "--stop-signal", "--stop-timeout", "-m", "--memory", "--cpus", "--accelerator", "--pid",
)  # fmt: skip
#: Options of a machine in the background that may be among those of a kept start, with it alone.
DETACH = ("-d", "--detach")
NAME = "--name"
NAMED_VALUES = (NAME, "-l", "--label", "--restart")
#: The kind of the cache's files of kept starts, and how many there are at most.
KIND = "starts"
MOST_KEPT = 256
_MOST_BYTES = 8 << 20
_VERSION = b"vmtailor-start 2"
_ORDERS = b"orders"
#: The first record of a file, behind the version, the end of its time, what is said first, and the cache's entry.
_MARKS = 4
#: Seconds for which a changed file is too new to be remembered: a second change in one tick would not be seen.
SETTLED_S = 2.0
#: Variables on which a start depends.
_VARIABLES = (
    "PATH", "TMPDIR", "LANG", "LC_ALL", "PYTHONPATH", "HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR",
)  # fmt: skip
_QEMU = "VMTAILOR_QEMU"
_KVM = "/dev/kvm"
#: Characters of a port and of an address.
_NUMBER = frozenset("0123456789.")
_BOOT = "/proc/sys/kernel/random/boot_id"


class QuickStart:
    """A start that may be kept. `words`: the program's arguments; `parts`: all that its orders depend on besides files;
    `variables`: NAME=VALUE of -e, the last one of a name last. `name`: of a machine in the background, empty where one
    is drawn; None for one in the foreground.

    Of a bundle that was pulled, `said`: a line to say first; `entry`: its folder in the cache; `files`: those that
    change with what its reference means."""

    def __init__(self, words: list[str], parts: list[str], variables: list[str], name: str | None = None) -> None:
        self.words = words
        self.parts = parts
        self.variables = variables
        self.said = self.entry = ""
        self.files: tuple[str, ...] = ()
        self.name = name

    def path(self) -> str:
        """Return the path of the kept orders. Raises KeyError for a user without a home."""
        base = os.environ.get("XDG_CACHE_HOME", "")
        if not base.startswith("/"):
            base = os.path.join(os.environ["HOME"], ".cache")  # noqa: PTH118
        text = "\0".join(self.parts).encode("utf-8", "surrogateescape")
        return f"{base}/vmtailor/{KIND}/{sha256(text)[:40]}"


#: The start that is under way, and is not kept yet.
missed: QuickStart | None = None


def plain(words: list[str]) -> QuickStart | None:
    """Return the start that arguments of the program ask for; None for one that goes the long way."""
    options: list[str] = []
    variables: list[str] = []
    given = ""
    rest = words[1:]
    while rest and rest[0].startswith("-"):
        option = _option(rest)
        if option is None:
            return None
        name, value = option
        if name == NAME:
            given = value
        elif name not in ("-e", "--env"):
            options.append(f"{name}={value}")
        elif not _add_variable(value, variables):
            return None
    if words[:1] != ["run"] or not rest or "\0" in "".join(words) or _lacks_terminal(options):
        return None
    named = any(option.rstrip("=") in DETACH for option in options)
    if not named and (given or any(option.partition("=")[0] in NAMED_VALUES for option in options)):
        return None
    parts = [*_host(), *options, "--", os.path.abspath(rest[0]), *rest[1:]]  # noqa: PTH100
    return QuickStart(words, parts, variables, given if named else None)


def sha256(data: bytes) -> str:
    """Return a digest in hexadecimal, by the interpreter's own module: `hashlib` loads OpenSSL, which takes longer than
    all the rest."""
    for name in ("_sha2", "_sha256"):  # since 3.12, before
        try:
            return str(__import__(name).sha256(data).hexdigest())
        except (ImportError, AttributeError):
            continue
    import hashlib

    return hashlib.sha256(data).hexdigest()


def _option(rest: list[str]) -> tuple[str, str] | None:
    """Take the next option and its value off the arguments; None for one that goes the long way."""
    name, equals, value = rest.pop(0).partition("=")
    if name in (*FLAGS, *DETACH) and not equals:
        return name, ""
    if name not in (*VALUES, *NAMED_VALUES) or (equals and not name.startswith("--")) or (not equals and not rest):
        return None
    value = value if equals else rest.pop(0)
    return None if name in ("-p", "--publish") and not _is_fixed_port(value) else (name, value)


def _lacks_terminal(options: list[str]) -> bool:
    given = {option.rstrip("=") for option in options}
    both = given & {"-it", "-ti"} or (given & {"-i", "--interactive"} and given & {"-t", "--tty"})
    return bool(both) and not os.isatty(0)


def _add_variable(text: str, variables: list[str]) -> bool:
    name, equals, _ = text.partition("=")
    if equals:
        variables.append(text)
    elif name in os.environ:
        variables.append(f"{name}={os.environ[name]}")
    return bool(name)


def _is_fixed_port(text: str) -> bool:
    numbers = text.partition("/")[0].split(":")
    return len(numbers) in (2, 3) and all(set(one) <= _NUMBER and one.strip("0") for one in numbers)


def _host() -> list[str]:
    """Return what a start depends on besides its options: this program, user and host."""
    with open(_BOOT) as file:  # noqa: PTH123
        boot = file.read().strip()
    kvm = f"{os.path.exists(_KVM)} {os.access(_KVM, os.R_OK | os.W_OK)}"  # noqa: PTH110
    names = [*_VARIABLES, *sorted(name for name in os.environ if name.startswith(_QEMU))]
    told = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    groups = ",".join(map(str, os.getgroups()))
    return [__version__, sys.executable, __file__, f"{os.geteuid()} {os.getegid()} {groups}", boot, kvm, *told]


def follow(start: QuickStart) -> None:
    """Become the supervisor with kept orders; return where there are none, or something has changed."""
    try:
        text = _unchanged(start.path())
    except (OSError, KeyError):
        return
    if text is None:
        return
    supervisor, orders, said, entry = text
    if start.name is not None:
        _follow_named(start, supervisor, orders, start.name)
        return
    more = [("run", f"env {one}") for one in start.variables]
    anew = (sys.executable, "-P", "-m", "vmtailor.cli.run_anew", *start.words)
    more += [("otherwise", word) for word in anew]
    added = b"".join(f"{key} {value}".encode("utf-8", "surrogateescape") + b"\0" for key, value in more)
    _hold_streams()
    if said:
        try:
            os.write(2, f"{said}\n".encode("utf-8", "backslashreplace"))
            os.utime(entry)
        except OSError:  # nobody may read it; and of a cache that cannot be written nothing goes
            pass
    descriptor = os.memfd_create("vmtailor-orders", 0)
    view = memoryview(orders + added)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        os.execv(supervisor, [supervisor, str(descriptor)])
    except OSError:
        os.close(descriptor)


def _follow_named(start: QuickStart, supervisor: str, kept: bytes, name: str) -> None:
    from vmtailor.cli import quick_machine

    if name and not quick_machine.is_name(name):
        return
    _hold_streams()
    quick_machine.follow(kept, supervisor, name, start.variables, start.words)


def _hold_streams() -> None:
    """Open something in place of a standard stream that is closed: it would be the next file that is opened."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open("/dev/null", os.O_RDWR)


def _unchanged(path: str) -> tuple[str, bytes, str, str] | None:
    """Return the supervisor, its kept orders, the line that is said first, and the entry of the cache that is used.
    None where a file is not what it was, or another user could have changed it. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        private = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
        if not private or found.st_size > _MOST_BYTES:
            return None
        data = os.read(file, _MOST_BYTES)
    finally:
        os.close(file)
    records = data.split(b"\0")
    if len(data) != found.st_size or records[0] != _VERSION or _ORDERS not in records[_MARKS + 1 :]:
        return None
    if not found.st_mtime <= time.time() < float(records[1]):
        return None
    end = records.index(_ORDERS, _MARKS + 1)
    known: set[str] = set()
    for record in records[_MARKS:end]:
        numbers, _, name = record.decode("utf-8", "surrogateescape").partition(" /")
        if fingerprint(f"/{name}") != numbers or not ours_alone(f"/{name}", known):
            return None
    said, entry, first = (records[n].decode("utf-8", "surrogateescape") for n in (2, 3, _MARKS))
    supervisor = f"/{first.partition(' /')[2]}"
    return supervisor, data[sum(len(record) + 1 for record in records[: end + 1]) :], said, entry


def fingerprint(path: str) -> str:
    """Return what changes when a file does: device, inode, size, and times of modification and change in ns."""
    found = os.stat(path)  # noqa: PTH116
    return f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def ours_alone(path: str, known: set[str]) -> bool:
    """Return whether nobody but us and root can change a file or replace it: owner and rights of the file, and of all
    folders above it, links resolved. `known`: folders that were found so, to which others are added."""
    one = os.path.realpath(path)
    while one not in known:
        found = os.lstat(one)
        if found.st_uid not in (0, os.geteuid()):
            return False
        # In a sticky folder such as /tmp, others can neither remove nor rename what is not theirs.
        sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
            return False
        known.add(one)
        one = os.path.dirname(one)  # noqa: PTH120
    return True


def keep(start: QuickStart, orders: Callable[[], bytes], files: Iterable[str], supervisor: str, holds_s: float) -> None:
    """Keep orders that were made from files, the supervisor among them, for so many seconds. Nothing is kept where a
    file is too new, or others can change it; a cache that cannot be used keeps nothing."""
    import contextlib
    from pathlib import Path

    from vmtailor.base.cache.store import Store
    from vmtailor.base.errors import HostError
    from vmtailor.base.files.regular_files import write_atomic

    with contextlib.suppress(OSError, HostError, KeyError):
        path, known = Path(start.path()), set[str]()
        names = list(dict.fromkeys((supervisor, *files)))
        for name in names:
            too_new = time.time() - Path(name).stat().st_ctime < SETTLED_S
            if too_new or "\0" in name or not name.startswith("/") or not ours_alone(name, known):
                return
        marks = [f"{fingerprint(name)} {name}".encode("utf-8", "surrogateescape") for name in names]
        told = [text.encode("utf-8", "surrogateescape") for text in (start.said, start.entry)]
        data = b"\0".join((_VERSION, b"%d" % (time.time() + holds_s), *told, *marks, _ORDERS, orders()))
        folder = Store().folder(KIND)
        if len(data) <= _MOST_BYTES and folder == path.parent:
            for old in sorted(folder.iterdir(), key=lambda one: one.stat().st_mtime)[: -MOST_KEPT + 1]:
                old.unlink(missing_ok=True)
            write_atomic(path, data, private=True)
