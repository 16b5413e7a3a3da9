# SPDX-License-Identifier: Apache-2.0
"""Init's further processes, under the sanitizers and without a machine, against the host's end of them."""

from __future__ import annotations

import os
import random
import select
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.fakes.further import MOST_AT_ONCE, WINDOW_BYTES, FurtherProcess, FurtherProcesses, Order
from tests.fakes.port_wire import FURTHER, MAX_BLOCK, ToGuest, encode_on_port
from tests.fakes.sanitized import compiled

from vmtailor.base import natives
from vmtailor.drivers.guest.guest_volume import can_start_further
from vmtailor.drivers.guest.wire import MAX_PAYLOAD, OPEN_KEY
from vmtailor.model.boots.workload import Terminal

pytestmark = pytest.mark.contract

DEADLINE_S = 60.0
HEAD = struct.Struct("<BI")


def frame(kind: str, payload: bytes) -> bytes:
    return HEAD.pack(ord(kind), len(payload)) + payload


class Played:
    """A guest without a machine."""

    def __init__(self, program: Path, on_port: bool = False) -> None:
        self.child = subprocess.Popen(
            [program, *["port"] * on_port],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self.on_port = on_port
        self.further = FurtherProcesses(self._send, on_port=on_port)
        self.frames: list[tuple[str, bytes]] = []
        self._held = b""
        self._out = bytearray()

    def _send(self, kind: ToGuest, payload: bytes, /) -> None:
        self._out += encode_on_port(kind, payload, 0, OPEN_KEY) if self.on_port else frame(kind, payload)

    def pump(self) -> None:
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        readable, writable, _ = select.select([self.child.stdout], [self.child.stdin] if self._out else [], [], 1.0)
        if writable:
            sent = os.write(self.child.stdin.fileno(), self._out[:4096])
            del self._out[:sent]
        if readable:
            self._take(os.read(self.child.stdout.fileno(), 1 << 16))

    def _take(self, data: bytes) -> None:
        self._held += data
        while len(self._held) >= HEAD.size:
            kind, length = HEAD.unpack_from(self._held)
            if len(self._held) < HEAD.size + length:
                break
            payload, self._held = self._held[HEAD.size : HEAD.size + length], self._held[HEAD.size + length :]
            assert len(payload) <= (MAX_BLOCK if self.on_port else MAX_PAYLOAD)
            assert chr(kind) in FURTHER
            self.frames.append((chr(kind), payload))
            self.further.hear(chr(kind), payload)

    def wait(self, *processes: FurtherProcess) -> None:
        self.until(lambda: all(process.ended for process in processes))

    def until(self, holds: Callable[[], object]) -> None:
        end = time.monotonic() + DEADLINE_S
        while not holds():
            assert self.child.poll() is None
            assert time.monotonic() < end
            self.pump()

    def run(self, order: Order, stdin: bytes | None = None) -> FurtherProcess:
        process = self.further.start(order)
        if stdin is not None:
            process.send_stdin(stdin)
            process.end_stdin()
        self.wait(process)
        return process

    def end(self) -> None:
        """End the container; a sanitizer's complaint fails the test."""
        while self._out:
            self.pump()
        assert self.child.stdin is not None
        self.child.stdin.close()
        assert self.child.stdout is not None
        self._take(self.child.stdout.read())
        assert self.child.stderr is not None
        said = self.child.stderr.read().decode("utf-8", "replace")
        assert self.child.wait(DEADLINE_S) == 0, said[-3000:]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("session", tmp_path_factory.mktemp("native"))


@pytest.fixture
def guest(program: Path, request: pytest.FixtureRequest) -> Iterator[Played]:
    """A guest; on a virtio port where a test asks for it."""
    played = Played(program, getattr(request, "param", False))
    try:
        yield played
        played.end()
    finally:
        played.child.kill()
        played.child.wait()
        for pipe in (played.child.stdin, played.child.stdout, played.child.stderr):
            if pipe is not None:
                pipe.close()


BOTH = pytest.mark.parametrize("guest", [False, True], indirect=True, ids=["serial", "port"])


def sh(script: str, stdin: bool = False) -> Order:
    return Order(("sh", "-c", script), stdin=stdin)


def test_an_init_can_be_told_to_start_them() -> None:
    assert can_start_further(natives.locate().init.read_bytes())
    assert not can_start_further(b"\x7fELF of a version before")


def test_status_and_streams(guest: Played) -> None:
    process = guest.run(sh("echo out; echo err >&2; exit 7"))
    assert (process.exit_code, process.by_signal, process.why) == (7, 0, "")
    assert (bytes(process.stdout), bytes(process.stderr)) == (b"out\n", b"err\n")
    killed = guest.run(sh("kill -9 $$"))
    assert (killed.exit_code, killed.by_signal) == (137, 9)


def test_what_cannot_be_executed_says_why(guest: Played) -> None:
    missing, refused = guest.run(Order(("/nope",))), guest.run(Order(("/etc/passwd",)))
    assert (missing.exit_code, missing.why) == (127, "execve(/nope): No such file or directory")
    assert (refused.exit_code, refused.why) == (126, "execve(/etc/passwd): Permission denied")
    privileged = guest.run(Order(("true",), privileged=True))
    assert privileged.exit_code == 126
    assert privileged.why.startswith("privileged: the container is not")


@BOTH
def test_every_byte_both_ways_and_the_end_of_input(guest: Played) -> None:
    data = bytes(range(256)) * 800
    process = guest.run(Order(("cat",), stdin=True), data)
    assert bytes(process.stdout) == data
    slow = guest.run(sh("while head -c 40000 | grep -qa .; do :; done; echo all", stdin=True), data * 15)
    assert bytes(slow.stdout) == b"all\n"
    # Input that ends first, and output that does.
    assert bytes(guest.run(sh("cat >/dev/null; echo late", stdin=True), data).stdout) == b"late\n"
    assert bytes(guest.run(sh("exec >&-; cat | wc -c >&2", stdin=True), data).stderr).strip() == b"%d" % len(data)


@BOTH
def test_input_that_nobody_reads_is_dropped(guest: Played) -> None:
    process = guest.run(sh("exec <&-; sleep 0.5; echo done", stdin=True), bytes(300_000))
    assert (process.exit_code, bytes(process.stdout)) == (0, b"done\n")
    assert guest.run(Order(("cat",))).exit_code == 0  # not asked for: /dev/null


@BOTH
def test_several_at_once_with_a_megabyte_each(guest: Played) -> None:
    random_bytes = random.Random(1).randbytes
    each = [(guest.further.start(Order(("cat",), stdin=True)), random_bytes(1 << 20)) for _ in range(5)]
    for process, data in each:
        process.send_stdin(data)
        process.end_stdin()
    guest.wait(*(process for process, _ in each))
    assert all(bytes(process.stdout) == data for process, data in each)


@BOTH
def test_a_flood_without_a_reader_holds_nobody_up(guest: Played) -> None:
    flood = guest.further.start(sh("yes flood"), held=True)
    guest.until(lambda: len(flood.stdout) >= WINDOW_BYTES)
    assert bytes(guest.run(sh("echo alive")).stdout) == b"alive\n"
    assert len(flood.stdout) == WINDOW_BYTES
    assert not flood.ended
    flood.release()
    guest.until(lambda: len(flood.stdout) > 2 * WINDOW_BYTES)
    flood.send_signal(15)
    guest.wait(flood)
    assert flood.by_signal == 15


def test_output_of_a_process_that_ended_waits_for_its_reader(guest: Played) -> None:
    held = guest.further.start(sh("head -c 100000 /dev/zero"), held=True)
    guest.until(lambda: len(held.stdout) == WINDOW_BYTES)
    end = time.monotonic() + 2.5
    guest.further.start(sh("sleep 3"))
    while time.monotonic() < end:
        guest.pump()
    assert not held.ended
    held.release()
    guest.wait(held)
    assert len(held.stdout) == 100_000


def test_streams_and_process_may_outlive_each_other(guest: Played) -> None:
    started = time.monotonic()
    process = guest.run(sh("exec >&- 2>&-; sleep 0.5; exit 4"))
    assert (process.exit_code, time.monotonic() - started > 0.4) == (4, True)
    left = guest.run(sh("(sleep 1; echo late; sleep 30) & echo first"))
    assert bytes(left.stdout) == b"first\nlate\n"
    assert time.monotonic() - started < 20


def test_a_terminal(guest: Played) -> None:
    order = Order(
        ("sh", "-c", "stty -echo; stty size; tty; read x; stty size; echo got $x; cat; exit 3"),
        stdin=True, terminal=Terminal(30, 100),
    )  # fmt: skip
    process = guest.further.start(order)
    guest.until(lambda: b"/dev/pts/" in process.stdout)
    process.resize(41, 132)
    process.send_stdin(b"line\n")
    guest.until(lambda: b"got line" in process.stdout)
    process.end_stdin()
    guest.wait(process)
    lines = process.stdout.decode().splitlines()
    assert (lines[0], lines[2], lines[3], process.exit_code) == ("30 100", "41 132", "got line", 3)
    interrupted = guest.further.start(Order(("sh", "-c", "echo on; exec sleep 100"), stdin=True, terminal=Terminal()))
    guest.until(lambda: b"on" in interrupted.stdout)
    interrupted.send_stdin(b"\x03")
    guest.wait(interrupted)
    assert interrupted.by_signal == 2


def test_a_detached_one_is_told_once_it_is_executed(guest: Played) -> None:
    started = time.monotonic()
    process = guest.run(Order(("sleep", "5"), detach=True))
    assert (process.exit_code, time.monotonic() - started < 4) == (0, True)
    assert guest.run(Order(("/nope",), detach=True)).exit_code == 127


@BOTH
def test_an_order_may_come_in_parts(guest: Played) -> None:
    words = tuple(f"{n:0100}" for n in range(1000))
    process = guest.run(Order(("printf", "%s\n", *words), env=(("A", "b"),)))
    assert process.stdout.decode().split() == list(words)
    long = guest.run(Order(("true", "x" * 300_000)))
    assert (long.exit_code, long.why.startswith("the order is longer")) == (126, True)


def test_as_many_as_there_is_room_for(guest: Played) -> None:
    many = [guest.further.start(Order(("cat",), stdin=True)) for _ in range(MOST_AT_ONCE)]
    one_more = guest.run(Order(("true",)))
    assert (one_more.exit_code, one_more.why) == (126, "too many further processes at once")
    for process in many:
        process.send_stdin(b"%d" % process.number)
        process.end_stdin()
    guest.wait(*many)
    assert [bytes(process.stdout) for process in many] == [b"%d" % process.number for process in many]
    assert guest.run(Order(("true",))).exit_code == 0


def test_they_end_with_the_container(guest: Played) -> None:
    process = guest.further.start(sh("echo on; exec sleep 5"))
    guest.until(lambda: bytes(process.stdout) == b"on\n")
    guest.end()
    assert (process.exit_code, process.by_signal) == (137, 9)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"\0\0", "not of this version"),
        (b"vmtailor 1\0\0", "no command was given"),
        (b"vmtailor 1\0arg\0\0", "a record without a value"),
        (b"vmtailor 1\0arg a\0rows 65536\0\0", "not a number in range"),
        (b"vmtailor 1\0arg a\0stdin -1\0\0", "not a number in range"),
        (b"vmtailor 1\0arg a\0env x\0\0", "not NAME=value"),
        (b"vmtailor 1\0nope 1\0\0", "unknown record"),
    ],
)
def test_a_bad_order_is_named(guest: Played, text: bytes, why: str) -> None:
    guest._send(ToGuest.FURTHER, b"\x09" + text)
    guest.until(lambda: guest.frames)
    assert guest.frames == [("y", b"\x09126 0 the order: " + why.encode())]


@pytest.mark.parametrize("seed", range(3))
def test_frames_of_a_mad_host(guest: Played, seed: int) -> None:
    chance = random.Random(seed)
    orders = [
        Order(("true",)).encode(), Order(("cat",), stdin=True).encode(), Order(("true",), detach=True).encode(),
        Order(("cat",), stdin=True, terminal=Terminal()).encode(),
    ]  # fmt: skip
    for _ in range(1500):
        kind = chance.choice("xxxjjjkqvuuzO")
        number = bytes([chance.choice((0, 1, 2, 3, 250, 255))])
        text = chance.choice(
            (chance.choice(orders), b"", b"0", b"15", b"-1", b"99999999999999999999", b"40 80", chance.randbytes(300))
        )
        if kind == "x" and chance.random() < 0.3:
            text = text[: chance.randrange(len(text) + 1)]
        guest._out += frame(kind, (number + text)[: chance.choice((0, 1, 2, 2000, 2000))])
        if len(guest._out) > 4096:
            guest.pump()
    guest.end()
