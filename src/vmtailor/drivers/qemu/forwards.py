# SPDX-License-Identifier: Apache-2.0
"""Errors of host ports that QEMU could not open: QEMU names the port, and not the reason."""

from __future__ import annotations

import re
import socket

from vmtailor.base.errors import HostError
from vmtailor.drivers.host.host_ports import explained

_RULE = re.compile(r"(?P<protocol>tcp|udp):(?P<address>[0-9.]+):(?P<port>[0-9]+)-")


def refusal(rule: str) -> HostError:
    """Return what is wrong with a forwarding rule that QEMU could not set up, such as `tcp:127.0.0.1:80-:80`. The port
    is tried once more, as QEMU does it."""
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
