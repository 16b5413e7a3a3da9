# SPDX-License-Identifier: Apache-2.0
"""The guard in QEMU (native/net-guard): what a guest reaches through the user-mode network, and how many clients may
wait at a published port.

QEMU's network can close itself off wholly, or leave everything open, the servers on the host's loopback address
included; nothing between. So QEMU is told to close it, and the guard, which QEMU loads, opens it with a policy before
each connection. Where the guard is not loaded, the network stays closed."""

from __future__ import annotations

import functools
import ipaddress
import logging
from enum import StrEnum

from vmtailor.base import package_manager
from vmtailor.base.errors import HostError
from vmtailor.base.natives import locate
from vmtailor.base.process import run
from vmtailor.drivers.qemu.qemu_program import environment
from vmtailor.model.machine import Machine

log = logging.getLogger(__name__)

_LOADED_BY = "LD_PRELOAD"
_REACH = "VMTAILOR_REACH"
_SIX = "VMTAILOR_SIX"
_PROBE = "VMTAILOR_REACH_PROBE"
_STANDS = "vmtailor: the guard stands"


class NetworkReach(StrEnum):
    """The peers to which a guest may send something (native/net-guard/policy.h)."""

    CLOSED = "closed"  # nobody
    ANSWERS = "answers"  # who sent a datagram to a published port first
    WORLD = "world"  # these, and everybody but the servers on the host's loopback addresses
    HOST = "host"  # these, too


def reach_of(machine: Machine) -> NetworkReach:
    """Return what the guard lets a machine reach."""
    if machine.outbound:
        return NetworkReach.HOST if machine.host_loopback else NetworkReach.WORLD
    # A closed network of QEMU's takes connections, and drops what answers datagrams.
    return NetworkReach.ANSWERS if any(port.protocol == "udp" for port in machine.ports) else NetworkReach.CLOSED


def six_of(machine: Machine) -> str:
    """Return the ports of IPv6 that the guard opens, as it reads them: the guest's address, and for each port its
    protocol, address, number, and number in the guest."""
    guest = str(ipaddress.IPv6Interface(machine.network6).ip)
    ports = (f"{p.protocol},{p.host_address},{p.host_port},{p.guest_port}" for p in machine.ports if p.six)
    return ";".join((guest, *ports))


def variables(machine: Machine, program: str) -> dict[str, str]:
    """Return what QEMU's environment needs for the guard; nothing where a machine has nothing to guard. Raises
    HostError where the machine's network cannot be what was asked for without the guard, and this QEMU does not have
    it."""
    if not machine.network or not (machine.ports or machine.outbound or machine.network6):
        return {}
    reach = reach_of(machine)
    needed = reach in (NetworkReach.WORLD, NetworkReach.ANSWERS) or bool(machine.network6)
    try:
        loaded = _loaded()
        if needed:
            require(program)
    except HostError as error:
        if needed:
            raise
        log.debug("few clients may wait at the published ports: %s", error.message)
        return {}
    six = {_SIX: six_of(machine)} if machine.network6 else {}
    return {_LOADED_BY: loaded, _REACH: reach.value, **six}


def _loaded() -> str:
    path = locate().net_guard
    if not path.is_file():
        raise HostError(
            "this installation lacks the guard of QEMU's network",
            hint=f"install it again with a C compiler at hand: {package_manager.install_command('gcc', 'make')}",
        )
    if any(mark in str(path) for mark in " :$"):
        raise HostError(
            f"QEMU cannot be told to load {path}",
            hint="install vmtailor in a folder without spaces, colons and dollars",
        )
    return str(path)


@functools.cache
def require(program: str) -> None:
    """Raise HostError unless the guard stands between this QEMU and its user-mode network."""
    # QEMU sets its network up, and stops at the rule, which is none.
    argv = [program, "-M", "none", "-nodefaults", "-display", "none"]
    argv += ["-netdev", "user,id=net,restrict=on,hostfwd=none"]
    said = run(argv, timeout_s=20, ok=range(-64, 256), env={**environment(), _LOADED_BY: _loaded(), _PROBE: "1"})
    if _STANDS not in said.error_text:
        raise HostError(
            f"{program} has a network that vmtailor cannot guard: its guest would reach the servers on this host's "
            "loopback address",
            hint="use the QEMU of your distribution, or give --no-outbound, or --host-loopback",
            details=said.error_text,
        )
