# SPDX-License-Identifier: Apache-2.0
"""The host's end of the line, against a guest that the test plays."""

from __future__ import annotations

import contextlib
import hashlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.drivers.guest.guest_session import GuestSession
from vmtailor.drivers.guest.guest_text import parse_exit, parse_marks, parse_note, parse_result
from vmtailor.drivers.guest.wire import Decoder, Frame, PortDecoder, encode, encode_on_port
from vmtailor.model.guest import READY_STEP, GuestReport

KEY = b"0123456789abcdef"


@dataclass
class Guest:
    """Plays init: says frames, hears the host's."""

    line: socket.socket
    session: GuestSession
    said: int = 0
    decoder: Decoder = field(default_factory=lambda: Decoder(KEY))

    def say(self, kind: str, payload: bytes) -> None:
        self.line.sendall(encode(kind, payload, self.said, KEY))
        self.said += 1
        self.session.pump(1.0)

    def hear(self) -> list[Frame]:
        try:
            return self.decoder.feed(self.line.recv(1 << 20))[0]
        except BlockingIOError:
            return []


@pytest.fixture
def guest() -> Iterator[Guest]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield Guest(theirs, GuestSession(ours, key=KEY))


def test_a_whole_run_ends_in_a_report(guest: Guest) -> None:
    guest.say("H", b"init 1")
    guest.say("M", b"entry 272611808 272611900 1767225600272611950")
    guest.say("N", b"POSIX_MQUEUE\0mount(mqueue on /dev/mqueue): No such device")
    guest.say("O", b"out")
    guest.say("E", b"err")
    guest.say("R", b"step=-1\0kind=http\0ns=5\0done=1\0right=1\0same=1\0first.status=200\0first.head=a=b\0")
    guest.say("D", b"kernel-log\0<6>one\n")
    guest.say("D", b"kernel-log\0<6>two\n")
    guest.say("X", b"137 9 ")
    guest.line.close()
    assert guest.session.run(5.0)
    report = guest.session.report()
    assert (report.exit_code, report.signal, report.exit_reason) == (137, 9, "")
    assert (report.stdout, report.stderr) == ("out", "err")
    mark = report.mark("entry")
    assert mark is not None
    assert mark.cycles == 272611808
    assert report.notes[0].symbol == "POSIX_MQUEUE"
    assert report.file("kernel-log") == "<6>one\n<6>two\n"
    ready = report.ready
    assert ready is not None
    assert (ready.ok, ready.first.status, ready.first.head) == (True, 200, "a=b")
    assert (report.damaged, report.lost) == (0, 0)


def test_nothing_is_sent_before_init_listens(guest: Guest) -> None:
    guest.session.send_stdin(b"early")
    guest.session.send_signal(15)
    guest.session.pump(0)
    assert guest.hear() == []
    guest.say("H", b"init 1")
    guest.session.pump(0)
    assert {(frame.type, frame.payload) for frame in guest.hear()} == {("i", b"early"), ("s", b"15")}


def test_standard_input_waits_until_it_is_taken(guest: Guest) -> None:
    guest.say("H", b"init 1")
    data = bytes(range(256)) * 40
    guest.session.send_stdin(data)
    guest.session.end_stdin()
    heard: list[Frame] = []
    while not heard or heard[-1].type != "e":
        guest.session.pump(0)
        part = guest.hear()
        size = sum(len(frame.payload) for frame in part)
        assert 0 <= size <= 2048
        assert part, "the host stopped sending"
        heard += part
        guest.say("C", b"%d" % size)
    assert b"".join(frame.payload for frame in heard if frame.type == "i") == data
    assert guest.session.stdin_queued == 0


def test_what_is_kept_is_bounded_and_still_relayed() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        heard: list[bytes] = []
        session = GuestSession(ours, key=KEY, on_stdout=heard.append, keep_bytes=100)
        for sequence in range(5):
            theirs.sendall(b"#" * 50 + encode("O", b"x" * 90, sequence, KEY))
            session.pump(1.0)
        report = session.report()
        assert len(report.stdout) == len(report.console) == 100
        assert report.truncated
        assert sum(map(len, heard)) == 450
        assert report.stdout_sha256 == hashlib.sha256(b"x" * 450).hexdigest()  # of all of it


@pytest.mark.parametrize(
    ("parts", "farewell"),
    [
        ([b"reboot: System halted\r\n"], "reboot: System halted"),
        ([b"x\n[    5.125000] reboot: Restar", b"ting system\r\n"], "reboot: Restarting system"),
        ([b"[    5.125000][   T41] reboot: Power down\n"], "reboot: Power down"),
        (
            [b"reboot: Power off not available: System halted instead\r\n"],
            "reboot: Power off not available: System halted instead",
        ),
        ([b"#" * 5000, b"\nreboot: System halted\r\n"], "reboot: System halted"),  # more than is kept
        ([b"somebody said reboot: System halted\r\n"], ""),
        ([b"reboot: System halted"], ""),
    ],
)
def test_the_last_words_of_a_kernel_that_was_made_to_end(parts: list[bytes], farewell: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        session = GuestSession(ours, key=KEY, keep_bytes=100)
        for part in parts:
            theirs.sendall(part)
            session.pump(1.0)
        assert session.farewell == farewell


def test_what_a_container_says_is_not_the_kernels(guest: Guest) -> None:
    guest.say("H", b"init 1")
    guest.say("O", b"reboot: System halted\r\n")
    assert guest.session.farewell == ""


def test_a_guest_that_dies_leaves_what_it_said(guest: Guest) -> None:
    guest.line.sendall(b"Kernel panic - not syncing\xf5T half a frame")
    guest.line.close()
    assert guest.session.run(5.0)
    assert guest.session.report().console.startswith("Kernel panic - not syncing")
    assert not guest.session.ended


def test_a_silent_guest_runs_out_of_time(guest: Guest) -> None:
    assert not guest.session.run(0.05)


@given(st.binary(max_size=400), st.sampled_from("HOEMNFXRDC?"))
def test_no_payload_breaks_the_session(payload: bytes, kind: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        session = GuestSession(ours, key=KEY)
        theirs.sendall(encode(kind, payload, 0, KEY))
        session.pump(1.0)
        assert isinstance(session.report(), GuestReport)


@given(st.binary(max_size=200))
def test_any_text_parses_to_something(payload: bytes) -> None:
    assert all(mark.cycles >= 0 and mark.name for mark in parse_marks(payload, 0.0))
    assert 0 <= parse_exit(payload)[0] <= 255
    assert parse_note(payload).text is not None
    result = parse_result(payload)
    assert 0 <= result.right <= result.done


def test_marks_in_one_frame_say_how_much_later_they_are() -> None:
    found = parse_marks(b"init 300 100000000 5100000000\nentry 30 20000000\nready 9 10000000 5\n4000", 8.0)
    assert [(m.name, m.cycles, m.monotonic_ns, m.realtime_ns) for m in found] == [
        ("init", 300, 100000000, 5100000000), ("entry", 330, 120000000, 5120000000),
        ("ready", 339, 130000000, 5120000005),
    ]  # fmt: skip
    assert [m.host_s for m in found] == pytest.approx([7.966, 7.986, 7.996])


def test_a_mark_of_an_earlier_init_is_heard_when_it_comes() -> None:
    (found,) = parse_marks(b"entry 272611808 272611900 1767225600272611950", 8.0)
    assert (found.name, found.cycles, found.realtime_ns, found.host_s) == (
        "entry", 272611808, 1767225600272611950, 8.0,
    )  # fmt: skip


@pytest.mark.parametrize("payload", [b"", b"7", b"\n", b"init 1", b"init 1 2 3 4", b"init 1 2 -3", b"init 1 2 3\n\n5"])
def test_what_is_no_mark_is_left_out(payload: bytes) -> None:
    assert parse_marks(payload, 0.0) == ()


@pytest.mark.attack
def test_marks_are_neither_endless_nor_long_ago() -> None:
    """A guest may say anything."""
    assert parse_marks(b"a %d 2 3\nb %d 2 3" % (2**63 - 1, 2**63 + 1), 0.0) == ()
    (found,) = parse_marks(b"init 1 2 3\n9999999999999", 100.0)
    assert found.host_s == 99.0


def test_a_result_says_what_was_wrong_first() -> None:
    result = parse_result(b"step=3\0kind=command\0done=4\0right=2\0same=0\0why=exit status 1, not 0\0wrong.status=-1\0"
                          b"wrong.exit=1\0wrong.head=oops\0")  # fmt: skip
    assert result.step == 3 != READY_STEP
    assert not result.ok
    assert result.wrong is not None
    assert (result.wrong.exit_code, result.wrong.head, result.why) == (1, "oops", "exit status 1, not 0")


@dataclass
class PortGuest:
    """Plays init on a port, and the kernel on the serial line."""

    console: socket.socket
    port: socket.socket
    session: GuestSession
    out: bytearray
    said: int = 0
    decoder: PortDecoder = field(default_factory=lambda: PortDecoder(KEY))

    def say(self, kind: str, payload: bytes = b"") -> None:
        self.port.sendall(encode_on_port(kind, payload, self.said, KEY))
        self.said += 1
        self.session.pump(1.0)

    def hear(self) -> list[Frame]:
        with contextlib.suppress(BlockingIOError):
            return self.decoder.feed(self.port.recv(1 << 20))[0]
        return []


@pytest.fixture
def on_port() -> Iterator[PortGuest]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(one) for _ in range(2) for one in socket.socketpair()]
        for one in sockets:
            one.setblocking(False)
        out = bytearray()
        session = GuestSession(sockets[0], key=KEY, port=sockets[2], on_stdout=out.extend, keep_output=False)
        yield PortGuest(sockets[1], sockets[3], session, out)


def test_the_host_greets_on_a_port_and_says_that_it_has_heard_all(on_port: PortGuest) -> None:
    assert [frame.type for frame in on_port.hear()] == ["h"]
    on_port.say("H", b"init 1")
    on_port.say("O", b"out")
    on_port.say("X", b"3 0 ")
    assert on_port.hear() == []
    on_port.say("Q")
    assert [frame.type for frame in on_port.hear()] == ["b"]
    report = on_port.session.report()
    assert (report.exit_code, bytes(on_port.out), report.stdout) == (3, b"out", "")


def test_standard_input_on_a_port_goes_out_in_blocks_as_credit_is_given(on_port: PortGuest) -> None:
    on_port.hear()
    on_port.say("H", b"init 1")
    on_port.session.send_stdin(bytes(200_000))
    on_port.session.end_stdin()

    def heard() -> list[int]:
        sizes: list[int] = []
        while frames := on_port.hear():
            assert {frame.type for frame in frames} <= {"i", "e"}
            sizes += [len(frame.payload) for frame in frames]
            on_port.session.send_waiting()
        return sizes

    assert heard() == [32768] * 4
    assert on_port.session.stdin_queued == 200_000 - (128 << 10)
    on_port.say("C", b"100000")
    assert heard() == [32768, 32768, 200_000 - 6 * 32768, 0]


def test_output_on_a_port_is_taken_in_bulk(on_port: PortGuest) -> None:
    on_port.hear()
    on_port.say("H", b"init 1")
    on_port.say("O", bytes(32768))
    assert on_port.hear() == []
    on_port.say("E", bytes(32768))
    assert [(frame.type, frame.payload) for frame in on_port.hear()] == [("c", b"65536")]


def test_a_session_with_a_port_ends_with_both_lines(on_port: PortGuest) -> None:
    on_port.console.sendall(b"Kernel panic - not syncing: x\n" + encode("F", b"TMPFS\0no room", 0, KEY))
    on_port.session.pump(1.0)
    assert on_port.session.fatal is not None and on_port.session.fatal.symbol == "TMPFS"
    on_port.port.close()
    assert on_port.session.pump(1.0)
    on_port.console.close()
    assert not on_port.session.pump(1.0)
    assert "Kernel panic" in on_port.session.report().console


@pytest.mark.attack
def test_a_guest_on_a_port_that_reads_nothing_takes_no_memory(on_port: PortGuest) -> None:
    """It says that it is done over and over, gives credit for what it has not read, and floods its output."""
    on_port.say("H", b"init 1")
    on_port.session.send_stdin(bytes(8 << 20))
    for _ in range(100):
        on_port.say("C", b"999999")
        on_port.say("Q")
        on_port.say("O", bytes(32768))
    assert len(on_port.session._out) < 2 << 20
    assert on_port.session.stdin_queued > 5 << 20
    heard = 0
    while frames := on_port.hear():
        heard += sum(frame.type == "b" for frame in frames)
        on_port.session.send_waiting()
    assert heard == 1


@pytest.mark.attack
def test_credit_on_a_serial_line_for_what_was_not_read(guest: Guest) -> None:
    guest.say("H", b"init 1")
    guest.session.send_stdin(bytes(8 << 20))
    for _ in range(2000):
        guest.say("C", b"2048")
    assert len(guest.session._out) < 2 << 20
    assert guest.session.stdin_queued > 3 << 20
