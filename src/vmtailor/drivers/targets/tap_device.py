# SPDX-License-Identifier: Apache-2.0
"""The TAP device of an exported machine, as its README tells a person to make it."""

from __future__ import annotations

import shlex

from vmtailor.drivers.targets.target import DHCP, Export


def command(export: Export) -> str:
    """Return the command that makes the machine's TAP device; empty where the machine needs none, or its address comes
    from a network of the user's."""
    if export.address in ("", DHCP):
        return ""
    guest, _, others = export.address.partition(",")
    host = f"{others.partition(',')[0]}/{guest.partition('/')[2]}"
    tap = shlex.quote(export.wishes.tap)
    return (
        f"sudo ip tuntap add {tap} mode tap user $USER && sudo ip address add {host} dev {tap} && "
        f"sudo ip link set {tap} up"
    )


def notes(export: Export) -> tuple[str, ...]:
    """Return the lines of a README on the machine's TAP device; none for a machine without a network."""
    if not export.address:
        return ()
    if export.address == DHCP:
        return (f"- Its network is the TAP device `{export.wishes.tap}`, on which a DHCP server must answer.",)
    address = export.address.partition("/")[0]
    return (
        f"- Its network is the TAP device `{export.wishes.tap}`, which the first command makes.",
        f"- The machine is at {address}; no port is published. `--tap` and `--address` of `vmtailor export` choose.",
        *(
            f"- From another terminal, `curl http://{address}:{port.guest_port}/` asks the container."
            for port in export.machine.ports[:1]
            if port.protocol == "tcp"
        ),
    )
