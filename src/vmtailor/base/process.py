# SPDX-License-Identifier: Apache-2.0
"""The one place that starts outside programs: argument lists in, no shell, always a deadline, nothing left behind."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from vmtailor.base import concurrency, guard
from vmtailor.base.errors import HostError, VmtailorError
from vmtailor.base.package_manager import install_command

log = logging.getLogger(__name__)

#: Seconds a process group is given between SIGTERM and SIGKILL.
TERM_GRACE_S = 3.0


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

    def __init__(self, finished: ProgramResult) -> None:
        tail = (finished.stderr or finished.stdout)[-4000:].decode("utf-8", "replace")
        super().__init__(f"{finished.argv[0]} exited with {finished.returncode}", details=tail.strip())
        self.finished = finished


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
    stdout: IO[bytes] | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    ok: Sequence[int] = (0,),
    on_line: Callable[[str], None] | None = None,
    umask: int = -1,
) -> ProgramResult:
    """Run a program to its end.

    `timeout_s`: it is killed after so many seconds, and HostError raised. `ok`: exit statuses that are no error; others
    raise CommandFailed. `stdout`: a file that takes its output, which is then not returned. `on_line` gets each line of
    its output while it runs (for progress).
    """
    started = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, tempfile.TemporaryFile() as feed:
        source: int | IO[bytes] = subprocess.DEVNULL
        if stdin_bytes is not None:
            feed.write(stdin_bytes)
            feed.seek(0)
            source = feed
        sink: int | IO[bytes] = subprocess.PIPE if on_line else (stdout or out)
        with spawn(argv, stdin=source, stdout=sink, stderr=err, env=env, cwd=cwd, umask=umask) as process:
            if on_line is not None:
                _follow(process, out, on_line, started + timeout_s)
            try:
                code = process.wait(max(0.0, started + timeout_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise not_ended(argv, timeout_s) from None
        out.seek(0)
        err.seek(0)
        finished = ProgramResult(
            argv=tuple(argv), returncode=code, stdout=out.read(), stderr=err.read(), seconds=time.monotonic() - started
        )
    log.debug("ended with %d after %.2f s: %s", code, finished.seconds, pasteable(argv))
    if code not in ok:
        raise CommandFailed(finished)
    return finished


def not_ended(argv: Sequence[str], timeout_s: float) -> HostError:
    """Return the error for a program that did not end in time."""
    return HostError(
        f"{Path(argv[0]).name} did not end within {timeout_s:.0f} s",
        hint="try it by hand, with the command below",
        details=pasteable(argv),
    )


def _follow(process: subprocess.Popen[bytes], out: IO[bytes], on_line: Callable[[str], None], deadline: float) -> None:
    import selectors

    assert process.stdout is not None
    pending = b""
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if not selector.select(min(left, 1.0)):
                continue
            chunk = os.read(process.stdout.fileno(), 65536)
            if not chunk:
                if pending:
                    on_line(pending.decode("utf-8", "replace"))
                return
            out.write(chunk)
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                on_line(line.decode("utf-8", "replace"))
