# SPDX-License-Identifier: Apache-2.0
"""The network of a run: QEMU's own, none, or a TAP device of this host."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, replace

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.output import note
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.host import tap
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.model.boots.workload import NETWORK, Run
from vmtailor.model.image import Port
from vmtailor.model.machine import Machine, PublishedPort
from vmtailor.model.run_values import NO_NETWORK, TAP, USER_NETWORK
from vmtailor.pipeline import run_ports

#: The length of an IPv6 network's prefix where none is given, and the longest that leaves room for QEMU.
_SIX_PREFIX, _LONGEST_PREFIX = 64, 120
#: Protocols that QEMU's network forwards.
_PUBLISHED = ("tcp", "udp")


@dataclass(frozen=True)
class RunNetwork:
    """`guest`: what init is told, `ADDRESS/PREFIX,GATEWAY,DNS`; None for no device. `guest6`: the same of IPv6, without
    the last. `servers`: name servers; `tap`: the device on this host, or empty."""

    guest: str | None = None
    guest6: str | None = None
    gateway: str = ""
    servers: tuple[str, ...] = ()
    tap: str = ""


def chosen(
    wanted: str | None, address: str | None, has_device: bool, address6: str | None = None, six: bool = False
) -> RunNetwork:
    """Return the network that `--network`, `--ip` and `--ip6` ask for. `six`: the guest can have an address of IPv6.
    Raises UserInputError where the machine has no device for it, HostError where the host's device says no address."""
    found = _chosen(wanted, address, has_device)
    if address6 is not None and found.guest is None:
        raise UserInputError("--ip6 gives an address to a machine without a network", hint="leave --ip6 out")
    if address6 is not None and not found.tap:
        return replace(found, guest6=_six_behind_qemu(address6))
    return replace(found, guest6=_six_behind_tap(found.tap, address6)) if found.tap and six else found


def _chosen(wanted: str | None, address: str | None, has_device: bool) -> RunNetwork:
    if address is not None and not (wanted or "").startswith(TAP):
        raise UserInputError(
            "--ip goes with --network tap:NAME only: behind QEMU each machine has the same address",
            hint="leave --ip out; -p publishes ports",
        )
    if wanted is None or wanted == NO_NETWORK:
        return _user() if wanted is None and has_device else RunNetwork()
    if not has_device:
        raise UserInputError("this machine has no network device", hint="fit the image with --keep VIRTIO_NET")
    return _behind_tap(wanted.removeprefix(TAP), address) if wanted.startswith(TAP) else _user()


def _user() -> RunNetwork:
    _, gateway, server = NETWORK.split(",")
    return RunNetwork(guest=NETWORK, gateway=gateway, servers=(server,))


def _behind_tap(name: str, address: str | None) -> RunNetwork:
    """Return the network of a TAP device: its address on this host is the guest's gateway. Without another, the guest
    has the next address."""
    tap.require(name)
    host = tap.address(name)
    if address is None and host is None:
        raise HostError(
            f"the TAP device '{name}' has no IPv4 address on this host, so there is none to choose for the guest",
            hint=f"give one: --ip ADDRESS/PREFIX, or as root: ip address add 192.0.2.1/24 dev {name}",
        )
    if address is not None and "/" not in address and host is None:
        raise UserInputError(f"--ip {address} says no network", hint=f"write it with a prefix, such as {address}/24")
    if address is None:
        assert host is not None
        own = ipaddress.IPv4Interface(f"{_beside(host)}/{host.network.prefixlen}")
    else:
        own = ipaddress.IPv4Interface(
            address if "/" in address else f"{address}/{host.network.prefixlen}" if host else ""
        )
    gateway = str(host.ip) if host is not None and host.ip in own.network and host.ip != own.ip else ""
    guest = f"{own}" + (f",{gateway}" if gateway else "")
    return RunNetwork(guest=guest, gateway=gateway, servers=tap.name_servers(), tap=name)


def _six_behind_qemu(address: str) -> str:
    """Return what init is told of IPv6 in QEMU's network: that is the address's own, in which QEMU has the second one,
    and its name server the third."""
    own = ipaddress.IPv6Interface(address if "/" in address else f"{address}/{_SIX_PREFIX}")
    network = own.network
    if network.prefixlen > _LONGEST_PREFIX:
        raise UserInputError(f"--ip6 {address}: the network is too small", hint=f"give it a prefix of {_SIX_PREFIX}")
    if own.ip in (network[0], network[2], network[3]):
        raise UserInputError(f"--ip6 {address} is taken: QEMU has it in that network", hint=f"such as {network[5]}")
    return f"{own},{network[2]}"


def _six_behind_tap(name: str, address: str | None) -> str | None:
    """Return what init is told of IPv6 on a TAP device: the address that is given, else the one next to the device's;
    None where the device has none, and the guest waits for a router."""
    host = tap.address6(name)
    if address is None and host is None:
        return None
    if address is None:
        assert host is not None
        if int(host.ip) + 1 not in range(int(host.network[0]), int(host.network[-1]) + 1):
            return None
        own = ipaddress.IPv6Interface(f"{host.ip + 1}/{host.network.prefixlen}")
    elif "/" in address:
        own = ipaddress.IPv6Interface(address)
    elif host is not None and ipaddress.IPv6Address(address) in host.network:
        own = ipaddress.IPv6Interface(f"{address}/{host.network.prefixlen}")
    else:
        own = ipaddress.IPv6Interface(f"{address}/{_SIX_PREFIX}")
    gateway = host is not None and host.ip in own.network and host.ip != own.ip
    return f"{own},{host.ip}" if gateway and host is not None else f"{own}"


def require_six(address: str | None, files: BundleFolder) -> None:
    """Raise UserInputError for `--ip6` where a bundle's kernel or init has no IPv6."""
    if address is None or may_have_six(files):
        return
    if files.config.get("IPV6") == "y":
        raise UserInputError(f"the init of {files.path} is too old to know IPv6", hint="fit the image again")
    raise UserInputError(
        f"the kernel of {files.path} has no IPV6, so its guest can have no address of IPv6",
        hint=f"vmtailor refit {files.path} --keep IPV6 makes a second kernel, which takes minutes; or leave --ip6 out"
        if files.is_fitted
        else "vmtailor family build makes one that has, which takes minutes; or leave --ip6 out",
    )


def may_have_six(files: BundleFolder) -> bool:
    """Return whether a bundle's guest can have an address of IPv6."""
    return files.config.get("IPV6") == "y" and guest_volume.may_have_six(files.init)


def _beside(host: ipaddress.IPv4Interface) -> ipaddress.IPv4Address:
    """Return an address in the host's network that is not the host's: the next one, or the one before."""
    for found in (host.ip + 1, host.ip - 1):
        if found in host.network and found not in (host.network.network_address, host.network.broadcast_address):
            return found
    raise HostError(f"the network {host.network} has no room for a guest", hint="give one: --ip ADDRESS/PREFIX")


def with_exposed(published: tuple[PublishedPort, ...], exposed: Iterable[Port]) -> tuple[PublishedPort, ...]:
    """Return the ports that are published, and those that are exposed, at free host ports. Raises UserInputError for
    too many."""
    there = {(port.guest_port, port.protocol) for port in published}
    found = list(published)
    for number, protocol in sorted({(port.number, port.protocol) for port in exposed} - there):
        if protocol in _PUBLISHED:
            found.append(PublishedPort(run_ports.LOOPBACK, 0, number, protocol))
        else:
            note(f"port {number}/{protocol} stays closed: QEMU's network forwards {' and '.join(_PUBLISHED)}")
    run_ports.require_few(len(found))
    return tuple(found)


def with_network(machine: Machine, run: Run, wanted: str | None) -> Machine:
    """Return the machine on the network that a run's init is told of, `--network` as it is wanted."""
    made = replace(machine, network=run.network is not None)
    device = (wanted or "").removeprefix(TAP) if (wanted or "").startswith(TAP) else ""
    if device:
        return replace(made, tap=device, outbound=False, host_loopback=False)
    return replace(made, network6=run.network6.partition(",")[0]) if run.network6 else made


def require_ports(wanted: str | None, published: object, outbound: bool = True) -> None:
    """Raise UserInputError for published ports on a network that QEMU does not forward to, and for a TAP device that is
    not to be `outbound`: only this host's firewall closes one."""
    if not outbound and (wanted or "").startswith(TAP):
        raise UserInputError(
            f"--no-outbound cannot close --network {wanted}: what the guest reaches there is up to this host",
            hint="leave --no-outbound out, and close the device in this host's firewall",
        )
    if not published or wanted is None or wanted == USER_NETWORK:
        return
    if wanted == NO_NETWORK:
        raise UserInputError("no port can be published with --network none", hint="leave -p and -P out")
    raise UserInputError(
        f"no port can be published with --network {wanted}: the guest has an address of its own there",
        hint="leave -p and -P out: all its ports are open there",
    )
