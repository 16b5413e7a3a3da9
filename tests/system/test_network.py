# SPDX-License-Identifier: Apache-2.0
"""What a guest reaches through `vmtailor run`, and who reaches it. The kernel is the one that was fitted to `lighttpd`;
the program in it asks where it is told to (tests/guests/dialer). Only loopback addresses are spoken to."""

from __future__ import annotations

import contextlib
import re
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.fakes.program import Started, argv_of, assert_clear, assert_nothing_left, finish, run_program, started
from tests.system.conftest import Fitted, with_image

from vmtailor.drivers.host import host_client

pytestmark = pytest.mark.system

DIALER = Path(__file__).parents[1] / "guests" / "dialer"
ANSWER = b"from the host\n"


@pytest.fixture(scope="module")
def dialer(lighttpd: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernel of `lighttpd` with another image."""
    return with_image(lighttpd.bundle, DIALER, tmp_path_factory.mktemp("dialer"))


@dataclass
class Host:
    """Two servers on the host's loopback address. `asked`: by which protocols somebody came."""

    tcp: int
    udp: int
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def host() -> Iterator[Host]:
    with (
        socket.create_server(("127.0.0.1", 0)) as taking,
        socket.socket(type=socket.SOCK_DGRAM) as answering,
        selectors.DefaultSelector() as selector,
    ):
        answering.bind(("127.0.0.1", 0))
        found = Host(taking.getsockname()[1], answering.getsockname()[1])
        over, wake = socket.socketpair()
        for source in (taking, answering, over):
            selector.register(source, selectors.EVENT_READ)

        def serve() -> None:
            while True:
                for key, _ in selector.select():
                    if key.fileobj is over:
                        return
                    if key.fileobj is taking:
                        client, _ = taking.accept()
                        found.asked.append("tcp")
                        with client, contextlib.suppress(OSError):
                            client.sendall(ANSWER)
                            client.recv(100)
                    else:
                        _, sender = answering.recvfrom(2048)
                        found.asked.append("udp")
                        answering.sendto(ANSWER, sender)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield found
        finally:
            wake.send(b"x")
            thread.join(20)
            over.close()
            wake.close()


def asks(host: Host) -> list[str]:
    """The dialer's words: the gateway, which is the host's loopback to QEMU, and the name server, on other ports."""
    return [
        "tcp", "10.0.2.2", str(host.tcp), "udp", "10.0.2.2", str(host.udp), "tcp", "10.0.2.3", str(host.tcp),
        "udp", "10.0.2.3", str(host.udp), "tcp", "10.0.2.99", str(host.tcp),
    ]  # fmt: skip


@pytest.mark.attack
@pytest.mark.parametrize("options", [[], ["--no-outbound"]])
def test_a_guest_does_not_reach_the_hosts_loopback(
    dialer: Path, host: Host, tmp_path: Path, options: list[str]
) -> None:
    ended = run_program(tmp_path, "run", *options, dialer, *asks(host))
    assert ended.code == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert len(lines) == 5 and all(": nothing (" in line for line in lines), ended.stdout
    assert lines[0].endswith("(Connection refused)")  # at once, and not after minutes
    assert host.asked == []
    assert_nothing_left(ended)


def test_a_guest_reaches_the_hosts_loopback_where_that_is_asked_for(dialer: Path, host: Host, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "run", "--host-loopback", dialer, *asks(host)[:6])
    assert ended.stdout.splitlines() == [
        f"tcp 10.0.2.2 {host.tcp}: from the host", f"udp 10.0.2.2 {host.udp}: from the host"
    ]  # fmt: skip
    assert host.asked == ["tcp", "udp"]


def test_the_hosts_loopback_is_part_of_the_outside(dialer: Path, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "run", "--host-loopback", "--no-outbound", dialer)
    assert_clear(ended, 125, "--host-loopback needs outbound connections")


#: A network of its own with nothing but loopback addresses, whose resolver is on one of them.
INSIDE = """
import fcntl, socket, struct, subprocess, sys, threading
with socket.socket(type=socket.SOCK_DGRAM) as ask:
    fcntl.ioctl(ask, 0x8914, struct.pack("16sH22x", b"lo", 1))  # SIOCSIFFLAGS, IFF_UP
subprocess.run(["mount", "--bind", sys.argv[1], "/etc/resolv.conf"], check=True)
def serve(kind, port, answer):
    door = socket.socket(type=kind)
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    door.bind(("127.0.0.53", port))
    if kind == socket.SOCK_STREAM:
        door.listen()
    def run():
        while True:
            if kind == socket.SOCK_STREAM:
                client, _ = door.accept()
                client.recv(100)
                client.sendall(answer)
                client.close()
            else:
                _, sender = door.recvfrom(512)
                door.sendto(answer, sender)
    threading.Thread(target=run, daemon=True).start()
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    serve(kind, 53, b"a name\\n")
    serve(kind, 54, b"no name\\n")
sys.exit(subprocess.run(sys.argv[2:]).returncode)
"""


@pytest.mark.attack
def test_names_are_looked_up_at_a_resolver_on_the_loopback_and_nothing_else(dialer: Path, tmp_path: Path) -> None:
    """As systemd-resolved is: at 127.0.0.53."""
    apart = ["unshare", "--map-root-user", "--mount", "--net"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this host gives its users no namespaces")
    resolvers = tmp_path / "resolv.conf"
    resolvers.write_text("nameserver 127.0.0.53\n")
    words = [w for protocol in ("udp", "tcp") for port in ("53", "54") for w in (protocol, "10.0.2.3", port)]
    done = subprocess.run(
        [*apart, sys.executable, "-c", INSIDE, str(resolvers), *argv_of("run", dialer, *words)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "udp 10.0.2.3 53: a name" and lines[2] == "tcp 10.0.2.3 53: a name", done.stdout
    assert ": nothing (" in lines[1] and ": nothing (" in lines[3], done.stdout


@contextlib.contextmanager
def serving(folder: Path, *arguments: str | Path) -> Iterator[Started]:
    """A machine whose container serves; it is ended by the caller."""
    with started(folder, "run", *arguments) as running:
        running.wait_for("serving", where=running.out)
        yield running


def end(running: Started) -> None:
    running.process.send_signal(signal.SIGTERM)
    ended = finish(running, 30.0)
    assert ended.code == signal.SIGTERM, ended.stderr
    assert_nothing_left(ended)


def ask_udp(port: int, address: str = "127.0.0.1") -> bytes:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.settimeout(20)
        client.sendto(b"hello?", (address, port))
        return client.recv(100)


def ask_tcp(port: int, address: str = "127.0.0.1") -> bytes:
    with socket.create_connection((address, port), timeout=20) as client:
        client.sendall(b"hello?\n")
        return client.recv(100)


@pytest.mark.parametrize("options", [[], ["--no-outbound"]])
def test_published_ports_answer(dialer: Path, tmp_path: Path, options: list[str]) -> None:
    ranged = host_client.free_port()
    with serving(tmp_path, *options, "-p", "80", "-p", "7/udp", "-p", f"127.0.0.2:{ranged}:80", dialer) as running:
        said = dict(re.findall(r"127\.0\.0\.1:(\d+) leads to port (\d+/\w+)", running.stderr))
        by_guest = {guest: int(port) for port, guest in said.items()}
        assert set(by_guest) == {"80/tcp", "7/udp"}, running.stderr
        assert ask_tcp(by_guest["80/tcp"]) == b"hello\n"
        assert ask_udp(by_guest["7/udp"]) == b"hello\n"
        with socket.create_connection(("127.0.0.2", ranged), timeout=20) as client:
            client.sendall(b"hello?\n")
            assert client.recv(100) == b"hello\n"
        end(running)


@contextlib.contextmanager
def loopback_server(asked: list[bytes]) -> Iterator[int]:
    """A server on ::1, which says who came."""
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taking:
        taking.settimeout(0.1)
        over = threading.Event()

        def serve() -> None:
            while not over.is_set():
                with contextlib.suppress(TimeoutError), taking.accept()[0] as client:
                    asked.append(b"tcp")
                    client.sendall(ANSWER)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield taking.getsockname()[1]
        finally:
            over.set()
            thread.join(20.0)


@pytest.mark.parametrize("options", [[], ["--no-outbound"]])
def test_a_server_of_ipv6_alone_is_reached_by_a_published_port(
    dialer: Path, tmp_path: Path, options: list[str]
) -> None:
    ports = ("-p", "[::1]::80", "-p", "[::1]::7/udp", "-p", "80")
    with serving(tmp_path, *options, "--ip6", "fd00:1::5", *ports, dialer, "serve", "six") as running:
        said = dict(re.findall(r"\[::1\]:(\d+) leads to port (\d+/\w+)", running.stderr))
        by_guest = {guest: int(port) for port, guest in said.items()}
        assert set(by_guest) == {"80/tcp", "7/udp"}, running.stderr
        assert ask_tcp(by_guest["80/tcp"], "::1") == b"hello\n"
        assert ask_udp(by_guest["7/udp"], "::1") == b"hello\n"
        (four,) = re.findall(r"127\.0\.0\.1:(\d+) leads", running.stderr)
        with contextlib.suppress(ConnectionResetError):
            assert ask_tcp(int(four)) == b""
        end(running)


def test_a_server_of_ipv4_is_reached_from_an_address_of_ipv6(dialer: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "-p", "[::1]::80", "-p", "[::1]::7/udp", dialer) as running:
        said = dict(re.findall(r"\[::1\]:(\d+) leads to port (\d+/\w+)", running.stderr))
        by_guest = {guest: int(port) for port, guest in said.items()}
        assert ask_tcp(by_guest["80/tcp"], "::1") == b"hello\n"
        assert ask_udp(by_guest["7/udp"], "::1") == b"hello\n"
        end(running)


@pytest.mark.attack
def test_a_guest_with_ipv6_does_not_reach_the_hosts_loopback_by_it(dialer: Path, tmp_path: Path) -> None:
    asked: list[bytes] = []
    with loopback_server(asked) as port:
        words = [
            word for one in ("fd00:1::2", "fd00:1::3", "fd00:1::99", "fe80::2") for word in ("tcp", one, str(port))
        ]
        ended = run_program(tmp_path, "run", "--ip6", "fd00:1::5/64", dialer, *words)
        assert ended.code == 0, ended.stderr
        lines = ended.stdout.splitlines()
        assert len(lines) == 4 and all(": nothing (" in line for line in lines), ended.stdout
        assert "(Connection refused)" in lines[0] and asked == []
        opened = run_program(tmp_path, "run", "--host-loopback", "--ip6", "fd00:1::5", dialer, *words[:3])
        assert opened.stdout == f"tcp fd00:1::2 {port}: from the host\n" and asked == [b"tcp"]


def test_many_clients_at_once_are_all_answered(lighttpd: Fitted, tmp_path: Path) -> None:
    """With libslirp's queue of one, most were lost, or waited for most of a minute."""
    port = host_client.free_port()
    with started(tmp_path, "run", "-p", f"{port}:80", lighttpd.bundle) as running:
        await_answer(port, running)
        with contextlib.ExitStack() as stack:
            clients = []
            for _ in range(200):
                client = stack.enter_context(socket.socket())
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", port))
                clients.append(client)
            answers = ask_all(clients, b"GET / HTTP/1.0\r\n\r\n")
        assert sum(answer.startswith(b"HTTP/1.0 200 ") for answer in answers) == 200
        running.process.send_signal(signal.SIGTERM)
        assert_nothing_left(finish(running, 30.0))


def ask_all(clients: list[socket.socket], request: bytes) -> list[bytes]:
    """Send a request on each as soon as it is connected, and read the answers to their ends."""
    answers = dict.fromkeys(clients, b"")
    deadline = time.monotonic() + 30.0
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_WRITE)
        while selector.get_map() and time.monotonic() < deadline:
            for key, events in selector.select(1.0):
                source = key.fileobj
                assert isinstance(source, socket.socket)
                if events & selectors.EVENT_WRITE:
                    source.sendall(request)
                    selector.modify(source, selectors.EVENT_READ)
                elif data := source.recv(65536):
                    answers[source] += data
                else:
                    selector.unregister(source)
    return list(answers.values())


def await_answer(port: int, running: Started) -> None:
    """Wait until the container answers; QEMU takes connections, and holds them, before."""
    deadline = time.monotonic() + 60.0
    while time.monotonic() < deadline:
        assert running.process.poll() is None, running.stderr
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=20) as client:
            client.sendall(b"GET / HTTP/1.0\r\n\r\n")
            if client.recv(100).startswith(b"HTTP/"):
                return
    raise AssertionError(f"no answer: {running.stderr}")


def test_an_address_of_another_host_is_named_as_that(dialer: Path, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "run", "-p", "192.0.2.77:8080:80", dialer)
    assert_clear(ended, 125, "192.0.2.77 is not an address of this host")
    assert "in use" not in ended.stderr


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_port_that_needs_privileges_is_named_as_that(dialer: Path, tmp_path: Path, protocol: str) -> None:
    """Root of a user namespace has none outside of it."""
    if subprocess.run(["unshare", "--map-root-user", "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this host gives its users no namespaces")
    done = subprocess.run(
        ["unshare", "--map-root-user", *argv_of("run", "-p", f"81:80/{protocol}", dialer)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 125, done.stderr
    assert f"127.0.0.1:81/{protocol} needs privileges" in done.stderr and "in use" not in done.stderr
