# SPDX-License-Identifier: Apache-2.0
"""Sockets: families, options, and the modules of the standard library on top of them."""

from __future__ import annotations

import array
import ctypes
import http.client
import http.server
import os
import select
import selectors
import socket
import socketserver
import struct
import tempfile
import threading

from features import done, feature, further, libc, need


def _talk(family: int, address: object, kind: int = socket.SOCK_STREAM) -> None:
    """A server and a client of this family say something to each other."""
    with socket.socket(family, kind) as server, socket.socket(family, kind) as client:
        server.bind(address)
        server.listen(4)
        client.connect(server.getsockname())
        client.sendall(b"ping")
        accepted, _ = server.accept()
        with accepted:
            need(accepted.recv(10) == b"ping")
            accepted.sendall(b"pong")
            need(client.recv(10) == b"pong")


def _pair() -> tuple[socket.socket, socket.socket]:
    """A TCP connection over the loopback interface."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(4)
        client = socket.create_connection(server.getsockname())
        return client, server.accept()[0]


@feature
def tcp_ipv4() -> None:
    _talk(socket.AF_INET, ("127.0.0.1", 0))


@feature
def tcp_ipv6() -> None:
    _talk(socket.AF_INET6, ("::1", 0))


@feature
def tcp_dual_stack() -> None:
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        socket.create_connection(("127.0.0.1", server.getsockname()[1])).close()


@feature
def udp_ipv4() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as one, socket.socket(type=socket.SOCK_DGRAM) as two:
        one.bind(("127.0.0.1", 0))
        two.sendto(b"x", one.getsockname())
        need(one.recv(10) == b"x")


@feature
def udp_ipv6() -> None:
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as one:
        one.bind(("::1", 0))
        one.sendto(b"x", one.getsockname())
        need(one.recv(10) == b"x")


@feature
def unix_stream() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _talk(socket.AF_UNIX, f"{folder}/socket")


@feature
def unix_seqpacket() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _talk(socket.AF_UNIX, f"{folder}/socket", socket.SOCK_SEQPACKET)


@feature
def unix_abstract() -> None:
    _talk(socket.AF_UNIX, "\0vmtailor-probe")


@feature
def unix_datagrams() -> None:
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.send(b"x")
    need(two.recv(10) == b"x")


@feature
def unix_passes_files() -> None:
    one, two = socket.socketpair()
    readable, writable = os.pipe()
    socket.send_fds(one, [b"x"], [writable])
    _, files, _, _ = socket.recv_fds(two, 10, 4)
    os.write(files[0], b"through")
    need(os.read(readable, 10) == b"through")


@feature
def unix_credentials() -> None:
    one, two = socket.socketpair()
    two.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    one.send(b"x")
    _, ancillary, _, _ = two.recvmsg(10, socket.CMSG_SPACE(12))
    need(struct.unpack("iii", ancillary[0][2])[0] == os.getpid())
    peer = one.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    need(struct.unpack("iii", peer)[1] == os.getuid())


@feature
def netlink_route() -> None:
    need((1, "lo") in socket.if_nameindex())
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.bind((0, 0))
        link.send(struct.pack("IHHIIB3x", 20, 18, 0x301, 1, 0, 0))  # RTM_GETLINK, dump
        need(len(link.recv(65536)) > 16)


@feature
def packet_socket() -> None:
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as raw:
        raw.bind(("lo", 3))


@feature
def raw_icmp() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()


@feature
def alg_sha256() -> None:
    with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET) as alg:
        alg.bind(("hash", "sha256"))
        operation, _ = alg.accept()
        operation.sendall(b"abc")
        need(operation.recv(64).hex().startswith("ba7816bf"))


@feature
def vsock_socket() -> None:
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()


@further
def mptcp_socket() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262).close()


@further
def sctp_socket() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_SCTP).close()


@feature
def option_reuseport() -> None:
    with socket.socket() as one, socket.socket() as two:
        for item in (one, two):
            item.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        one.bind(("127.0.0.1", 0))
        one.listen()
        two.bind(one.getsockname())
        two.listen()


@feature
def option_keepalive() -> None:
    with socket.socket() as item:
        item.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT):
            item.setsockopt(socket.IPPROTO_TCP, name, 5)


@feature
def options_of_tcp() -> None:
    with socket.socket() as item:
        for name in ("NODELAY", "CORK", "DEFER_ACCEPT", "QUICKACK", "USER_TIMEOUT", "SYNCNT", "LINGER2"):
            item.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{name}"), 1)


@feature
def option_tcp_info() -> None:
    one, _other = _pair()
    need(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[0] == 1)


@feature
def option_tcp_congestion() -> None:
    with socket.socket() as item:
        name = item.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")
        item.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"reno")
        need(name)


@feature
def option_tcp_fastopen() -> None:
    with socket.socket() as item:
        item.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 5)


@further
def option_socket_filter() -> None:
    code = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0xFFFF))  # return everything
    with socket.socket(type=socket.SOCK_DGRAM) as item:
        item.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxP", 1, ctypes.addressof(code)))


@feature
def option_timestamps() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as item:
        item.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
        item.bind(("127.0.0.1", 0))
        item.sendto(b"x", item.getsockname())
        need(item.recvmsg(10, 200)[1])


@feature
def option_bind_to_device() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as item:
        item.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")


@further
def option_zerocopy() -> None:
    with socket.socket() as item:
        item.setsockopt(socket.SOL_SOCKET, 60, 1)


@feature
def option_packet_info() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as item:
        item.setsockopt(socket.IPPROTO_IP, 8, 1)  # IP_PKTINFO
        item.setsockopt(socket.IPPROTO_IP, 11, 1)  # IP_RECVERR
        item.bind(("127.0.0.1", 0))
        item.sendto(b"x", item.getsockname())
        need(item.recvmsg(10, 200)[1])


@feature
def option_multicast() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as item:
        group = socket.inet_aton("224.0.0.251") + socket.inet_aton("127.0.0.1")
        item.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group)
        item.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 2)


@feature
def options_of_sockets() -> None:
    with socket.socket() as item:
        for name in ("REUSEADDR", "BROADCAST", "OOBINLINE", "PRIORITY", "MARK", "DONTROUTE", "RCVLOWAT"):
            value = 0 if name == "MARK" else 1
            if name != "MARK":  # needs a capability
                item.setsockopt(socket.SOL_SOCKET, getattr(socket, f"SO_{name}"), value)
        item.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 1))
        item.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)


@feature
def socket_timeout() -> None:
    one, _two = socket.socketpair()
    one.settimeout(0.05)
    try:
        one.recv(1)
    except TimeoutError:
        return
    raise RuntimeError("no timeout")


@feature
def socket_kernel_timeout() -> None:
    one, _two = socket.socketpair()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50000))
    try:
        one.recv(1)
    except BlockingIOError:
        return
    raise RuntimeError("no timeout")


@feature
def socket_sendfile() -> None:
    one, two = _pair()
    with tempfile.TemporaryFile() as file:
        file.write(b"x" * 5000)
        file.flush()
        need(os.sendfile(one.fileno(), file.fileno(), 0, 5000) > 0)
    need(two.recv(10))


@feature
def socket_out_of_band() -> None:
    one, two = _pair()
    one.send(b"!", socket.MSG_OOB)
    _, _, urgent = select.select([], [], [two], 2)
    need(urgent and two.recv(1, socket.MSG_OOB) == b"!")


@feature
def socket_peek_and_queue() -> None:
    import fcntl
    import termios

    one, two = socket.socketpair()
    one.send(b"12345")
    need(two.recv(2, socket.MSG_PEEK) == b"12")
    size = array.array("i", [0])
    fcntl.ioctl(two, termios.FIONREAD, size)
    need(size[0] == 5)


@further
def recvmmsg() -> None:
    one, two = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.send(b"x")
    message = ctypes.create_string_buffer(64)
    done(libc.recvmmsg(two.fileno(), message, 1, 0, None))


@feature
def interface_requests() -> None:
    import fcntl

    with socket.socket(type=socket.SOCK_DGRAM) as item:
        found = fcntl.ioctl(item, 0x8915, struct.pack("256s", b"lo"))  # SIOCGIFADDR
        need(socket.inet_ntoa(found[20:24]) == "127.0.0.1")
        fcntl.ioctl(item, 0x8913, struct.pack("256s", b"lo"))  # SIOCGIFFLAGS


@feature
def resolve_localhost() -> None:
    need(socket.getaddrinfo("localhost", 80))
    need(socket.gethostname())


@feature
def select_select() -> None:
    readable, writable = os.pipe()
    os.write(writable, b"x")
    need(select.select([readable], [], [], 1)[0])
    os.read(readable, 1)
    need(not select.select([readable], [], [], 0.02)[0])


@feature
def select_poll() -> None:
    readable, writable = os.pipe()
    poll = select.poll()
    poll.register(readable, select.POLLIN)
    need(not poll.poll(20))
    os.write(writable, b"x")
    need(poll.poll(1000))


@feature
def select_epoll() -> None:
    readable, writable = os.pipe()
    with select.epoll() as poll:
        poll.register(readable, select.EPOLLIN | select.EPOLLET | select.EPOLLONESHOT)
        need(not poll.poll(0.02))
        os.write(writable, b"x")
        need(poll.poll(1) and not poll.poll(0))


@feature
def select_selectors() -> None:
    one, two = socket.socketpair()
    with selectors.DefaultSelector() as selector:
        selector.register(one, selectors.EVENT_READ)
        two.send(b"x")
        need(selector.select(1))


@further
def epoll_pwait2() -> None:
    from features import call

    with select.epoll() as poll:
        events = ctypes.create_string_buffer(64)
        limit = ctypes.create_string_buffer(struct.pack("ll", 0, 1000000))
        call("epoll_pwait2", poll.fileno(), ctypes.byref(events), 1, ctypes.byref(limit), 0, 0)


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        self.request.sendall(self.request.recv(100))


@feature
def socketserver_threads() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with socket.create_connection(server.server_address) as client:
            client.sendall(b"echo")
            need(client.recv(10) == b"echo")
        server.shutdown()


@feature
def socketserver_forks() -> None:
    with socketserver.ForkingTCPServer(("127.0.0.1", 0), _Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        with socket.create_connection(server.server_address) as client:
            client.sendall(b"echo")
            need(client.recv(10) == b"echo")
        server.shutdown()


@feature
def http_server_and_client() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        client = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        client.request("GET", "/")
        need(client.getresponse().status == 200)
        server.shutdown()


@feature
def syslog_over_a_socket() -> None:
    import logging.handlers

    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(f"{folder}/log")
        handler = logging.handlers.SysLogHandler(f"{folder}/log")
        handler.emit(logging.makeLogRecord({"msg": "hello"}))
        need(b"hello" in server.recv(200))
        handler.close()
