# SPDX-License-Identifier: Apache-2.0
"""On which TCP ports a container listened, from its system calls."""

from __future__ import annotations

import re
from collections.abc import Iterable

from vmtailor.model.syscalls import SyscallEvent

_PORT = re.compile(r"sin6?_port=htons\((\d{1,5})\)")


def tcp_ports(events: Iterable[SyscallEvent]) -> frozenset[int]:
    """The ports of the sockets on which `listen` succeeded. A port that the kernel chose is not among them."""
    bound: dict[str, int] = {}
    found = set()
    for event in events:
        if event.error or len(event.args) < 2:
            continue
        if event.name == "bind" and (port := _PORT.search(event.args[1])):
            bound[event.args[0]] = int(port[1])
        elif event.name == "listen" and event.args[0] in bound:
            found.add(bound[event.args[0]])
    return frozenset(found) - {0}
