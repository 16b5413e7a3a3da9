# SPDX-License-Identifier: Apache-2.0
"""Ports that `run -p` publishes on addresses of IPv6.

QEMU's own network listens on addresses of IPv4 alone. So we listen, and a program beside the machine (native/forward)
passes each connection and datagram on to a free port of loopback, where QEMU listens for the guest."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace

from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import locate
from vmtailor.drivers.confinement import confinement
from vmtailor.drivers.confinement.confinement import Root
from vmtailor.drivers.host import host_ports
from vmtailor.drivers.monitors.supervised_start import ProgramBeside
from vmtailor.model.machine import PublishedPort
from vmtailor.pipeline import run_ports

#: The least number of a descriptor for a program beside the machine: lower ones have a meaning in the supervisor.
_FREE = 10


@dataclass(frozen=True)
class _Forwarder:
    """The program, as something to shut in."""

    program: str

    @property
    def needs(self) -> tuple[str, ...]:
        return (self.program,)


def require_none(ports: Sequence[PublishedPort]) -> None:
    """Raise UserInputError for a port on an address of IPv6, which a system's machine cannot have."""
    for port in ports:
        if port.six:
            raise UserInputError(
                f"a system cannot publish on {port.host_place}: QEMU's user-mode network takes connections of IPv4",
                hint=f"publish on an IPv4 address; without one it is {run_ports.LOOPBACK}",
            )


def opened(
    ports: Sequence[PublishedPort], to_six: bool = False
) -> tuple[tuple[PublishedPort, ...], tuple[ProgramBeside, ...]]:
    """Listen on addresses of IPv6; return the ports that QEMU opens, and the programs that lead from ours to them.
    `to_six`: the guest has an address of IPv6, to which QEMU's guard leads them (native/net-guard). Raises HostError
    for one that cannot be opened."""
    if to_six:
        for port in ports:
            if port.six:
                os.close(_listening(port))  # what the monitor would say of it names no cause
        return tuple(ports), ()
    six = tuple(port for port in ports if port.six)
    if not six:
        return tuple(ports), ()
    inner = iter(run_ports.chosen([replace(port, host_address=run_ports.LOOPBACK, host_port=0) for port in six]))
    of_qemu, words, descriptors = [], [], []
    for port in ports:
        if not port.six:
            of_qemu.append(port)
            continue
        there = next(inner)
        of_qemu.append(there)
        descriptors.append(_listening(port))
        words += [str(descriptors[-1]), str(there.host_port)]
    program = _Forwarder(str(locate().forward))
    how = confinement.of(program)
    shown = [] if how.root is Root.SHARED else ["show", program.program]
    argv = (str(confinement.launcher()), *how.words, *shown, "--", program.program, *words)
    return tuple(of_qemu), (ProgramBeside(argv, tuple(descriptors)),)


def _listening(port: PublishedPort) -> int:
    """Return a descriptor that listens on a port, or takes its datagrams."""
    datagrams = port.protocol == "udp"
    kind = socket.SOCK_DGRAM if datagrams else socket.SOCK_STREAM
    with contextlib.closing(socket.socket(socket.AF_INET6, kind)) as made:
        try:
            if not datagrams:  # which would share the port with another program
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            made.bind((port.host_address, port.host_port))
            if not datagrams:
                made.listen(128)
        except OSError as error:
            raise host_ports.explained(error, port.protocol, port.host_address, port.host_port) from error
        descriptor = fcntl.fcntl(made.fileno(), fcntl.F_DUPFD_CLOEXEC, _FREE)
    os.set_blocking(descriptor, False)
    return descriptor
