# SPDX-License-Identifier: Apache-2.0
"""The address of IPv6 that `run --ip6` gives a guest: what is refused, what init is told, QEMU's words, the guard's."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import cast

import pytest

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.host import tap
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.qemu import net_guard
from vmtailor.drivers.qemu.qemu_command import Ends, command
from vmtailor.model import run_values
from vmtailor.model.boots.workload import NETWORK, Run
from vmtailor.model.machine import Machine, PublishedPort
from vmtailor.pipeline import run_forwards, run_network, run_ports

MACHINE = Machine("microvm", 64 << 20, "k", network=True, outbound=True)


class FakeBundle:
    def __init__(self, config: dict[str, str], init: bytes, fitted: bool = True) -> None:
        self.path, self.config, self.init, self.is_fitted = Path("/bundles/web"), config, init, fitted


def bundle(config: dict[str, str], init: bytes = b"\0net6\0", *, fitted: bool = True) -> BundleFolder:
    return cast("BundleFolder", FakeBundle(config, init, fitted))


@pytest.mark.parametrize("text", ["fd00:1::5", "fd00:1::5/64", "FD00:1:0::5/48", "2001:db8::1"])
def test_addresses_of_one_machine(text: str) -> None:
    assert ipaddress.IPv6Interface(run_values.ip6_address(text)) == ipaddress.IPv6Interface(text)


@pytest.mark.parametrize(
    "text", ["", "x", "10.0.2.15", "::", "::1", "fe80::5", "fe80::5%eth0", "ff02::1", "::ffff:1.2.3.4", "fd00::/0",
             "fd00::5/129", "fd00::5,fd00::2", "fd00::5 "],
)  # fmt: skip
def test_what_is_no_address_of_one_machine(text: str) -> None:
    with pytest.raises(UserInputError, match="IPv6 address") as caught:
        run_values.ip6_address(text)
    assert "--ip6 fd00:1::5" in caught.value.hint


def test_a_kernel_without_ipv6_is_refused_with_the_command_that_makes_one() -> None:
    with pytest.raises(UserInputError, match="the kernel of /bundles/web has no IPV6") as caught:
        run_network.require_six("fd00:1::5", bundle({}))
    assert "vmtailor refit /bundles/web --keep IPV6" in caught.value.hint
    with pytest.raises(UserInputError) as caught:
        run_network.require_six("fd00:1::5", bundle({}, fitted=False))
    assert "family build" in caught.value.hint
    with pytest.raises(UserInputError, match="too old to know IPv6"):
        run_network.require_six("fd00:1::5", bundle({"IPV6": "y"}, b"\0net\0"))
    run_network.require_six("fd00:1::5", bundle({"IPV6": "y"}))
    run_network.require_six(None, bundle({}, b""))


def test_qemus_network_is_the_addresss_own() -> None:
    for asked, told in (
        ("fd00:1::5", "fd00:1::5/64,fd00:1::2"),
        ("fd00:1::10:0:5/112", "fd00:1::10:0:5/112,fd00:1::10:0:2"),
    ):
        found = run_network.chosen(None, None, True, asked, six=True)
        assert (found.guest, found.guest6) == (NETWORK, told)
        assert ("net6", told) in guest_volume.run_records(Run(network6=found.guest6))
    assert run_network.chosen(None, None, True, None, six=True).guest6 is None  # as on docker's default network


@pytest.mark.parametrize("address", ["fd00:1::", "fd00:1::2", "fd00:1::3"])
def test_addresses_that_qemu_has_are_refused(address: str) -> None:
    with pytest.raises(UserInputError, match="is taken: QEMU has it"):
        run_network.chosen("user", None, True, address, six=True)


def test_networks_that_have_no_room_and_machines_without_one() -> None:
    with pytest.raises(UserInputError, match="the network is too small"):
        run_network.chosen("user", None, True, "fd00:1::5/127", six=True)
    for wanted, has_device in (("none", True), (None, False)):
        with pytest.raises(UserInputError, match="a machine without a network"):
            run_network.chosen(wanted, None, has_device, "fd00:1::5", six=True)


@pytest.mark.parametrize(
    ("host", "asked", "told"),
    [
        ("fd00:9::1/64", None, "fd00:9::2/64,fd00:9::1"),
        ("fd00:9::1/64", "fd00:9::7", "fd00:9::7/64,fd00:9::1"),
        ("fd00:9::1/64", "fd00:8::7/80", "fd00:8::7/80"),
        ("fd00:9::1/128", None, None),
        (None, "fd00:9::7", "fd00:9::7/64"),
        (None, None, None),
    ],
)
def test_a_guest_on_a_tap_device(
    host: str | None, asked: str | None, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tap, "require", lambda name: None)
    monkeypatch.setattr(tap, "address", lambda name: ipaddress.IPv4Interface("192.0.2.1/24"))
    monkeypatch.setattr(tap, "address6", lambda name: host and ipaddress.IPv6Interface(host))
    assert run_network.chosen("tap:t0", None, True, asked, six=True).guest6 == told
    assert run_network.chosen("tap:t0", None, True, None, six=False).guest6 is None


def test_addresses_of_devices_and_of_their_bridges(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "if_inet6").write_text(
        "fe800000000000000000000000000001 02 40 20 80     t0\n"
        "fd000009000000000000000000000001 03 40 00 80    br0\n"
        "00000000000000000000000000000001 01 80 10 80     lo\nodd\n"
    )
    monkeypatch.setattr(tap, "_SIX", tmp_path / "if_inet6")
    monkeypatch.setattr(tap, "_DEVICES", tmp_path)
    (tmp_path / "t0").mkdir()
    assert tap.address6("t0") is None and tap.address6("lo") is None
    (tmp_path / "t0" / "master").symlink_to("../br0")
    assert tap.address6("t0") == ipaddress.IPv6Interface("fd00:9::1/64")
    (tmp_path / "if_inet6").unlink()
    assert tap.address6("t0") is None


def test_qemu_and_its_guard_are_told() -> None:
    run = Run(network=NETWORK, network6="fd00:1::5/64,fd00:1::2")
    ports = (PublishedPort("127.0.0.1", 8080, 80), PublishedPort("::1", 8053, 53, "udp"))
    machine = run_network.with_network(Machine("microvm", 64 << 20, "k", ports=ports), run, None)
    words = " ".join(command(machine, Ends()))
    assert "user,id=net,ipv6-net=fd00:1::/64,restrict=on,hostfwd=tcp:127.0.0.1:8080-:80 " in words
    assert net_guard.six_of(machine) == "fd00:1::5;udp,::1,8053,53"
    on_tap = run_network.with_network(MACHINE, run, "tap:t0")
    assert on_tap.network6 == "" and "ipv6-net" not in " ".join(command(on_tap, Ends()))
    assert "ipv6=off" in " ".join(command(run_network.with_network(MACHINE, Run(network=NETWORK), None), Ends()))


@pytest.mark.attack
def test_without_the_guard_there_is_no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    """QEMU's closed network was closed for IPv4."""
    machine = run_network.with_network(
        Machine("microvm", 64 << 20, "k"), Run(network=NETWORK, network6="fd00:1::5/64,fd00:1::2"), None
    )

    def no_guard() -> str:
        raise HostError("this installation lacks the guard")

    monkeypatch.setattr(net_guard, "_loaded", no_guard)
    with pytest.raises(HostError, match="lacks the guard"):
        net_guard.variables(machine, "qemu")


def test_the_guard_opens_ports_of_ipv6_that_are_free() -> None:
    asked = run_ports.chosen(run_ports.parse_all(["[::1]::80", "[::1]::53/udp", "8080:81"]))
    assert run_forwards.opened(asked, to_six=True) == (asked, ())
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(HostError, match=rf"\[::1\]:{port}/tcp is already in use"):
            run_forwards.opened(run_ports.parse_ports(f"[::1]:{port}:80"), to_six=True)
