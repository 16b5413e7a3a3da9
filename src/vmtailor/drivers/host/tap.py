# SPDX-License-Identifier: Apache-2.0
"""TAP devices of this host: opened for a machine, and the network that they lead to."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import socket
import struct
from pathlib import Path

from vmtailor.base.errors import HostError

_TUN = "/dev/net/tun"
_DEVICES = Path("/sys/class/net")
_TUNSETIFF, _IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x400454CA, 0x2, 0x1000, 0x4000
_SIOCGIFADDR, _SIOCGIFNETMASK = 0x8915, 0x891B
_REQUEST = "16sH22x"
_SIX = Path("/proc/net/if_inet6")
_MOST_SIX = 1 << 20
_RESOLVER = Path("/etc/resolv.conf")
_MOST_RESOLVER = 64 << 10


def require(name: str) -> None:
    """Raise HostError unless this host has a network device of this name."""
    try:
        socket.if_nametoindex(name)
    except OSError:
        raise HostError(
            f"this host has no network device '{name}'",
            hint=f"as root: ip tuntap add dev {name} mode tap user {os.getuid()} && ip link set {name} up",
        ) from None


def opened(name: str) -> int:
    """Return a descriptor of a TAP device that is there. Raises HostError where it is not, or may not be used."""
    require(name)
    try:
        number = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise HostError(f"{_TUN} cannot be opened: {error.strerror}", hint="give this user access to it") from error
    try:
        fcntl.ioctl(number, _TUNSETIFF, struct.pack(_REQUEST, name.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR))
    except OSError as error:
        os.close(number)
        raise _explained(error, name) from error
    return number


def _explained(error: OSError, name: str) -> HostError:
    if error.errno == errno.EBUSY:
        return HostError(f"the TAP device '{name}' is in use", hint="give each machine a device of its own")
    if error.errno in (errno.EPERM, errno.EACCES):
        return HostError(
            f"this user may not use the TAP device '{name}'",
            hint=f"as root: ip tuntap add dev {name} mode tap user {os.getuid()}",
        )
    return HostError(
        f"'{name}' is no TAP device for a machine: {error.strerror}", hint="ip tuntap lists those there are"
    )


def address(name: str) -> ipaddress.IPv4Interface | None:
    """Return the IPv4 address of a network device, or of the bridge that it is in; None where neither has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for one in _with_bridge(name):
            try:
                found, mask = (
                    socket.inet_ntoa(fcntl.ioctl(asked, request, struct.pack("256s", one.encode()))[20:24])
                    for request in (_SIOCGIFADDR, _SIOCGIFNETMASK)
                )
            except OSError:
                continue
            return ipaddress.IPv4Interface(f"{found}/{mask}")
    return None


def address6(name: str) -> ipaddress.IPv6Interface | None:
    """Return an IPv6 address of a network device, or of the bridge that it is in, that is not of its link alone; None
    where neither has one."""
    try:
        with _SIX.open("rb") as file:
            lines = file.read(_MOST_SIX).decode("ascii", "replace").splitlines()
    except OSError:
        return None
    rows = [line.split() for line in lines]
    for one in _with_bridge(name):
        for row in rows:
            # address, number, prefix, scope, flags, device
            if len(row) == 6 and row[5] == one and row[3] in ("00", "40"):
                return ipaddress.IPv6Interface((int(row[0], 16), int(row[2], 16)))
    return None


def _with_bridge(name: str) -> tuple[str, ...]:
    bridge = _DEVICES / name / "master"
    return (name, bridge.readlink().name) if bridge.is_symlink() else (name,)


def name_servers() -> tuple[str, ...]:
    """Return the name servers of this host that other machines can ask: all but those on its loopback."""
    try:
        with _RESOLVER.open("rb") as file:
            text = file.read(_MOST_RESOLVER).decode(errors="replace")
    except OSError:
        return ()
    found = []
    for line in text.splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == "nameserver":
            try:
                server = ipaddress.ip_address(words[1])
            except ValueError:
                continue
            found += [] if server.is_loopback else [str(server)]
    return tuple(found)
