# SPDX-License-Identifier: Apache-2.0
"""`exec` and `attach` against a supervisor that is none: every byte, every end, and terminals that are left."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.started import Start
from tests.fakes.supervisor import Caller, Handler, Pairs, Supervisor, running

from vmtailor.base.errors import UserInputError
from vmtailor.booting.control_relay import DetachKeys, parse_keys
from vmtailor.drivers.host import control_socket
from vmtailor.drivers.host.control_socket import MAX_PAYLOAD, BrokenLine, FrameReader, frame, request


def says(*frames: tuple[str, bytes]) -> dict[str, Handler]:
    """A supervisor that answers `exec` and `attach` with these frames."""

    def answer(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        for kind, payload in frames:
            caller.send(kind, payload)

    return {"exec": answer, "attach": answer}


# ---- exec


def test_what_a_command_prints_goes_where_it_belongs_as_it_is(call: Start) -> None:
    out, err = bytes(range(256)), b"\x1b[2J\x9b\xff"
    with running("web", handlers=says(("O", out), ("E", err), ("O", b"more"), ("X", b"3 0 "))) as web:
        code, printed, said = call("exec", "web", "cat", "-A", "--", "-x")
        assert (code, printed.encode("latin-1"), said.encode("latin-1")) == (3, out + b"more", err)
        assert web.requests == [("exec", [("arg", "cat"), ("arg", "-A"), ("arg", "--"), ("arg", "-x")])]


def test_standard_input_is_passed_on_to_its_end(call: Start) -> None:
    data = bytes(range(256)) * 4000
    with running("web") as web:
        code, out, err = call("exec", "-i", "web", "cat", stdin=data)
        assert (code, err) == (0, "") and out.encode("latin-1") == data
        assert call("exec", "web", "cat", stdin=b"x") == (0, "", "")
        assert [pairs for _, pairs in web.requests] == [[("arg", "cat"), ("stdin", "1")], [("arg", "cat")]]


def test_options_of_a_command(call: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FROM_HERE", "1")
    (tmp_path / "env").write_text("C=3\n")
    with running("web") as web:
        words = (
            "-e",
            "A=b c",
            "-e",
            "FROM_HERE",
            "--env-file",
            tmp_path / "env",
            "-u",
            "7:8",
            "-w",
            "/srv",
            "--privileged",
        )
        assert call("exec", *words, "web", "id", "-u")[0] == 0
        assert web.requests[0][1] == [
            ("arg", "id"), ("arg", "-u"), ("env", "C=3"), ("env", "A=b c"), ("env", "FROM_HERE=1"), ("user", "7:8"),
            ("cwd", "/srv"), ("privileged", "1"),
        ]  # fmt: skip


def test_a_command_in_the_background(call: Start) -> None:
    with running("web", handlers=says(("R", b""))) as web:
        assert call("exec", "-d", "-i", "web", "sleep", "9") == (0, "", "")
        assert web.requests == [("exec", [("arg", "sleep"), ("arg", "9"), ("detach", "1")])]


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        (b"0 0 ", 0, ""), (b"255 0 ", 255, ""), (b"137 9 ", 137, ""),
        (b"127 0 /x: \x1b[2J", 127, "vmtailor: the command could not be started: /x: \\x1b[2J\n"),
        (b"126 0 permission denied", 126, "vmtailor: the command could not be started: permission denied\n"),
    ],
)  # fmt: skip
def test_how_a_command_ends(call: Start, end: bytes, code: int, said: str) -> None:
    with running("web", handlers=says(("X", end))):
        assert call("exec", "web", "/x") == (code, "", said)


def test_what_cannot_be_asked(call: Start) -> None:
    with running("web"):
        assert call("exec", "web")[0] == 125
        assert call("exec", "-it", "web", "sh")[0] == 125  # no terminal
        assert call("exec", "--nope", "web", "sh")[0] == 125
        assert call("exec", "nobody", "sh")[0] == 1
        code, _, err = call("exec", "-e", "A=" + "x" * MAX_PAYLOAD, "web", "sh")
        assert code == 125 and "a request has room for 65536" in err


@pytest.mark.attack
@pytest.mark.parametrize(
    "answer",
    [
        b"", b"O", b"O\xff\xff\xff\x7f", b"O\x01\0\1\0" + b"x" * 10, b"?\0\0\0\0", b"X\x00", b"\0" * 100,
        b"O\x05\0\0\0abc", b"F\x03\0\0\0\x1b[2", b"F\x00\0\0\0",
    ],
)  # fmt: skip
def test_answers_that_make_no_sense(call: Start, answer: bytes) -> None:
    def odd(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        caller.send_raw(answer)

    with running("web", handlers={"exec": odd, "attach": odd}):
        for words in (("exec", "web", "sh"), ("attach", "web")):
            code, out, err = call(*words)
            assert code in (1, 3, 125) and out == "" and "error: " in err and "\x1b" not in err


@pytest.mark.attack
def test_an_exit_status_that_is_none(call: Start) -> None:
    for end in (b"", b"x y z", b"-1 0 ", b"99999999999999999999999 0", b"256 0 "):
        with running("web", handlers=says(("X", end))) as web:
            assert 0 <= call("exec", "web", "sh")[0] <= 255
            web.end(0)
            call("rm", "web")


@pytest.mark.attack
def test_output_without_an_end_is_held_back_by_whoever_reads_it() -> None:
    """A reader that stops makes the guest wait, and memory stays bounded; one that leaves ends the session."""
    sent = 0

    def endless(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        nonlocal sent
        while True:
            caller.send("O", b"y" * MAX_PAYLOAD)
            sent += MAX_PAYLOAD

    with running("web", handlers={"exec": endless}):
        words = [sys.executable, "-m", "vmtailor", "exec", "web", "yes"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None and process.stdout.read(10) == b"y" * 10
            time.sleep(1.0)
            before = sent
            assert 0 < before < 8 << 20
            process.stdout.close()
            assert process.wait(20) == 0


# ---- attach


def test_attach_shows_what_comes_and_ends_with_the_container(call: Start) -> None:
    with running("web", handlers=says(("O", b"\xffa\n"), ("E", b"b\n"), ("X", b"5 0 "))) as web:
        assert call("attach", "web") == (5, "\xffa\n", "b\n")
        assert web.requests == [("attach", [("stdin", "0")])]
    with running("in", interactive=True) as web:
        assert call("attach", "in", stdin=b"hello")[:2] == (0, "hello")
        assert call("attach", "--no-stdin", "in", stdin=b"hello")[:2] == (0, "")
        assert [pairs for _, pairs in web.requests] == [[("stdin", "1")], [("stdin", "0")]]


@pytest.mark.parametrize("proxy", ["true", "false"])
def test_signals_are_passed_on_or_leave(call: Start, proxy: str) -> None:
    heard: list[tuple[str, bytes]] = []

    def listen(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        caller.send("O", b"ready")
        heard.append(caller.read())
        caller.send("X", b"9 0 ")

    with running("web", handlers={"attach": listen}):
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        code, out, _ = call("attach", f"--sig-proxy={proxy}", "web")
    assert (code, out) == ((9, "ready") if proxy == "true" else (0, "ready"))
    assert heard == ([("s", b"15")] if proxy == "true" else [])


class Terminal:
    """A program at a terminal of its own."""

    def __init__(self, *words: str) -> None:
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            os.execv(sys.executable, [sys.executable, "-m", "vmtailor", *words])
        self.seen = b""

    def until(self, text: bytes) -> None:
        end = time.monotonic() + 30
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            self.seen += os.read(self.end, 1024)

    def type(self, data: bytes) -> None:
        os.write(self.end, data)

    def wait(self) -> int:
        try:
            while part := os.read(self.end, 1024):
                self.seen += part
        except OSError:
            pass
        os.close(self.end)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.mark.lengthy
@pytest.mark.parametrize(("keys", "typed"), [("", b"\x10\x11"), ("ctrl-x,q", b"\x18q")])
def test_keys_leave_a_terminal_and_the_machine_goes_on(keys: str, typed: bytes) -> None:
    got = bytearray()
    ended = threading.Event()

    def terminal(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        caller.send("O", b"ready")
        try:
            for part in caller.stdin():
                got.extend(part)
                caller.send("O", b"<" + part + b">")
        finally:
            ended.set()

    with running("web", handlers={"attach": terminal, "exec": terminal}, terminal=True, interactive=True) as web:
        words = [f"--detach-keys={keys}"] if keys else []
        for verb in (["attach", *words, "web"], ["exec", "-it", *words, "web", "sh"]):
            got.clear()
            ended.clear()
            at = Terminal(*verb)
            at.until(b"ready")
            at.type(b"\x03ab" + typed[:1])
            at.until(b"<\x03ab>")
            at.type(b"c" + typed)
            assert at.wait() == 0
            assert ended.wait(10) and bytes(got) == b"\x03ab" + typed[:1] + b"c"
        assert web.folder.state().running
        assert ("terminal", "1") in web.requests[1][1] and ("rows", "24") in web.requests[1][1]


@pytest.mark.lengthy
def test_the_size_of_a_terminal_is_told() -> None:
    sizes: list[bytes] = []

    def window(supervisor: Supervisor, caller: Caller, pairs: Pairs) -> None:
        while len(sizes) < 2:
            kind, payload = caller.read()
            if kind == "w":
                sizes.append(payload)
                caller.send("O", b"seen")
        caller.send("X", b"0 0 ")

    with running("web", handlers={"exec": window}):
        at = Terminal("exec", "-it", "web", "sh")
        at.until(b"seen")
        fcntl.ioctl(at.end, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        assert at.wait() == 0
    assert sizes == [b"24 80", b"33 99"]


# ---- the parts


@pytest.mark.parametrize(
    ("text", "keys"),
    [("ctrl-p,ctrl-q", b"\x10\x11"), ("a", b"a"), ("ctrl-@,x,ctrl-]", b"\0x\x1d"), ("", b""), ("ctrl-A", b"\x01")],
)
def test_keys_by_name(text: str, keys: bytes) -> None:
    assert parse_keys(text) == keys


@pytest.mark.parametrize("text", ["ctrl-", "ctrl-1", "alt-x", "ab", "a,,b", "é"])
def test_keys_that_are_none(text: str) -> None:
    with pytest.raises(UserInputError):
        parse_keys(text)


@given(st.lists(st.binary(max_size=4)), st.sampled_from([b"\x10\x11", b"a", b"aab", b""]))
def test_keys_are_found_however_they_are_cut_and_nothing_is_lost(parts: list[bytes], keys: bytes) -> None:
    finder, passed = DetachKeys(keys), bytearray()
    for number, part in enumerate(parts):
        out, left = finder.feed(part)
        passed += out
        if left:
            before = b"".join(parts[: number + 1])
            assert keys and keys in before and bytes(passed) == before[: len(passed)]
            assert before[len(passed) :].startswith(keys)
            return
    whole = b"".join(parts)
    assert whole.startswith(bytes(passed)) and len(whole) - len(passed) < max(1, len(keys))


@given(st.lists(st.tuples(st.sampled_from("OEXRF"), st.binary(max_size=50))), st.integers(1, 20))
def test_frames_survive_however_they_are_cut(frames: list[tuple[str, bytes]], size: int) -> None:
    data = b"".join(frame(kind, payload) for kind, payload in frames)
    reader, found = FrameReader(), []
    for at in range(0, len(data), size):
        found += reader.feed(data[at : at + size])
    assert found == frames and not reader.within


@pytest.mark.attack
@given(st.binary(max_size=200))
def test_any_bytes_are_frames_or_an_error(data: bytes) -> None:
    reader = FrameReader()
    try:
        reader.feed(data)
    except BrokenLine as error:
        assert "\x1b" not in error.message


def test_requests_are_records_and_have_their_bounds() -> None:
    assert request("kill", [("signal", "9")])[5:] == b"do kill\0signal 9\0"
    with pytest.raises(UserInputError):
        request("exec", [("arg", "a\0b")])
    with pytest.raises(UserInputError):
        request("exec", [("arg", "x" * MAX_PAYLOAD)])
    with pytest.raises(ValueError):
        frame("i", b"x" * (MAX_PAYLOAD + 1))


@pytest.mark.attack
def test_a_socket_of_somebody_else_is_not_spoken_to(call: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    with running("web") as web:
        web.folder.runtime.chmod(0o777)
        code, _, err = call("kill", "web")
        assert code == 1 and "is not a folder of yours alone" in err
        web.folder.runtime.chmod(0o700)
        monkeypatch.setattr(control_socket, "peer_of", lambda _: os.geteuid() + 1)
        code, _, err = call("kill", "web")
        assert code == 1 and "somebody else answers" in err
        assert web.requests == []
