# SPDX-License-Identifier: Apache-2.0
"""Why a host port could not be opened: QEMU names the port, and not the reason."""

from __future__ import annotations

import errno
import re
import socket
from pathlib import Path

from vmtailor.base.errors import HostError

_RULE = re.compile(r"(?P<protocol>tcp|udp):(?P<address>[0-9.]+):(?P<port>[0-9]+)-")
_FIRST_FREE = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


def refusal(rule: str) -> HostError:
    """What is wrong with a forwarding rule that QEMU could not set up, such as `tcp:127.0.0.1:80-:80`. The port is
    tried once more, as QEMU does it."""
    match = _RULE.match(rule)
    if match is None:
        return HostError(f"QEMU could not publish '{rule}'", hint="publish another port")
    protocol, address, port = match["protocol"], match["address"], int(match["port"])
    try:
        _try(protocol, address, port)
    except OSError as error:
        return explained(error, protocol, address, port)
    return HostError(
        f"QEMU could not open the host port {address}:{port}/{protocol}, which is free now",
        hint="something had it for a moment: try again, or publish another port",
    )


def _try(protocol: str, address: str, port: int) -> None:
    kind = socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM
    with socket.socket(socket.AF_INET, kind) as tried:
        if protocol == "tcp":
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        tried.bind((address, port))
        if protocol == "tcp":
            tried.listen(1)


def explained(error: OSError, protocol: str, address: str, port: int) -> HostError:
    """The error of a bind(2) to a host port, in words."""
    what = f"the host port {address}:{port}/{protocol}"
    if error.errno == errno.EADDRINUSE:
        return HostError(f"{what} is already in use", hint="publish another port; -p GUEST_PORT alone finds a free one")
    if error.errno == errno.EADDRNOTAVAIL:
        return HostError(
            f"{address} is not an address of this host ({error.strerror})",
            hint="publish on one of its own (ip -4 address), on 0.0.0.0 for all of them, or without an address",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return HostError(
            f"{what} needs privileges that this user does not have ({error.strerror})",
            hint=f"publish a port from {_first_free()} up, such as -p {max(8080, _first_free())}:GUEST_PORT",
        )
    return HostError(f"{what} cannot be opened: {error.strerror}", hint="publish another port")


def _first_free() -> int:
    try:
        return int(_FIRST_FREE.read_text())
    except (OSError, ValueError):
        return 1024
