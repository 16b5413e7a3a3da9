# SPDX-License-Identifier: Apache-2.0
"""The one place that starts outside programs: argument lists in, no shell, always a deadline, nothing left behind."""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import os
import select
import shlex
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from vmtailor.base import concurrency, figures, guard
from vmtailor.base.disk_full import ANYWHERE, no_space, says_full
from vmtailor.base.errors import HostError, VmtailorError
from vmtailor.base.package_manager import install_command

log = logging.getLogger(__name__)

#: Seconds a process group is given between SIGTERM and SIGKILL.
TERM_GRACE_S = 3.0
#: Bytes that a program may print, on each of its two outputs, unless its caller says otherwise.
MOST_OUTPUT_BYTES = 256 << 20
#: Bytes of a program's words that an error shows, at most.
_TAIL_BYTES = 4000
#: Seconds between two looks whether a program is gone; bytes taken at once.
_LOOK_S, _CHUNK_BYTES = 0.2, 1 << 16


@dataclass(frozen=True)
class ProgramResult:
    """A program that ended. `stdout` and `stderr` are bytes, since what outside programs print is untrusted."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes
    seconds: float

    @property
    def text(self) -> str:
        return self.stdout.decode("utf-8", "replace")

    @property
    def error_text(self) -> str:
        return self.stderr.decode("utf-8", "replace")


class CommandFailed(VmtailorError):
    """A program exited with a status that was not asked for. Drivers turn it into an error of a user's family."""

    def __init__(self, finished: ProgramResult, message: str = "") -> None:
        super().__init__(
            message or f"{finished.argv[0]} exited with {finished.returncode}", details=_last_words(finished)
        )
        self.finished = finished


class OutputTooLong(CommandFailed):
    """A program was ended because it printed more than it may: nothing of its output is given."""

    def __init__(self, argv: Sequence[str], name: str, most_bytes: int) -> None:
        ended = ProgramResult(argv=tuple(argv), returncode=-signal.SIGKILL, stdout=b"", stderr=b"", seconds=0.0)
        super().__init__(ended, f"{name} printed more than {figures.file_bytes(most_bytes)}, and was ended")


@dataclass(frozen=True)
class Meanwhile:
    """A look that is taken while a program runs, every so many seconds. What it raises ends the program."""

    every_s: float
    look: Callable[[], None]


def _last_words(finished: ProgramResult) -> str:
    return (finished.stderr or finished.stdout)[-_TAIL_BYTES:].decode("utf-8", "replace").strip()


def require_tool(name: str, package: str = "") -> str:
    """Return the absolute path of a program, or raise HostError naming the package that has it."""
    path = on_path(name)
    if path is None:
        raise HostError(
            f"the program '{name}' is not installed",
            hint=f"install it: {install_command(package or name)} (vmtailor doctor lists all that is missing)",
        )
    return path


def on_path(name: str) -> str | None:
    """Return the absolute path of a program; None when it is not installed."""
    # /sbin and /usr/sbin hold mkfs tools, and are not on every user's PATH.
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]))


def pasteable(argv: Sequence[str]) -> str:
    """Return the command as a line that can be pasted into a shell."""
    return shlex.join(argv)


def kill_group(process: subprocess.Popen[bytes], grace_s: float = TERM_GRACE_S) -> None:
    """End a process started by `spawn`, and all that it started. Returns when it is reaped."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@contextlib.contextmanager
def spawn(
    argv: Sequence[str],
    *,
    stdin: int | IO[bytes] | None = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = subprocess.DEVNULL,
    stderr: int | IO[bytes] | None = subprocess.DEVNULL,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: Sequence[int] = (),
    umask: int = -1,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program in a session of its own, and end its whole process group when the block is left, or when we end.
    `umask`: its own, where ours will not do. If another thread stops the work, the program is ended and Stopped is
    raised."""
    log.debug("start: %s", pasteable(argv))
    stop = concurrency.current_stop()
    concurrency.check_stopped()
    guard.start()
    try:
        process = subprocess.Popen(
            list(argv), stdin=stdin, stdout=stdout, stderr=stderr, env=None if env is None else dict(env), cwd=cwd,
            start_new_session=True, pass_fds=tuple(pass_fds), umask=umask,
        )  # fmt: skip
    except FileNotFoundError as error:
        if cwd is not None and not cwd.exists():
            raise HostError(f"the folder {cwd} is gone", hint="create the folder, then repeat the command") from error
        raise HostError(f"the program '{argv[0]}' is not installed", hint="run: vmtailor doctor") from error
    guard.watch(process.pid)
    _yields_as_we_do(process.pid)
    if stop is not None:
        stop.runs(process)
    try:
        yield process
        concurrency.check_stopped()
    finally:
        kill_group(process)
        guard.unwatch(process.pid)
        if stop is not None:
            stop.ended(process)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def leave(argv: Sequence[str], log_file: Path, *, nice: int, pass_fds: Sequence[int] = ()) -> int:
    """Start a program that goes on when we end, in a session of its own, and return its process number. Both its
    outputs go to a file; `nice` is added to our own nice value. Raises HostError."""
    log.debug("leave: %s", pasteable(argv))
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with log_file.open("wb") as output:
        left = subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            pass_fds=tuple(pass_fds),
        )  # fmt: skip
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, left.pid, min(19, before + nice))
        Path(f"/proc/{left.pid}/autogroup").write_text(str(min(19, before + nice)))
    left.returncode = 0  # nobody waits for it
    return left.pid


def _yields_as_we_do(pid: int) -> None:
    """Give our nice value to the session of a program. Where the kernel weighs sessions (autogroup, sched(7)), a
    program in a session of its own yields to others only if its session does."""
    nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    if nice > 0:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(nice))


def run(
    argv: Sequence[str],
    *,
    timeout_s: float,
    stdin_bytes: bytes | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    ok: Sequence[int] = (0,),
    on_line: Callable[[str], None] | None = None,
    umask: int = -1,
    name: str = "",
    most_bytes: int = MOST_OUTPUT_BYTES,
    meanwhile: Meanwhile | None = None,
    pass_fds: Sequence[int] = (),
) -> ProgramResult:
    """Run a program to its end.

    Its output comes through pipes: no full disk cuts it short. `timeout_s`: it is killed after so many seconds, and
    HostError raised. `ok`: exit statuses that are no error; others raise CommandFailed. A program that fails and says
    that the disk is full raises DiskFull, whatever `ok` is. `most_bytes`: of each of its two outputs; a program that
    prints more is killed, and OutputTooLong raised. `on_line` gets each line of its output while it runs (for
    progress). `name`: of the program in errors. `pass_fds`: descriptors that it inherits.
    """
    started = time.monotonic()
    name = name or Path(argv[0]).name
    with contextlib.ExitStack() as held:
        # On no disk, and seekable as a file.
        source = subprocess.DEVNULL if stdin_bytes is None else held.enter_context(_in_memory(stdin_bytes))
        process = held.enter_context(
            spawn(
                argv, stdin=source, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, cwd=cwd, umask=umask,
                pass_fds=pass_fds,
            )
        )  # fmt: skip
        outputs = _Outputs(process, name, most_bytes, on_line)
        look_s = _LOOK_S if meanwhile is None else meanwhile.every_s
        while (code := outputs.take(look_s)) is None:
            if time.monotonic() >= started + timeout_s:
                raise not_ended(argv, timeout_s)
            if meanwhile is not None:
                meanwhile.look()
        out, err = outputs.whole()
    finished = ProgramResult(
        argv=tuple(argv), returncode=code, stdout=out, stderr=err, seconds=time.monotonic() - started
    )
    log.debug("ended with %d after %.2f s: %s", code, finished.seconds, pasteable(argv))
    if code != 0 and says_full(said := _last_words(finished)):
        raise no_space(f"for {name}", elsewhere=ANYWHERE, details=said)
    if code not in ok:
        raise CommandFailed(finished)
    return finished


@contextlib.contextmanager
def _in_memory(data: bytes) -> Iterator[IO[bytes]]:
    with os.fdopen(os.memfd_create("vmtailor"), "w+b") as file:
        file.write(data)
        file.seek(0)
        yield file


class _Outputs:
    """The two outputs of a running program, gathered in memory as they come."""

    def __init__(
        self, process: subprocess.Popen[bytes], name: str, most_bytes: int, on_line: Callable[[str], None] | None
    ) -> None:
        assert process.stdout is not None and process.stderr is not None
        self._process = process
        self._name = name
        self._most_bytes = most_bytes
        self._on_line = on_line
        self._pending = bytearray()
        self._printed = process.stdout.fileno()
        self._gathered = {pipe.fileno(): io.BytesIO() for pipe in (process.stdout, process.stderr)}
        self._poll = select.poll()
        for pipe in self._gathered:
            self._poll.register(pipe, select.POLLIN)
        self._open = set(self._gathered)

    def take(self, wait_s: float) -> int | None:
        """Take what has been printed, waiting so long for it; returns the exit status once the program is gone. What it
        left behind may hold the pipes, and is not waited for."""
        if not self._open:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return self._process.wait(wait_s)
            return None
        code = self._process.poll()
        for pipe, _ in self._poll.poll(0 if code is not None else wait_s * 1000):
            # All that a program has printed and is not taken yet is in the pipe when it is gone.
            self._take(pipe, _CHUNK_BYTES if code is None else fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ))
        return code

    def _take(self, pipe: int, most: int) -> None:
        chunk = os.read(pipe, most)
        if not chunk:
            self._poll.unregister(pipe)
            self._open.discard(pipe)
            return
        gathered = self._gathered[pipe]
        if gathered.tell() + len(chunk) > self._most_bytes:
            argv = self._process.args
            raise OutputTooLong(argv if isinstance(argv, list) else [self._name], self._name, self._most_bytes)
        gathered.write(chunk)
        if self._on_line is not None and pipe == self._printed:
            self._pending += chunk
            if b"\n" in chunk:
                *lines, self._pending = self._pending.split(b"\n")
                for line in lines:
                    self._on_line(line.decode("utf-8", "replace"))

    def whole(self) -> tuple[bytes, bytes]:
        """Return the output and the errors."""
        if self._on_line is not None and self._pending:
            self._on_line(self._pending.decode("utf-8", "replace"))
        out, err = (gathered.getvalue() for gathered in self._gathered.values())
        return out, err


def not_ended(argv: Sequence[str], timeout_s: float) -> HostError:
    """Return the error for a program that did not end in time."""
    return HostError(
        f"{Path(argv[0]).name} did not end within {timeout_s:.0f} s",
        hint="try it by hand, with the command below",
        details=pasteable(argv),
    )
