# SPDX-License-Identifier: Apache-2.0
"""What the tracer itself makes the kernel ask for: that is no demand of the container."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vmtailor.model.syscalls import SyscallEvent

#: To name the protocol of a netlink socket, strace opens one of the family that tells about sockets; the kernel then
#: asks for that family (NETLINK_SOCK_DIAG is 4), and for what answers to the type of socket in question.
_SOCKET_DIAGNOSIS = re.compile(r"net-pf-16-proto-4(?:-type-\d+(?:-\d+)?)?")
_OWN_USE = ("NETLINK_SOCK_DIAG", "NETLINK_INET_DIAG")


def of_container(requests: Iterable[str], events: Iterable[SyscallEvent]) -> tuple[str, ...]:
    """Of the modules that the kernel asked for, those that the container's own calls (`events`) can have asked for."""
    own = any(event.name == "socket" and event.args[2:3] and event.args[2] in _OWN_USE for event in events)
    return tuple(name for name in requests if own or not _SOCKET_DIAGNOSIS.fullmatch(name))
