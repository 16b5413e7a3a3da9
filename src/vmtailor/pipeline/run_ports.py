# SPDX-License-Identifier: Apache-2.0
"""Ports that `run -p` publishes."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import replace

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plural
from vmtailor.drivers.host import host_ports
from vmtailor.model.machine import PublishedPort

LOOPBACK = "127.0.0.1"
#: Each port is an open socket of QEMU's, which commonly may have 1024, those of its clients included.
MOST_PORTS = 256
_NUMBERS = r"[0-9]{1,5}(?:-[0-9]{1,5})?"
_PORT = re.compile(
    rf"(?:(?:\[(?P<six>[^\[\]]*)\]|(?P<four>[0-9.]+)):(?P<beside>{_NUMBERS})?:|(?P<host>{_NUMBERS}):)?"
    rf"(?P<guest>{_NUMBERS})(?:/(?P<protocol>tcp|udp))?\Z"
)


def parse_ports(text: str) -> tuple[PublishedPort, ...]:
    """Read `[[ADDRESS:][HOST]:]GUEST[/PROTOCOL]`, where HOST and GUEST are a port or a range of ports. The default
    address is loopback, one of IPv6 stands in brackets; host port 0 stands for a free port to be chosen. Raises
    UserInputError."""
    match = _PORT.match(text)
    if match is None:
        raise _no_port(text)
    address = _address(text, match["four"], match["six"])
    guest = _range(text, match["guest"])
    numbers = match["host"] or match["beside"] or "0"
    host = [0] * len(guest) if numbers == "0" else _range(text, numbers)
    if len(host) != len(guest):
        raise UserInputError(
            f"'{text}' has {plural(len(host), 'host port')} for {plural(len(guest), 'guest port')}",
            hint="ranges go together one by one, such as -p 8000-8002:80-82",
        )
    protocol = match["protocol"] or "tcp"
    return tuple(PublishedPort(address, here, there, protocol) for here, there in zip(host, guest, strict=True))


def parse_all(texts: Iterable[str]) -> tuple[PublishedPort, ...]:
    """Return all ports of the `-p` options. Raises UserInputError when two of them want the same host port."""
    found = tuple(port for text in texts for port in parse_ports(text))
    require_few(len(found))
    taken: set[tuple[str, int, str]] = set()
    for port in found:
        place = (port.host_address, port.host_port, port.protocol)
        if port.host_port and place in taken:
            raise UserInputError(
                f"the host port {port.host_port}/{port.protocol} is published twice", hint="give each a port of its own"
            )
        taken.add(place)
    return found


def require_few(number: int) -> None:
    """Raise UserInputError for more ports than QEMU can publish."""
    if number > MOST_PORTS:
        raise UserInputError(f"{number} ports are too many to publish", hint=f"at most {MOST_PORTS}")


def chosen(ports: Sequence[PublishedPort]) -> tuple[PublishedPort, ...]:
    """Choose a free host port for each 0. Raises HostError when the address has none."""
    with contextlib.ExitStack() as held:  # all sockets until all are chosen, so that no two are the same
        return tuple(port if port.host_port else _free(port, held) for port in ports)


def _free(port: PublishedPort, held: contextlib.ExitStack) -> PublishedPort:
    kind = socket.SOCK_DGRAM if port.protocol == "udp" else socket.SOCK_STREAM
    holder = held.enter_context(socket.socket(socket.AF_INET6 if port.six else socket.AF_INET, kind))
    try:
        holder.bind((port.host_address, 0))
    except OSError as error:
        raise host_ports.explained(error, port.protocol, port.host_address, 0) from error
    return replace(port, host_port=holder.getsockname()[1])


def announced(asked: Sequence[PublishedPort], given: Sequence[PublishedPort]) -> str:
    """Return lines that name the chosen host ports; empty when none was chosen."""
    return "".join(
        f"vmtailor: {port.host_place} leads to port {port.guest_port}/{port.protocol}\n"
        for wanted, port in zip(asked, given, strict=True)
        if wanted.host_port == 0
    )


def _address(text: str, four: str | None, six: str | None) -> str:
    if not four and six is None:
        return LOOPBACK
    try:
        if six is None:
            return str(ipaddress.IPv4Address(four))
        if "%" not in six:  # a zone, which may be any text
            return str(ipaddress.IPv6Address(six))
        raise _no_port(text)
    except ValueError:
        raise _no_port(text) from None


def _range(text: str, numbers: str) -> list[int]:
    first, _, last = numbers.partition("-")
    low, high = int(first), int(last or first)
    if not 0 < low <= high < 65536:
        raise _no_port(text)
    return list(range(low, high + 1))


def _no_port(text: str) -> UserInputError:
    return UserInputError(
        f"'{text[:60]}' is not a port to publish",
        hint="for example -p 8080:80, -p 80 (a free host port), -p 8000-8002:80-82, -p 0.0.0.0:8080:80/tcp, or "
        "-p '[::1]:8080:80'",
    )
