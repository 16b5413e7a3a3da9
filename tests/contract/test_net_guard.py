# SPDX-License-Identifier: Apache-2.0
"""The guard in a real QEMU, without a guest: the test itself is the machine at the other end of QEMU's network, and
sends whatever frames a hostile guest might. All of it stays on loopback addresses."""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from vmtailor.base.errors import HostError
from vmtailor.base.natives import SOURCES, locate
from vmtailor.base.process import run
from vmtailor.drivers.qemu import net_guard, qemu_program
from vmtailor.drivers.qemu.net_guard import NetworkReach
from vmtailor.model.machine import Machine, PublishedPort

pytestmark = pytest.mark.contract

GUEST, GATEWAY, NAMES = "10.0.2.15", "10.0.2.2", "10.0.2.3"
#: How long silence must last to be one, in seconds. What is answered is answered in a few milliseconds.
SILENCE_S = 1.0
#: How long an answer that must come is waited for: the host may be busy.
ANSWER_S = 20.0
SYN, RST = 2, 4
#: What a hostile guest may try in order to get to 127.0.0.1 of the host.
WAYS = [GATEWAY, NAMES, "10.0.2.77", "127.0.0.1", "0.0.0.0", "255.255.255.255", "10.0.2.255"]
ONE = Machine("microvm", 32 << 20, "kernel", network=True)


def checksum(data: bytes) -> int:
    data += b"\0" * (len(data) % 2)
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


@dataclass
class Wire:
    """The guest's end of QEMU's network: Ethernet frames, each with its length before it."""

    line: socket.socket
    buffer: bytes = b""
    gateway: bytes = b"\xff" * 6
    own: bytes = b"\x52\x54\x00\x12\x34\x56"
    seen: list[tuple[str, int, int, bytes]] = field(default_factory=list)

    def send_frame(self, kind: int, data: bytes) -> None:
        frame = self.gateway + self.own + struct.pack("!H", kind) + data
        self.line.sendall(struct.pack("!I", len(frame)) + frame)

    def frames(self, wait_s: float) -> Iterator[bytes]:
        """Frames as they come, until none has come for so long."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.line, selectors.EVENT_READ)
            end = time.monotonic() + wait_s
            while selector.select(max(0.0, end - time.monotonic())):
                data = self.line.recv(65536)
                assert data, "QEMU has ended"
                self.buffer += data
                while len(self.buffer) >= 4 and len(self.buffer) >= 4 + (
                    size := struct.unpack("!I", self.buffer[:4])[0]
                ):
                    frame, self.buffer = self.buffer[4 : 4 + size], self.buffer[4 + size :]
                    yield frame

    def meet(self) -> None:
        """Say who we are, and learn who the gateway is."""
        ask = struct.pack("!HHBBH6s4s6s4s", 1, 0x0800, 6, 4, 1, self.own, socket.inet_aton(GUEST), b"\0" * 6,
                          socket.inet_aton(GATEWAY))  # fmt: skip
        self.send_frame(0x0806, ask)
        for frame in self.frames(ANSWER_S):
            if frame[12:14] == b"\x08\x06":
                self.gateway = frame[6:12]
                return
        raise AssertionError("QEMU's network does not answer")

    def send(self, protocol: int, to: str, data: bytes) -> None:
        """An IPv4 packet; the checksum of what it carries is filled in."""
        source, target = socket.inet_aton(GUEST), socket.inet_aton(to)
        at = 6 if protocol == 17 else 16
        whole = source + target + struct.pack("!BBH", 0, protocol, len(data)) + data
        data = data[:at] + struct.pack("!H", checksum(whole)) + data[at + 2 :]
        head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(data), 1, 0, 64, protocol, 0, source, target)
        head = head[:10] + struct.pack("!H", checksum(head)) + head[12:]
        self.send_frame(0x0800, head + data)

    def datagram(self, to: str, port: int, data: bytes, own_port: int = 4000) -> None:
        self.send(17, to, struct.pack("!HHHH", own_port, port, 8 + len(data), 0) + data)

    def syn(self, to: str, port: int, own_port: int) -> None:
        self.send(6, to, struct.pack("!HHIIBBHHH", own_port, port, 1000, 0, 5 << 4, SYN, 65535, 0, 0))

    def packets(self, protocol: int, wait_s: float) -> Iterator[tuple[str, int, int, bytes]]:
        """What comes to us: the sender's address and port, our port, and the rest of the packet."""
        for frame in self.frames(wait_s):
            if frame[12:14] != b"\x08\x00" or frame[23] != protocol:
                continue
            body = frame[14 + 4 * (frame[14] & 15) : 14 + struct.unpack("!H", frame[16:18])[0]]
            source, target = struct.unpack("!HH", body[:4])
            yield socket.inet_ntoa(frame[26:30]), source, target, body[4:]

    def connects(self, to: str, port: int, own_port: int, within_s: float = SILENCE_S) -> bool:
        """Whether a connection is taken; False when it is refused, or nothing is heard."""
        self.syn(to, port, own_port)
        for _, _, target, rest in self.packets(6, within_s):
            if target == own_port:
                flags = rest[9]
                assert flags & (SYN | RST), flags
                return bool(flags & SYN)
        return False

    def hears(self, to: str, port: int, own_port: int, within_s: float = SILENCE_S) -> bytes | None:
        """The answer to a datagram; None when there is none."""
        self.datagram(to, port, b"to the host", own_port)
        return next((rest[4:] for _, _, target, rest in self.packets(17, within_s) if target == own_port), None)


@contextlib.contextmanager
def qemu(
    reach: NetworkReach | None, *, restrict: str = "on", more: str = "", env: dict[str, str] | None = None
) -> Iterator[Wire]:
    """QEMU with a network, and no machine. `reach` None: without the guard."""
    ours, theirs = socket.socketpair()
    guard = {} if reach is None else {"LD_PRELOAD": str(locate().net_guard), "VMTAILOR_REACH": reach.value}
    argv = [qemu_program.installed().program, "-M", "none", "-nodefaults", "-display", "none"]
    argv += ["-netdev", f"user,id=user,restrict={restrict}{more}", "-netdev", "hubport,hubid=0,id=h0,netdev=user"]
    argv += ["-netdev", f"socket,id=wire,fd={theirs.fileno()}", "-netdev", "hubport,hubid=0,id=h1,netdev=wire"]
    with ours, theirs:
        process = subprocess.Popen(
            argv, pass_fds=[theirs.fileno()], env={**qemu_program.environment(), **guard, **(env or {})},
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        theirs.close()
        try:
            wire = Wire(ours)
            wire.meet()
            yield wire
        finally:
            process.kill()
            process.wait()


@dataclass
class Host:
    """Servers of the host on all its loopback addresses. `tcp` and `udp` are their ports; `heard` what came by UDP."""

    tcp: int
    udp: int
    heard: list[bytes]


@pytest.fixture
def host() -> Iterator[Host]:
    with socket.socket() as taking, socket.socket(type=socket.SOCK_DGRAM) as answering:
        taking.bind(("127.0.0.1", 0))
        taking.listen()
        answering.bind(("127.0.0.1", 0))
        heard: list[bytes] = []

        def answer() -> None:
            while True:
                data, sender = answering.recvfrom(2048)
                if data == b"enough":
                    return
                heard.append(data)
                answering.sendto(b"from the host", sender)

        thread = threading.Thread(target=answer)
        thread.start()
        port = answering.getsockname()[1]
        try:
            yield Host(taking.getsockname()[1], port, heard)
        finally:
            with socket.socket(type=socket.SOCK_DGRAM) as last:
                last.sendto(b"enough", ("127.0.0.1", port))
            thread.join(10)


@pytest.mark.attack
@pytest.mark.parametrize("reach", [NetworkReach.WORLD, NetworkReach.ANSWERS, NetworkReach.CLOSED])
def test_no_address_leads_to_the_hosts_loopback(host: Host, reach: NetworkReach) -> None:
    with qemu(reach) as wire:
        for number, address in enumerate(WAYS):
            assert not wire.connects(address, host.tcp, 5000 + number), address
            wire.datagram(address, host.udp, address.encode(), 6000 + number)
        # What was sent before this has been dealt with when it is answered.
        wire.meet()
    assert host.heard == []


def test_with_the_hosts_loopback_it_is_reached(host: Host) -> None:
    """So the servers above were there, and the ways lead to them where they are open."""
    with qemu(NetworkReach.HOST, restrict="off") as wire:
        for number, address in enumerate((GATEWAY, "127.0.0.1")):
            assert wire.connects(address, host.tcp, 5000 + number, ANSWER_S)
            assert wire.hears(address, host.udp, 6000 + number, ANSWER_S) == b"from the host"


@pytest.mark.attack
def test_without_the_guard_the_network_is_closed(host: Host, tmp_path: Path) -> None:
    for how in (None, {"LD_PRELOAD": f"{tmp_path}/not-there.so"}, {"VMTAILOR_REACH": "everything"}):
        with qemu(None if how is None else NetworkReach.WORLD, env=how) as wire:
            assert not wire.connects(GATEWAY, host.tcp, 5000)
            assert wire.hears(GATEWAY, host.udp, 6000) is None
    assert host.heard == []


@pytest.mark.attack
def test_over_ipv6_nothing_leads_there_either(host: Host) -> None:
    """run gives its machines no IPv6 at all; the guard would hold there, too."""
    with socket.socket(socket.AF_INET6) as tried:
        try:
            tried.bind(("::1", 0))
        except OSError:
            pytest.skip("this host has no IPv6")
    lines = """
import socket, sys
for family, address in ((socket.AF_INET6, "::1"), (socket.AF_INET6, "::"), (socket.AF_INET6, "::ffff:127.0.0.1")):
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(family, kind) as tried:
            try:
                tried.connect((address, int(sys.argv[1])))
            except ConnectionRefusedError:
                continue
            print(address, kind)
"""
    assert guarded(lines, str(host.tcp), reach=NetworkReach.WORLD) == ""
    assert guarded(lines, str(host.tcp), reach=NetworkReach.HOST) != ""


def guarded(lines: str, *arguments: str, reach: NetworkReach, library: Path | None = None) -> str:
    """What a Python program prints that the guard was loaded into."""
    env = {**os.environ, "LD_PRELOAD": str(library or locate().net_guard), "VMTAILOR_REACH": reach.value}
    return run([sys.executable, "-c", lines, *arguments], timeout_s=60, env=env).text


SENDERS = """
import socket, sys
with socket.socket(type=socket.SOCK_DGRAM) as sender:
    for place in sys.argv[1:]:
        there = (place.split(":")[0], int(place.split(":")[1]))
        for send in (lambda: sender.sendto(b"x", there), lambda: sender.sendmsg([b"x"], [], 0, there)):
            try:
                send()
                print(place, "sent")
            except ConnectionRefusedError:
                print(place, "refused")
"""


def test_the_hosts_resolver_is_asked_for_names_and_nothing_else(tmp_path: Path) -> None:
    resolvers = tmp_path / "resolv.conf"
    resolvers.write_text(
        "# nameserver 127.0.0.9\nsearch x\nnameserver 192.0.2.1\n nameserver\t127.0.0.53\nnameserver ::1\n"
    )
    out = tmp_path / "out"
    make = ["make", "-C", str(SOURCES / "net-guard"), f"OUT={out}", f'CFLAGS=-O1 -DRESOLVERS=\\"{resolvers}\\"']
    run(make, timeout_s=100)
    said = guarded(
        SENDERS, "127.0.0.53:53", "127.0.0.53:54", "127.0.0.1:53", "127.0.0.9:53", "127.0.0.53:5353",
        reach=NetworkReach.WORLD, library=out / "libvtnetguard.so",
    )  # fmt: skip
    sent = [line.split()[0] for line in said.splitlines() if line.endswith("sent")]
    assert sent == ["127.0.0.53:53"] * 2
    assert said.count("refused") == 8
    resolvers.unlink()
    assert "sent" not in guarded(SENDERS, "127.0.0.53:53", reach=NetworkReach.WORLD, library=out / "libvtnetguard.so")


def free(kind: socket.SocketKind) -> int:
    with socket.socket(type=kind) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.attack
@pytest.mark.parametrize("reach", [NetworkReach.WORLD, NetworkReach.ANSWERS])
def test_a_published_udp_port_answers_those_who_ask_and_nobody_else(host: Host, reach: NetworkReach) -> None:
    port = free(socket.SOCK_DGRAM)
    with (
        qemu(reach, more=f",hostfwd=udp:127.0.0.1:{port}-{GUEST}:7") as wire,
        socket.socket(type=socket.SOCK_DGRAM) as client,
        socket.socket(type=socket.SOCK_DGRAM) as other,
    ):
        client.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        client.settimeout(ANSWER_S)
        client.sendto(b"from a client", ("127.0.0.1", port))
        sender, sender_port, target, rest = next(wire.packets(17, ANSWER_S))
        assert (target, rest[4:]) == (7, b"from a client")
        assert sender_port == client.getsockname()[1]
        # The machine's published port may answer, and may not turn to others from there.
        wire.datagram(GATEWAY, other.getsockname()[1], b"unasked", 7)
        wire.datagram(GATEWAY, host.udp, b"unasked", 7)
        wire.datagram(sender, sender_port, b"the answer", 7)
        assert client.recvfrom(100)[0] == b"the answer"
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.recv(100)
    assert host.heard == []


def test_many_may_wait_at_a_published_port() -> None:
    """libslirp's queue of one loses them, or has them try again for most of a minute."""
    wanted = min(200, int(Path("/proc/sys/net/core/somaxconn").read_text()))
    lines = """
import socket, sys
with socket.socket() as taking:
    taking.bind(("127.0.0.1", 0))
    taking.listen(1)
    print(taking.getsockname()[1], flush=True)
    sys.stdin.read()
"""
    env = {**os.environ, "LD_PRELOAD": str(locate().net_guard), "VMTAILOR_REACH": "closed"}
    with subprocess.Popen(
        [sys.executable, "-c", lines], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as taking:
        assert taking.stdout is not None
        port = int(taking.stdout.readline())
        with contextlib.ExitStack() as clients:
            for _ in range(wanted):
                clients.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))


def test_the_guard_is_found_to_stand() -> None:
    net_guard.require.cache_clear()
    net_guard.require(qemu_program.installed().program)


def test_what_a_machine_is_given() -> None:
    program = qemu_program.installed().program
    tcp, udp = PublishedPort("127.0.0.1", 1, 1), PublishedPort("127.0.0.1", 1, 1, "udp")
    for machine, reach in (
        (replace(ONE, outbound=True), "world"),
        (replace(ONE, outbound=True, host_loopback=True), "host"),
        (replace(ONE, ports=(tcp,)), "closed"),
        (replace(ONE, ports=(tcp, udp)), "answers"),
        (replace(ONE, ports=(udp,), outbound=True), "world"),
    ):
        found = net_guard.variables(machine, program)
        assert found == {"LD_PRELOAD": str(locate().net_guard), "VMTAILOR_REACH": reach}
    assert net_guard.variables(ONE, program) == {}
    assert net_guard.variables(replace(ONE, network=False, outbound=True), program) == {}


@pytest.mark.attack
def test_a_qemu_that_cannot_be_guarded_is_not_started(tmp_path: Path) -> None:
    bare = tmp_path / "qemu"
    bare.write_text(f'#!/bin/sh\nunset LD_PRELOAD\nexec {qemu_program.installed().program} "$@"\n')
    bare.chmod(0o755)
    with pytest.raises(HostError, match="cannot guard") as caught:
        net_guard.variables(replace(ONE, outbound=True), str(bare))
    assert "--no-outbound" in caught.value.hint
    assert net_guard.variables(replace(ONE, outbound=True, host_loopback=True), str(bare))["VMTAILOR_REACH"] == "host"
