# SPDX-License-Identifier: Apache-2.0
"""The exercise's clients on the host, against a server on the loopback address."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from vmtailor.drivers.host import host_client
from vmtailor.drivers.host.host_client import free_port, wrong_answers
from vmtailor.model.exercise import Exercise, Expect, Ready, ReadyKind, Step, StepKind

BODY = b"a page\n"


class _Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/" else 404)
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), _Server) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield int(server.server_address[1])
        server.shutdown()
        thread.join()


def asked(step: Step, port: int) -> list[str]:
    return wrong_answers(Exercise("x", Ready(ReadyKind.EXIT), (step,)), {80: port})


def get(path: str = "/", **expect: object) -> Step:
    return Step(StepKind.HTTP, port=80, path=path, expect=Expect(**expect))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "step",
    [
        get(status=200),
        get("/none", status=404),
        get(status=200, contains="page", stdout="a page\n", sha256=hashlib.sha256(BODY).hexdigest()),
        get(),
    ],
)
def test_right_answers(port: int, step: Step) -> None:
    assert asked(step, port) == []


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (get("/none", status=200), "GET :80/none: status 404, expected 200"),
        (get(contains="other"), "expected the body to contain 'other'; the body began: 'a page'"),
        (get(stdout="a"), "the body is not as expected: line 1 is 'a page', expected 'a'"),
        (get(sha256="0" * 64), "expected 000000000000…; the body began: 'a page'"),
        (
            get("/none", status=200, contains="other"),
            "status 404, expected 200; expected the body to contain 'other'; the body",
        ),
    ],
)
def test_wrong_answers(port: int, step: Step, said: str) -> None:
    found = asked(step, port)
    assert len(found) == 1 and said in found[0]


def test_nobody_listens() -> None:
    found = asked(get(status=200), free_port())
    assert len(found) == 1 and "is not answered" in found[0]
    idle = wrong_answers(Exercise("x", Ready(ReadyKind.EXIT)), {80: free_port()}, {80})
    assert len(idle) == 1 and "port 80 takes no connection" in idle[0]


@pytest.mark.lengthy
def test_a_port_that_no_step_asks_must_take_a_connection(port: int) -> None:
    assert wrong_answers(Exercise("x", Ready(ReadyKind.EXIT)), {80: port}, {80}) == []


class _Closer(threading.Thread):
    """Takes each connection and closes it, as QEMU does when nobody listens in the guest."""

    def __init__(self) -> None:
        super().__init__()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listener.getsockname()[1])

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.listener.accept()[0].close()

    def end(self) -> None:
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.join()


@pytest.fixture
def closer() -> Iterator[int]:
    thread = _Closer()
    thread.start()
    yield thread.port
    thread.end()


TCP = Step(StepKind.TCP, port=80)


@pytest.mark.parametrize("load", [(), (TCP,)])
def test_a_connection_that_is_closed_at_once_has_reached_nobody(closer: int, load: tuple[Step, ...]) -> None:
    found = wrong_answers(Exercise("x", Ready(ReadyKind.EXIT), load), {80: closer}, {80})
    assert found == ["from the host, a connection to port 80 is closed at once: nobody listens behind it"]


def test_where_the_container_does_not_listen_nobody_must_be(closer: int) -> None:
    assert wrong_answers(Exercise("x", Ready(ReadyKind.EXIT)), {80: closer}) == []


@pytest.mark.lengthy
def test_a_step_that_only_connects(port: int) -> None:
    assert asked(TCP, port) == []
    assert "is not answered" in asked(TCP, free_port())[0]


def command(script: str, **expect: object) -> Step:
    argv = (sys.executable, "-c", script, "{port:80}", "http://127.0.0.1:{port:80}/")
    return Step(StepKind.HOST_COMMAND, argv=argv, expect=Expect(**expect))  # type: ignore[arg-type]


def test_commands_on_the_host(port: int) -> None:
    where = f"{port} http://127.0.0.1:{port}/\n"
    say = "import sys; print(*sys.argv[1:])"
    run = [command(say, stdout=where), command(f"{say}; sys.exit(4)", exit_code=4)]
    for step in run:
        assert [text for text in asked(step, port) if "takes no" not in text] == []
    wrong = asked(command(f"{say}; sys.exit(4)"), port)
    assert len(wrong) == 1 and "exit code 4, expected 0" in wrong[0]
    other = asked(Step(StepKind.HOST_COMMAND, argv=("true", "{port:81}")), port)
    assert len(other) == 1 and "port 81 is not published" in other[0]
    missing = asked(Step(StepKind.HOST_COMMAND, argv=("/no/such/program",)), port)
    assert len(missing) == 1 and "is not answered" in missing[0]


def test_a_server_that_says_a_byte_now_and_then_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_client, "TIMEOUT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            line, _ = server.accept()
            with line, contextlib.suppress(OSError):
                line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                while True:
                    line.sendall(b"x")
                    time.sleep(0.1)

        thread = threading.Thread(target=drip)
        thread.start()
        began = time.monotonic()
        (said,) = asked(get(status=200), server.getsockname()[1])
        assert "answer" in said and time.monotonic() - began < 5
        thread.join(5)
        assert not thread.is_alive()


def test_an_answer_that_ends_early_is_wrong() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            line, _ = server.accept()
            with line:
                line.recv(4096)
                line.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nsix...")

        thread = threading.Thread(target=answer)
        thread.start()
        assert asked(get(status=200), server.getsockname()[1]) == [
            "from the host, GET :80/: the answer ends 4 bytes early"
        ]
        thread.join(5)


def test_the_ports_that_an_exercise_asks_from_the_host() -> None:
    steps = (
        get(), Step(StepKind.TCP, port=443), Step(StepKind.COMMAND, argv=("x", "8080")),
        Step(StepKind.HOST_COMMAND, argv=("curl", "127.0.0.1:{port:9000}/{port:9001}")),
    )  # fmt: skip
    assert host_client.ports_asked(Exercise("x", Ready(ReadyKind.EXIT), steps)) == {80, 443, 9000, 9001}
