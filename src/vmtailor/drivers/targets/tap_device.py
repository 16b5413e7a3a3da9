# SPDX-License-Identifier: Apache-2.0
"""The TAP device of an exported machine, as its README tells a person to make it."""

from __future__ import annotations

import shlex

from vmtailor.drivers.targets.target import DHCP, Export


def notes(export: Export) -> tuple[str, ...]:
    """Return the lines of a README on the machine's TAP device; none for a machine without a network."""
    if not export.address:
        return ()
    if export.address == DHCP:
        return (f"- Its network is the TAP device `{export.wishes.tap}`, on which a DHCP server must answer.",)
    guest, _, others = export.address.partition(",")
    address, _, prefix = guest.partition("/")
    gateway = others.partition(",")[0]
    tap = shlex.quote(export.wishes.tap)
    make = (
        f"sudo ip tuntap add {tap} mode tap user $USER && sudo ip address add {gateway}/{prefix} dev {tap} && "
        f"sudo ip link set {tap} up"
    )
    return (
        f"- Its network is the TAP device `{export.wishes.tap}`. This makes it: `{make}`",
        f"- The machine is at {address}; no port is published. `--tap` and `--address` of `vmtailor export` choose.",
    )
