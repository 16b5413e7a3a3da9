# SPDX-License-Identifier: Apache-2.0
"""Errors of host ports that could not be opened, in words."""

from __future__ import annotations

import errno
from pathlib import Path

from vmtailor.base.errors import HostError

_FIRST_FREE = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")


def explained(error: OSError, protocol: str, address: str, port: int) -> HostError:
    """Return the error of a bind(2) to a host port, in words."""
    six = ":" in address
    what = f"the host port {f'[{address}]' if six else address}:{port}/{protocol}"
    if error.errno == errno.EADDRINUSE:
        return HostError(f"{what} is already in use", hint="publish another port; -p GUEST_PORT alone finds a free one")
    if error.errno == errno.EADDRNOTAVAIL:
        return HostError(
            f"{address} is not an address of this host ({error.strerror})",
            hint=f"publish on one of its own (ip -{6 if six else 4} address), on "
            f"{'[::]' if six else '0.0.0.0'} for all of them, or without an address",
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
