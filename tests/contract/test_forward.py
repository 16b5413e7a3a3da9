# SPDX-License-Identifier: Apache-2.0
"""The program that passes connections on (native/forward), between a caller and a server that are played."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from vmtailor.base.natives import locate

PATIENCE_S = 30.0


@contextlib.contextmanager
def forwarded(port: int, kind: socket.SocketKind = socket.SOCK_STREAM, address: str = "::1") -> Iterator[int]:
    """A port of ::1 that leads to one of 127.0.0.1."""
    with socket.socket(socket.AF_INET6, kind) as listening:
        listening.bind((address, 0))
        if kind is socket.SOCK_STREAM:
            listening.listen()
        argv = [str(locate().forward), str(listening.fileno()), str(port)]
        process = subprocess.Popen(argv, pass_fds=(listening.fileno(),))
        try:
            yield listening.getsockname()[1]
            assert process.poll() is None
        finally:
            process.kill()
            process.wait()


@contextlib.contextmanager
def server() -> Iterator[socket.socket]:
    with socket.socket() as made:
        made.settimeout(PATIENCE_S)
        made.bind(("127.0.0.1", 0))
        made.listen()
        yield made


@contextlib.contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A caller and a server, connected through the program."""
    with (
        server() as there,
        forwarded(there.getsockname()[1]) as port,
        socket.create_connection(("::1", port), PATIENCE_S) as caller,
        there.accept()[0] as served,
    ):
        served.settimeout(PATIENCE_S)
        yield caller, served


def all_of(connection: socket.socket) -> bytes:
    data = bytearray()
    while part := connection.recv(65536):
        data += part
    return bytes(data)


def test_every_byte_both_ways_each_with_its_own_end() -> None:
    """The server has read all before it answers: the caller's end does not end the answer."""
    sent = [os.urandom(3 << 20), os.urandom(2 << 20)]
    got = []
    with pair() as (caller, served):

        def serve() -> None:
            got.append(all_of(served))
            served.sendall(sent[1])
            served.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve)
        thread.start()
        caller.sendall(sent[0])
        caller.shutdown(socket.SHUT_WR)
        answer = all_of(caller)
        thread.join(PATIENCE_S)
    assert (got, answer) == ([sent[0]], sent[1])


def test_a_reader_that_is_slow_holds_the_writer_back() -> None:
    with pair() as (caller, served):
        caller.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 256 << 20:
                sent += caller.send(bytes(1 << 20))
        assert sent < 256 << 20
        assert len(served.recv(1000)) == 1000


@pytest.mark.parametrize("by_caller", [True, False])
def test_a_reset_resets_the_other_side(by_caller: bool) -> None:
    with pair() as (caller, served):
        first, second = (caller, served) if by_caller else (served, caller)
        first.sendall(b"x")
        assert second.recv(1) == b"x"
        first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        first.close()
        with pytest.raises(ConnectionResetError):
            second.recv(1)


def test_where_nobody_serves_callers_are_told_and_the_next_is_taken() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # it does not listen, and nobody else can have its port
        with forwarded(silent.getsockname()[1]) as here:
            for _ in range(3):
                with pytest.raises(ConnectionResetError), socket.create_connection(("::1", here), PATIENCE_S) as caller:
                    caller.recv(1)  # on a busy host the reset is there before this, in the connection's own call


def test_more_callers_than_it_takes_wait() -> None:
    with server() as there, forwarded(there.getsockname()[1]) as port, contextlib.ExitStack() as held:
        there.listen(300)
        callers = [held.enter_context(socket.create_connection(("::1", port), PATIENCE_S)) for _ in range(256)]
        served = [held.enter_context(there.accept()[0]) for _ in callers]
        late = held.enter_context(socket.create_connection(("::1", port), PATIENCE_S))
        there.settimeout(0.3)
        with pytest.raises(TimeoutError):
            there.accept()
        callers[0].close()
        served[0].close()
        for one in served[1:3]:
            one.close()
        callers[1].close()
        callers[2].close()
        there.settimeout(PATIENCE_S)
        with there.accept()[0] as last:
            late.sendall(b"x")
            assert last.recv(1) == b"x"


@contextlib.contextmanager
def bound(address: str = "127.0.0.1") -> Iterator[socket.socket]:
    """A socket for datagrams."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as made:
        made.settimeout(PATIENCE_S)
        made.bind((address, 0))
        yield made


@contextlib.contextmanager
def datagrams(address: str = "::1") -> Iterator[tuple[socket.socket, int]]:
    """A server of datagrams, and the port of IPv6 that leads to it."""
    with bound() as there, forwarded(there.getsockname()[1], socket.SOCK_DGRAM, address) as port:
        yield there, port


def test_datagrams_come_whole_and_each_caller_gets_its_own_answers() -> None:
    with datagrams() as (there, port), bound("::1") as first, bound("::1") as second:
        for caller, sent in ((first, b"one"), (second, b""), (first, b"x" * 60000)):
            caller.sendto(sent, ("::1", port))
            got, who = there.recvfrom(65536)
            assert got == sent
            there.sendto(b"to " + sent, who)
            there.sendto(b"more", who)
            assert [caller.recvfrom(65536)[:2] for _ in range(2)] == [
                (b"to " + sent, ("::1", port, 0, 0)), (b"more", ("::1", port, 0, 0)),
            ]  # fmt: skip


def test_an_answer_comes_from_the_address_that_was_asked() -> None:
    """Of a socket on all addresses the kernel would choose the one nearest to the caller."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as found:
        try:
            found.connect(("2001:db8::1", 9))
        except OSError:
            pytest.skip("this host has one address of IPv6, ::1")
        asked = found.getsockname()[0]
    with datagrams("::") as (there, port), bound("::1") as caller:
        caller.sendto(b"x", (asked, port))
        there.sendto(b"y", there.recvfrom(10)[1])
        assert caller.recvfrom(10)[1][:2] == (asked, port)


def test_datagrams_for_nobody_are_lost_and_the_next_arrive() -> None:
    with bound() as gone:
        port = gone.getsockname()
    with forwarded(port[1], socket.SOCK_DGRAM) as here, bound("::1") as caller:
        caller.sendto(b"lost", ("::1", here))
        caller.sendto(b"lost", ("::1", here))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as there:
            there.settimeout(PATIENCE_S)
            there.bind(port)
            caller.sendto(b"kept", ("::1", here))
            assert there.recv(10) in (b"lost", b"kept")


def test_the_caller_that_was_silent_longest_makes_room() -> None:
    with datagrams() as (there, port), contextlib.ExitStack() as held:
        callers = [held.enter_context(bound("::1")) for _ in range(1026)]
        ways = []
        for caller in callers:
            caller.sendto(b"x", ("::1", port))
            ways.append(there.recvfrom(10)[1])
            if len(ways) == 1000:  # the first speaks again, so the second is the oldest
                callers[0].sendto(b"x", ("::1", port))
                assert there.recvfrom(10)[1] == ways[0]
        for number in (0, 3, 1025):
            there.sendto(b"%d" % number, ways[number])
            assert callers[number].recv(10) == b"%d" % number
        there.sendto(b"late", ways[1])
        callers[1].settimeout(0.3)
        with pytest.raises(TimeoutError):
            callers[1].recv(10)


@pytest.mark.parametrize("words", [[], ["3"], ["3", "0"], ["3", "65536"], ["x", "80"], ["3", "80", "4"]])
def test_words_that_are_none(words: list[str]) -> None:
    ended = subprocess.run([locate().forward, *words], capture_output=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 64 and b"is not understood" in ended.stderr


def test_a_descriptor_that_is_none(tmp_path: Path) -> None:
    ended = subprocess.run([locate().forward, "77", "80"], capture_output=True, timeout=PATIENCE_S, check=False)
    assert ended.returncode == 71 and b"descriptor 77" in ended.stderr
