# SPDX-License-Identifier: Apache-2.0
"""The program as a user starts it, and a witness of what it leaves behind: processes, temporary files."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

_PR_SET_CHILD_SUBREAPER = 36


#: Seconds within which what ends others has ended itself.
GUARD_S = 5.0


@dataclass(frozen=True)
class Ended:
    """How the program ended. `left_over`: command lines of processes that it started and that outlived it;
    `left_files`: what is still in its folder for temporary files."""

    code: int
    stdout: str
    stderr: str
    seconds: float
    left_over: tuple[str, ...]
    left_files: tuple[str, ...]


def argv_of(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "vmtailor", *(str(part) for part in arguments)]


@contextlib.contextmanager
def subreaper() -> Iterator[None]:
    """Orphans of what we start become our children, so that they can be seen."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def children() -> dict[int, str]:
    """Our children that still run: process id → command line."""
    found = {}
    for listed in Path("/proc/self/task").glob("*/children"):
        for word in listed.read_text().split():
            with contextlib.suppress(OSError):
                state = Path(f"/proc/{word}/stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found[int(word)] = Path(f"/proc/{word}/cmdline").read_text().replace("\0", " ").strip()
    return found


@dataclass(eq=False)
class Started:
    """The program under way, its output in files. `before`: the children that we had without it."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    before: Mapping[int, str]

    @property
    def stderr(self) -> str:
        return self.err.read_text(errors="replace")

    @property
    def stdout(self) -> str:
        return self.out.read_text(errors="replace")

    def wait_for(self, text: str, timeout_s: float = 120.0, *, where: Path | None = None) -> None:
        """Wait until it has printed `text` (on standard error, or in the file `where`)."""
        end = time.monotonic() + timeout_s
        path = where or self.err
        while not (path.is_file() and text in path.read_text(errors="replace")):
            assert self.process.poll() is None, f"it ended without saying {text!r}:\n{self.stderr}"
            assert time.monotonic() < end, f"it does not say {text!r}:\n{self.stderr}"
            time.sleep(0.05)

    def wait_for_program(self, name: str, timeout_s: float = 120.0) -> None:
        """Wait until a process below it has `name` in its command line."""
        end = time.monotonic() + timeout_s
        while not any(name in line for line in descendants(self.process.pid)):
            assert self.process.poll() is None, f"it ended before it started {name}:\n{self.stderr}"
            assert time.monotonic() < end, f"it does not start {name}:\n{self.stderr}"
            time.sleep(0.05)


def descendants(pid: int) -> list[str]:
    """Command lines of all processes below one."""
    found = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for word in listed.read_text().split():
                with contextlib.suppress(OSError):
                    found.append(Path(f"/proc/{word}/cmdline").read_text().replace("\0", " "))
                found += descendants(int(word))
    return found


@contextlib.contextmanager
def started(
    folder: Path,
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    stdin: int = subprocess.DEVNULL,
    stdout: int | None = None,
    terminal: str | None = None,
) -> Iterator[Started]:
    """Start it; `folder` takes its output and its temporary files. When the block is left it has ended.

    `stdout`: where its output goes instead. `terminal`: the path of one that takes all three streams, and sends it
    signals."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONWARNINGS": "error::ResourceWarning", **(env or {})}
    out, err, before = folder / "stdout", folder / "stderr", children()
    with subreaper(), contextlib.ExitStack() as stack:
        with out.open("wb") as out_file, err.open("wb") as err_file:
            # The first terminal that the leader of a session opens is its own.
            opened = ["sh", "-c", 'exec "$@" <> "$0" >&0 2>&0', terminal] if terminal is not None else []
            process = subprocess.Popen(
                [*opened, *argv_of(*arguments)],
                stdin=stdin,
                stdout=out_file if stdout is None else stdout,
                stderr=err_file,
                env=environment,
                start_new_session=True,
            )
        stack.callback(_end, process)
        yield Started(process, out, err, before)


def _end(process: subprocess.Popen[bytes]) -> None:
    """It has ended, come what may."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.stdin is not None:
        process.stdin.close()


def finish(running: Started, timeout_s: float) -> Ended:
    """Wait for the end and look around. Fails when it does not end in time."""
    began = time.monotonic()
    try:
        running.process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        running.process.terminate()  # it ends what it started
        running.process.wait(20.0)
        raise AssertionError(f"not ended after {timeout_s:.0f} s; it said last:\n{running.stderr[-4000:]}") from None
    left = _left(running)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    files = tuple(sorted(path.name for path in (running.out.parent / "tmp").iterdir()))
    return Ended(
        running.process.returncode,
        running.stdout,
        running.stderr,
        time.monotonic() - began,
        tuple(left.values()),
        files,
    )


def _left(running: Started) -> dict[int, str]:
    """What it left running. What ends others when it ends (native/guard/guard.c) ends a moment after it."""
    end = time.monotonic() + GUARD_S
    while True:
        left = {pid: line for pid, line in children().items() if pid not in running.before}
        if not left or any(not line.endswith("/_native/guard") for line in left.values()) or time.monotonic() > end:
            return left
        time.sleep(0.01)


def run_program(
    folder: Path,
    *arguments: str | Path,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
    stdin: bytes | None = None,
) -> Ended:
    """Start it and wait for its end."""
    source = subprocess.PIPE if stdin is not None else subprocess.DEVNULL
    with started(folder, *arguments, env=env, stdin=source) as running:
        if stdin is not None and running.process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                running.process.stdin.write(stdin)
                running.process.stdin.close()
        return finish(running, timeout_s)


def interrupt(running: Started, number: int = signal.SIGINT) -> None:
    """Ctrl-C, as a terminal sends it: to the program's own process group. What it started has groups of its own."""
    os.killpg(running.process.pid, number)


def assert_clear(ended: Ended, code: int, *said: str) -> None:
    """One message with a hint, no traceback, nothing left behind."""
    assert ended.code == code, f"exit code {ended.code}:\n{ended.stdout}\n{ended.stderr}"
    lines = ended.stderr.splitlines()
    assert sum(line.startswith("error:") for line in lines) == 1, ended.stderr
    assert sum(line.startswith("hint:") for line in lines) == 1, ended.stderr
    assert "Traceback" not in ended.stderr and "bug:" not in ended.stderr, ended.stderr
    for text in said:
        assert text in ended.stderr, f"{text!r} is not in:\n{ended.stderr}"
    assert_nothing_left(ended)


def assert_nothing_left(ended: Ended) -> None:
    assert ended.left_over == (), ended.left_over
    assert ended.left_files == (), ended.left_files


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system with so much room."""
    folder.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(["mount", *options], check=False).returncode != 0:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
