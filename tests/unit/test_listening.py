# SPDX-License-Identifier: Apache-2.0
"""On which ports a container listened."""

from __future__ import annotations

from vmtailor.analysis.demands.container_calls import tcp_ports
from vmtailor.model.syscalls import SyscallEvent

FOUR = '{sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("0.0.0.0")}'
SIX = "{sa_family=AF_INET6, sin6_port=htons(443), sin6_flowinfo=htonl(0)}"


def call(name: str, *args: str, error: str = "") -> SyscallEvent:
    return SyscallEvent(1, 1, "t", name, args, -1 if error else 0, error, 0.0)


def test_ports_that_were_listened_on() -> None:
    events = [
        call("bind", "3<socket:[1]>", FOUR, "16"),
        call("listen", "3<socket:[1]>", "128"),
        call("bind", "4<socket:[2]>", SIX, "28"),
        call("listen", "4<socket:[2]>", "128"),
    ]
    assert tcp_ports(events) == {80, 443}
    assert tcp_ports(events[:1]) == tcp_ports(events[1:2]) == frozenset()


def test_what_failed_or_has_no_port_is_none() -> None:
    assert tcp_ports([call("bind", "3", FOUR, "16", error="EADDRINUSE"), call("listen", "3", "9")]) == frozenset()
    long = FOUR.replace("80", "8" * 5000)
    assert tcp_ports([call("bind", "3", long, "16"), call("listen", "3", "9")]) == frozenset()
    unix = '{sa_family=AF_UNIX, sun_path="/run/x"}'
    assert tcp_ports([call("bind", "3", unix, "16"), call("listen", "3", "9"), call("listen")]) == frozenset()
