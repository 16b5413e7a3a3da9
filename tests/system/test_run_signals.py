# SPDX-License-Identifier: Apache-2.0
"""`vmtailor run` never hangs: whoever does not read, whatever signal comes, however the container ends the machine.

Real machines, with the program of tests/guests/talker on the kernel that was fitted to `lighttpd`."""

from __future__ import annotations

import contextlib
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest
from tests.fakes.program import (
    Started,
    assert_clear,
    assert_nothing_left,
    finish,
    interrupt,
    run_program,
    started,
)

pytestmark = pytest.mark.system

#: Seconds in which anything here has long ended, on a busy host.
PATIENCE_S = 90.0
#: A time to stop that nobody waits for here: what ends sooner did not end by it.
NEVER_S = "600"
CTRL_C = b"\x03"


def wait_until_full(writer: int, running: Started) -> None:
    """Until the pipe takes no more."""
    end = time.monotonic() + PATIENCE_S
    while select.select([], [writer], [], 0)[1]:
        assert running.process.poll() is None and time.monotonic() < end, running.stderr
        time.sleep(0.05)


@contextlib.contextmanager
def flooding(folder: Path, bundle: Path, what: str, stop_s: str = "8") -> Iterator[tuple[Started, BinaryIO]]:
    """A container that fills a pipe which nobody reads: it is full. Gives the pipe's other end."""
    reading, writing = os.pipe()
    with (
        os.fdopen(reading, "rb") as reader,
        os.fdopen(writing, "wb") as writer,
        started(folder, "run", "--stop-timeout", stop_s, bundle, what, stdout=writing) as running,
    ):
        wait_until_full(writing, running)
        writer.close()
        yield running, reader


@pytest.mark.attack
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_reader_that_does_not_read_does_not_keep_it_from_stopping(
    talker: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """The container hears its stop signal and ends with its own status; what nobody read is dropped with a word."""
    with flooding(tmp_path, talker, "flood") as (running, _):
        os.kill(running.process.pid, number)
        ended = finish(running, PATIENCE_S)
    assert ended.code == 6, ended.stderr
    assert "bytes of output were dropped: nobody read them" in ended.stderr
    assert_nothing_left(ended)


@pytest.mark.attack
def test_a_container_that_floods_and_heeds_nothing_is_ended(talker: Path, tmp_path: Path) -> None:
    with flooding(tmp_path, talker, "drown") as (running, _):
        os.kill(running.process.pid, signal.SIGTERM)
        ended = finish(running, PATIENCE_S)
    assert ended.code == 128 + signal.SIGKILL
    assert "nobody read them" in ended.stderr
    assert_nothing_left(ended)


@pytest.mark.attack
def test_a_second_interrupt_ends_a_flood_at_once(talker: Path, tmp_path: Path) -> None:
    with flooding(tmp_path, talker, "drown", NEVER_S) as (running, _):
        interrupt(running)
        with pytest.raises(subprocess.TimeoutExpired):  # two that come as one would be one
            running.process.wait(1.0)
        interrupt(running)
        ended = finish(running, PATIENCE_S)  # sooner than the time to stop
    assert ended.code == 128 + signal.SIGKILL
    assert_nothing_left(ended)


@pytest.mark.attack
def test_a_reader_that_leaves_stops_the_container(talker: Path, tmp_path: Path) -> None:
    with flooding(tmp_path, talker, "flood") as (running, reader):
        reader.close()
        ended = finish(running, PATIENCE_S)
    assert (ended.code, ended.stderr) == (6, "")
    assert_nothing_left(ended)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGQUIT])
def test_more_signals_that_stop_the_container(talker: Path, tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "run", talker, "wait") as running:
        running.wait_for("waiting", where=running.out)
        os.kill(running.process.pid, number)
        ended = finish(running, PATIENCE_S)
    assert ended.code == signal.SIGUSR1, ended.stderr
    assert_nothing_left(ended)


def test_another_stop_signal(talker: Path, tmp_path: Path) -> None:
    with started(tmp_path, "run", "--stop-signal", "SIGINT", talker, "wait") as running:
        running.wait_for("waiting", where=running.out)
        os.kill(running.process.pid, signal.SIGTERM)
        ended = finish(running, PATIENCE_S)
    assert ended.code == signal.SIGINT, ended.stderr


def test_other_signals_reach_the_container(talker: Path, tmp_path: Path) -> None:
    sent = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCONT, signal.SIGWINCH, signal.SIGRTMIN + 3]
    with started(tmp_path, "run", "--stop-signal", "TERM", talker, "signals") as running:
        running.wait_for("waiting", where=running.out)
        for number in sent:
            os.kill(running.process.pid, number)
            running.wait_for(f"signal {int(number)}\n", where=running.out)
        os.kill(running.process.pid, signal.SIGTERM)
        ended = finish(running, PATIENCE_S)
    assert ended.code == 5, ended.stderr
    assert ended.stdout == "waiting\n" + "".join(f"signal {int(number)}\n" for number in [*sent, signal.SIGTERM])
    assert_nothing_left(ended)


@pytest.mark.attack
@pytest.mark.parametrize("what", ["poweroff", "halt", "restart"])
def test_a_container_that_ends_the_machine(talker: Path, tmp_path: Path, what: str) -> None:
    """Where root may do everything. None of the three may be waited for."""
    ended = run_program(tmp_path, "run", "--privileged", "--pid", "host", talker, what)
    assert_clear(ended, 125, "the container ended the machine", "reboot: ")


@pytest.mark.parametrize(
    ("what", "number"), [("poweroff", signal.SIGINT), ("halt", signal.SIGINT), ("restart", signal.SIGHUP)]
)
def test_a_container_that_is_pid_1_ends_itself_alone(
    talker: Path, tmp_path: Path, what: str, number: signal.Signals
) -> None:
    """As in an engine: the kernel ends the first process of the namespace by a signal."""
    ended = run_program(tmp_path, "run", "--privileged", talker, what)
    assert (ended.code, ended.stderr) == (128 + number, "")


@pytest.mark.attack
def test_a_container_that_halts_in_silence(talker: Path, tmp_path: Path) -> None:
    """The kernel's console is silenced first: there are no last words to hear."""
    ended = run_program(tmp_path, "run", "--privileged", "--pid", "host", talker, "silent-halt")
    assert_clear(ended, 125, "the container ended the machine", "in silence")


# --- terminals ---


class Terminal:
    """A terminal with a person before it: what was said on it, and keys."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        self.path = os.ttyname(slave)
        self.slave = slave
        self.said = ""

    def mode(self) -> list[object]:
        return termios.tcgetattr(self.slave)

    def wait_for(self, text: str) -> None:
        end = time.monotonic() + PATIENCE_S
        os.set_blocking(self.master, False)
        while text not in self.said:
            assert time.monotonic() < end, self.said
            try:
                self.said += os.read(self.master, 4096).decode(errors="replace")
            except BlockingIOError:
                time.sleep(0.05)

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def close(self) -> None:
        for descriptor in (self.master, self.slave):
            with contextlib.suppress(OSError):
                os.close(descriptor)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    made = Terminal()
    yield made
    made.close()


def test_with_both_the_keys_are_the_containers(talker: Path, tmp_path: Path, terminal: Terminal) -> None:
    before = terminal.mode()
    with started(tmp_path, "run", "-it", "--init", talker, "key", terminal=terminal.path) as running:
        terminal.wait_for("waiting")
        assert terminal.mode() != before
        terminal.press(CTRL_C)
        ended = finish(running, PATIENCE_S)
    assert ended.code == 128 + signal.SIGINT, terminal.said  # of the container: its terminal made the key a signal
    assert terminal.mode() == before
    assert_nothing_left(ended)


def test_with_a_terminal_alone_ctrl_c_stops_the_container(talker: Path, tmp_path: Path, terminal: Terminal) -> None:
    before = terminal.mode()
    with started(tmp_path, "run", "-t", talker, "wait", terminal=terminal.path) as running:
        terminal.wait_for("waiting")
        assert terminal.mode() == before
        terminal.press(CTRL_C)
        ended = finish(running, PATIENCE_S)
    assert ended.code == signal.SIGUSR1, terminal.said
    assert_nothing_left(ended)


def test_a_terminal_for_the_container_needs_none_here(talker: Path, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "run", "-t", talker, "tell")
    assert (ended.code, ended.stderr) == (3, "")
    assert "variable TERM=xterm\n" in ended.stdout and "an aside\n" in ended.stdout  # a terminal has one stream


@pytest.mark.attack
@pytest.mark.parametrize("options", ["-it", "-t", "-i"])
def test_a_terminal_that_is_closed_stops_the_container(
    talker: Path, tmp_path: Path, terminal: Terminal, options: str
) -> None:
    with started(tmp_path, "run", options, talker, "wait", terminal=terminal.path) as running:
        terminal.wait_for("waiting")
        os.close(terminal.slave)
        os.close(terminal.master)
        ended = finish(running, PATIENCE_S)
    assert ended.code == signal.SIGUSR1
    assert_nothing_left(ended)


@pytest.mark.attack
def test_a_terminal_that_nobody_reads_does_not_keep_it_from_stopping(
    talker: Path, tmp_path: Path, terminal: Terminal
) -> None:
    """As after Ctrl-S, with a raw terminal, whose mode must be put back without waiting."""
    before = terminal.mode()
    with started(tmp_path, "run", "-it", "--stop-timeout", "5", talker, "flood", terminal=terminal.path) as running:
        terminal.wait_for("xxxx")
        os.kill(running.process.pid, signal.SIGTERM)
        ended = finish(running, PATIENCE_S)
    assert ended.code == 6
    assert terminal.mode() == before
    assert_nothing_left(ended)
