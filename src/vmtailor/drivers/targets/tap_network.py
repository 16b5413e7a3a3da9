# SPDX-License-Identifier: Apache-2.0
"""The network of a machine on a TAP device: a script that makes the device, and leads published ports to the guest."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.targets.target import ENDED, Export, ExportFolder, asks
from vmtailor.model.machine import HOST_CPU, Accelerator, Clock, Machine, PublishedPort

#: The script's name in an export.
SCRIPT = "network"
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,14}\Z")

_TEXT = """\
#!/bin/sh
# As root: `./network up` makes the TAP device {tap} of the machine {name}, and leads its ports to it. `./network down`
# undoes both. Members of the group kvm may use the device; GROUP=NAME: another group. A host without that group gives
# it to your own.
set -eu
group=${{GROUP:-kvm}}
[ -n "${{GROUP:-}}" ] || getent group kvm >/dev/null || group=$(id -gn "${{SUDO_USER:-root}}")
case "${{1:-}}" in
up)
    ip link show dev {tap} >/dev/null 2>&1 || ip tuntap add dev {tap} mode tap group "$group"
    ip address replace {gateway} dev {tap}
    ip link set dev {tap} up
{kernel}\
    ;;
down)
{undo}\
    ip link delete dev {tap}
    ;;
*)
    echo "usage: $0 up|down" >&2
    exit 2
    ;;
esac
"""

_TABLE = """\
    nft -f - <<'END'
table ip {table} {{
}}
delete table ip {table}
table ip {table} {{
    # The device takes loopback's addresses, for answers alone.
    chain foreign {{
        type filter hook prerouting priority raw; policy accept;
        iifname "{tap}" ip daddr 127.0.0.0/8 drop
    }}
    chain arriving {{
        type nat hook prerouting priority dstnat; policy accept;
{arriving}\
    }}
    chain local {{
        type nat hook output priority -100; policy accept;
{local}\
    }}
    chain leaving {{
        type nat hook postrouting priority srcnat; policy accept;
        oifname "{tap}" ip saddr 127.0.0.0/8 masquerade
{outward}\
    }}
}}
END
"""


@dataclass(frozen=True)
class TapNetwork:
    """A link of two addresses: the guest's, and the host's on the TAP device `tap`."""

    tap: str
    guest: ipaddress.IPv4Address
    gateway: ipaddress.IPv4Interface


def of(export: Export) -> TapNetwork:
    """Return the network of an exported machine that has one. Raises UserInputError for a device or an address that
    cannot be, and for a port that cannot be led to it."""
    tap = export.wishes.tap
    if not _DEVICE.fullmatch(tap):
        raise UserInputError(
            f"'{tap[:64]}' is no name of a TAP device", hint="--tap: at most 15 letters, digits, '-' and '_'"
        )
    text = export.address
    own, _, rest = text.partition(",")
    try:
        guest = ipaddress.IPv4Interface(own)
        gateway = ipaddress.IPv4Address(rest.partition(",")[0])
    except ValueError as error:
        raise _no_address(text, str(error)) from error
    if gateway not in guest.network or gateway == guest.ip:
        raise _no_address(text, f"the gateway {gateway} is no other address of {guest.network}")
    for port in export.machine.ports:
        if port.six or not port.host_port:
            raise UserInputError(
                f"{port.host_place} cannot be led to a TAP device", hint="-p [ADDRESS:]HOST:GUEST, with IPv4"
            )
    return TapNetwork(tap, guest.ip, ipaddress.IPv4Interface(f"{gateway}/{guest.network.prefixlen}"))


def under_kvm(machine: Machine) -> Machine:
    """Return a machine that a monitor starts under KVM on such a network: the script has its ports and its way out."""
    return replace(
        machine, ports=(), outbound=False, host_loopback=False, accelerator=Accelerator.KVM, clock=Clock.WALL,
        cpu_model=HOST_CPU,
    )  # fmt: skip


def write(export: Export, network: TapNetwork, folder: ExportFolder) -> tuple[str, ...]:
    """Write the script, and return notes on it, as lines of Markdown."""
    ports, table = export.machine.ports, f"vmtailor-{export.name}"
    kernel = undo = ""
    outbound = export.wishes.outbound
    if ports or outbound:
        settings = [f"net/ipv4/conf/{network.tap}/route_localnet"]
        settings += ["net/ipv4/ip_forward"] if outbound or any(not _is_loopback(one) for one in ports) else []
        kernel = "".join(f"    echo 1 >/proc/sys/{one}\n" for one in settings)
        kernel += _TABLE.format(
            table=table, tap=network.tap,
            arriving="".join(_rules(one for one in _led(ports, network) if not one[0])),
            local="".join(_rules(_led(ports, network))),
            outward=f"        ip saddr {network.guest} masquerade\n" if outbound else "",
        )  # fmt: skip
        undo = f"    nft delete table ip {table} || true\n"
    content = _TEXT.format(tap=network.tap, name=export.name, gateway=network.gateway, kernel=kernel, undo=undo)
    folder.text(SCRIPT, content, executable=True)
    notes = [
        f"- `./network up` makes the TAP device `{network.tap}`. The machine is `{network.guest}` there, and this host "
        f"`{network.gateway.ip}`."
    ]
    notes += [
        f"- `{port.host_place}` on this host leads to port {port.guest_port} of the machine ({port.protocol}); nft "
        "does it."
        for port in ports
    ]
    notes += ["- The machine may open connections to the world: `./network up` makes this host forward."] * outbound
    return tuple(notes)


def commands(export: Export, network: TapNetwork | None) -> tuple[str, str]:
    """Return the command that starts a machine by its script `start`, and the one that shows that it works."""
    if network is None:
        return "./start", ENDED
    if export.is_system:
        return "sudo ./network up; ./start", ENDED
    first = next((one for one in export.machine.ports if one.protocol == "tcp"), None)
    return "sudo ./network up; ./start &", asks(first.host_place) if first else f"ping -c 1 {network.guest}"


def _led(ports: tuple[PublishedPort, ...], network: TapNetwork) -> Iterator[tuple[bool, str]]:
    """Yield a rule for each port, behind whether the port is on loopback, where nothing arrives from outside."""
    for port in ports:
        every = port.host_address == "0.0.0.0"
        where = "fib daddr type local" if every else f"ip daddr {port.host_address}"
        to = f"{network.guest}:{port.guest_port}"
        yield _is_loopback(port), f"{where} {port.protocol} dport {port.host_port} dnat to {to}"


def _rules(led: Iterator[tuple[bool, str]]) -> Iterator[str]:
    return (f"        {rule}\n" for _, rule in led)


def _is_loopback(port: PublishedPort) -> bool:
    return ipaddress.ip_address(port.host_address).is_loopback


def _no_address(text: str, why: str) -> UserInputError:
    return UserInputError(f"'{text[:64]}' is no address of a machine: {why}", hint="ADDRESS/PREFIX,GATEWAY[,DNS]")
