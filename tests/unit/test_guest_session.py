# SPDX-License-Identifier: Apache-2.0
"""The host's end of the line, against a guest that the test plays."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.drivers.guest.guest_session import GuestSession
from vmtailor.drivers.guest.guest_text import parse_exit, parse_marks, parse_note, parse_result
from vmtailor.drivers.guest.wire import Decoder, Frame, encode
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


def ended(session: GuestSession) -> None:
    while session.pump(5.0):
        pass


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
    ended(guest.session)
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
    guest.session.go()
    guest.session.pump(0)
    assert guest.hear() == []
    guest.say("H", b"init 1")
    guest.session.pump(0)
    assert [(frame.type, frame.payload) for frame in guest.hear()] == [("g", b"")]


def test_what_is_kept_is_bounded() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        session = GuestSession(ours, key=KEY, keep_bytes=100)
        for sequence in range(5):
            theirs.sendall(b"#" * 50 + encode("O", b"x" * 90, sequence, KEY))
            session.pump(1.0)
        report = session.report()
        assert len(report.stdout) == len(report.console) == 100
        assert report.truncated
        assert report.stdout_sha256 == hashlib.sha256(b"x" * 450).hexdigest()  # of all of it


def test_a_guest_that_dies_leaves_what_it_said(guest: Guest) -> None:
    guest.line.sendall(b"Kernel panic - not syncing\xf5T half a frame")
    guest.line.close()
    ended(guest.session)
    assert guest.session.report().console.startswith("Kernel panic - not syncing")
    assert guest.session.exit_code is None and guest.session.fatal is None


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
