# SPDX-License-Identifier: Apache-2.0
"""What surrounds a container: what init is told for it, and which bundles cannot have it. Its network, too."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.drivers.guest import guest_surroundings
from vmtailor.drivers.guest.guest_volume import run_bytes
from vmtailor.drivers.host import tap
from vmtailor.drivers.qemu.qemu_command import Ends, command
from vmtailor.model.boots.surroundings import USUAL, GuestSurroundings, Limit, Tmpfs
from vmtailor.model.boots.workload import FIXED_KEY, NETWORK, Run
from vmtailor.model.image import ImageConfig, Port
from vmtailor.model.machine import Machine, PublishedPort
from vmtailor.pipeline import run_network, run_surroundings
from vmtailor.pipeline.machine_run import RunOptions, run_of
from vmtailor.pipeline.run_network import RunNetwork

IMAGE = ImageConfig("amd64", entrypoint=("/app",), exposed_ports=(Port(80), Port(53, "udp"), Port(90, "sctp")))
EVERYTHING = GuestSurroundings(
    read_only=True, no_new_privileges=True, shm_bytes=1 << 20, domain="example.com", oom_score_adj=-5, rights=0x1001,
    hosts=("1.2.3.4\ta",), resolver=("nameserver 1.1.1.1", "search b"), groups=("audio",),
    limits=(Limit(7, 5, 6), Limit(4, 0, -1)), tmpfs=(Tmpfs("/run", 14, "size=1m"), Tmpfs("/a b", 0)),
    sysctls=(("net/core/somaxconn", "1 2"),),
)  # fmt: skip
TOLD = [
    "+read-only 1", "+no-new-privileges 1", "+shm 1048576", "+domain example.com", "+oom -5", "+rights 1001",
    "+host 1.2.3.4\ta", "+resolver nameserver 1.1.1.1", "+resolver search b", "+group audio", "+limit 7 5 6",
    "+limit 4 0 18446744073709551615", "+tmpfs 14 size=1m /run", "+tmpfs 0 - /a b", "+sysctl net/core/somaxconn 1 2",
]  # fmt: skip


def told(run: Run) -> list[str]:
    head, _, rest = run_bytes(run).partition(b"\n")
    return [text for text in rest[: int(head.split()[1])].decode().split("\0") if text.startswith("+")]


def asked(**options: Any) -> Run:
    return run_of(RunOptions(Path("b"), **options), IMAGE, network=True)


def test_init_is_told_what_is_asked_for_and_nothing_else() -> None:
    assert told(Run(key=FIXED_KEY)) == [] and told(Run(key=FIXED_KEY, surroundings=EVERYTHING)) == TOLD
    assert asked().surroundings == USUAL
    assert run_bytes(replace(asked(), key=FIXED_KEY)) == run_bytes(Run(key=FIXED_KEY, network=NETWORK))


def test_options_become_surroundings() -> None:
    found = asked(
        read_only=True, security=True, shm_bytes=5, domain="d", oom_score_adj=1, cap_drop=("ALL",), groups=("g",),
        cap_add=("CHOWN",), hosts=(("a", "1.2.3.4"), ("me", "host-gateway")), dns=("1.1.1.1", "::1"),
        dns_search=("x", ".", "y"), dns_options=("rotate", "ndots:2"), limits=(Limit(1, 2, 3),),
        tmpfs=(Tmpfs("/t", 1),), sysctls=(("a", "b"),),
    ).surroundings  # fmt: skip
    assert found == GuestSurroundings(
        read_only=True, no_new_privileges=True, shm_bytes=5, domain="d", oom_score_adj=1, rights=1, groups=("g",),
        hosts=("1.2.3.4\ta", "10.0.2.2\tme"),
        resolver=("nameserver 1.1.1.1", "nameserver ::1", "search x y", "options rotate ndots:2"),
        limits=(Limit(1, 2, 3),), tmpfs=(Tmpfs("/t", 1),), sysctls=(("a", "b"),),
    )  # fmt: skip


def test_without_a_name_server_of_its_own_the_usual_one_stays() -> None:
    assert asked(dns_search=("x",)).surroundings.resolver == ("nameserver 10.0.2.3", "search x")
    assert asked(dns_search=(".",)).surroundings.resolver == ("nameserver 10.0.2.3",)
    none = asked(network="none", dns_options=("rotate",))
    assert none.network is None and none.surroundings.resolver == ("options rotate",)


def test_no_host_gateway_without_a_network() -> None:
    with pytest.raises(UserInputError, match="needs a network that leads to this host"):
        asked(network="none", hosts=(("me", "host-gateway"),))


def bundle(init: bytes, **config: str) -> Any:
    return SimpleNamespace(init=init, config=config)


def init_of(keys: list[str]) -> bytes:
    return b"\0" + b"\0".join(key.encode() for key in keys) + b"\0"


KEYS = [key for key, _ in guest_surroundings.pairs(EVERYTHING)]


def test_an_init_of_a_version_before_is_known_by_its_words() -> None:
    every = dict.fromkeys(("TMPFS", "MULTIUSER", "PROC_SYSCTL", "PROC_FS"), "y")
    run_surroundings.require_able(bundle(b""), USUAL, ())
    run_surroundings.require_able(bundle(init_of(KEYS), **every), EVERYTHING, ("ALL",))
    for key in set(KEYS):
        with pytest.raises(UserInputError, match="fitted by a version of vmtailor that could not") as error:
            run_surroundings.require_able(bundle(init_of([one for one in KEYS if one != key]), **every), EVERYTHING, ())
        assert "fit the image again" in error.value.hint


@pytest.mark.parametrize(
    ("surroundings", "dropped", "option", "symbol"),
    [
        (GuestSurroundings(tmpfs=(Tmpfs("/t", 0),)), (), "--tmpfs", "TMPFS"),
        (GuestSurroundings(shm_bytes=1), (), "--shm-size", "TMPFS"),
        (GuestSurroundings(rights=0), ("ALL",), "--cap-drop", "MULTIUSER"),
        (GuestSurroundings(groups=("g",)), (), "--group-add", "MULTIUSER"),
        (GuestSurroundings(sysctls=(("a", "b"),)), (), "--sysctl", "PROC_SYSCTL"),
        (GuestSurroundings(oom_score_adj=0), (), "--oom-score-adj", "PROC_FS"),
    ],
)
def test_a_symbol_that_the_kernel_lacks_is_named(
    surroundings: GuestSurroundings, dropped: tuple[str, ...], option: str, symbol: str
) -> None:
    run_surroundings.require_able(bundle(init_of(KEYS), **{symbol: "y"}), surroundings, dropped)
    with pytest.raises(UserInputError, match=f"^{option} needs {symbol}, which") as error:
        run_surroundings.require_able(bundle(init_of(KEYS)), surroundings, dropped)
    assert error.value.hint == f"fit the image again with --keep {symbol}"


def test_a_right_that_is_added_needs_no_symbol() -> None:
    run_surroundings.require_able(bundle(init_of(KEYS)), GuestSurroundings(rights=1), ())


# ---- the network


def test_the_network_that_is_chosen() -> None:
    user = run_network.chosen(None, None, has_device=True)
    assert user == RunNetwork(guest=NETWORK, gateway="10.0.2.2", servers=("10.0.2.3",))
    assert run_network.chosen("user", None, has_device=True) == user
    for wanted, has_device in ((None, False), ("none", True), ("none", False)):
        assert run_network.chosen(wanted, None, has_device) == RunNetwork()


def test_networks_that_cannot_be() -> None:
    for wanted in ("user", "tap:t0"):
        with pytest.raises(UserInputError, match="no network device") as error:
            run_network.chosen(wanted, None, has_device=False)
        assert "--keep VIRTIO_NET" in error.value.hint
    for other in (None, "user", "none"):
        with pytest.raises(UserInputError, match="--ip goes with --network tap:NAME only"):
            run_network.chosen(other, "192.0.2.7", has_device=True)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap, "require", lambda name: None)
    monkeypatch.setattr(tap, "name_servers", lambda: ("192.0.2.53",))


@pytest.mark.parametrize(
    ("host", "address", "guest", "gateway"),
    [
        ("192.0.2.1/24", None, "192.0.2.2/24,192.0.2.1", "192.0.2.1"),
        ("192.0.2.254/24", None, "192.0.2.253/24,192.0.2.254", "192.0.2.254"),
        ("192.0.2.1/24", "192.0.2.7", "192.0.2.7/24,192.0.2.1", "192.0.2.1"),
        ("192.0.2.1/24", "198.51.100.7/25", "198.51.100.7/25", ""),
        (None, "192.0.2.7/24", "192.0.2.7/24", ""),
    ],
)
@pytest.mark.usefixtures("device")
def test_a_guest_on_a_tap_device(
    host: str | None, address: str | None, guest: str, gateway: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tap, "address", lambda name: host and ipaddress.IPv4Interface(host))
    found = run_network.chosen("tap:t0", address, has_device=True)
    assert found == RunNetwork(guest=guest, gateway=gateway, servers=("192.0.2.53",), tap="t0")
    assert run_surroundings.resolver_lines((), (), (), found) == ("nameserver 192.0.2.53",)


@pytest.mark.usefixtures("device")
def test_no_address_on_a_tap_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap, "address", lambda name: None)
    with pytest.raises(HostError, match="has no IPv4 address on this host"):
        run_network.chosen("tap:t0", None, has_device=True)
    with pytest.raises(UserInputError, match="says no network"):
        run_network.chosen("tap:t0", "192.0.2.7", has_device=True)
    monkeypatch.setattr(tap, "address", lambda name: ipaddress.IPv4Interface("192.0.2.1/32"))
    with pytest.raises(HostError, match="has no room for a guest"):
        run_network.chosen("tap:t0", None, has_device=True)


def test_a_tap_device_that_is_not_there() -> None:
    with pytest.raises(HostError, match="no network device 'vt-nowhere'") as error:
        tap.opened("vt-nowhere")
    assert "ip tuntap add dev vt-nowhere mode tap" in error.value.hint
    assert tap.address("vt-nowhere") is None and tap.address("lo") == ipaddress.IPv4Interface("127.0.0.1/8")


def test_name_servers_on_the_loopback_are_of_this_host_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "resolv.conf"
    file.write_text("# x\nnameserver 127.0.0.53\nnameserver ::1\nnameserver 192.0.2.53\nnameserver x\nnameserver\n")
    monkeypatch.setattr(tap, "_RESOLVER", file)
    assert tap.name_servers() == ("192.0.2.53",)
    file.unlink()
    assert tap.name_servers() == ()


MACHINE = Machine("microvm", 64 << 20, "k", network=True, outbound=True, host_loopback=True)


def words(machine: Machine, ends: Ends) -> str:
    return " ".join(command(machine, ends))


def test_the_machine_is_on_that_network() -> None:
    none = run_network.with_network(MACHINE, Run(), "none")
    assert not none.network and "-nic none" in words(none, Ends())
    user = run_network.with_network(MACHINE, Run(network=NETWORK), None)
    assert user == MACHINE and "mac=52:54:00:12:34:56" in words(user, Ends())
    behind = run_network.with_network(MACHINE, Run(network="192.0.2.2/24"), "tap:t0")
    assert (behind.tap, behind.outbound, behind.host_loopback) == ("t0", False, False)
    assert "tap,id=net,fd=7 " in words(behind, Ends(opened_tap=7))
    assert "tap,id=net,ifname=t0,script=no,downscript=no " in words(behind, Ends())
    assert "mac=02:42:ac:11:00:02" in words(replace(MACHINE, mac="02:42:ac:11:00:02"), Ends())


def test_ports_that_are_exposed_are_published_once(capsys: pytest.CaptureFixture[str]) -> None:
    published = (PublishedPort("127.0.0.1", 8080, 80),)
    found = run_network.with_exposed(published, (*IMAGE.exposed_ports, Port(80), Port(81)))
    assert found == (
        *published, PublishedPort("127.0.0.1", 0, 53, "udp"), PublishedPort("127.0.0.1", 0, 81),
    )  # fmt: skip
    assert capsys.readouterr().err.count("port 90/sctp stays closed") == 1
    with pytest.raises(UserInputError, match="too many to publish"):
        run_network.with_exposed((), [Port(number) for number in range(1, 400)])


def test_no_port_on_a_network_that_qemu_does_not_forward_to() -> None:
    for wanted in (None, "user"):
        run_network.require_ports(wanted, True)
    for wanted in ("none", "tap:t0"):
        run_network.require_ports(wanted, ())
        with pytest.raises(UserInputError, match=f"no port can be published with --network {wanted}"):
            run_network.require_ports(wanted, True)


@pytest.mark.attack
def test_a_tap_device_is_not_closed_by_an_option() -> None:
    run_network.require_ports("none", (), outbound=False)
    run_network.require_ports(None, True, outbound=False)
    with pytest.raises(UserInputError, match="--no-outbound cannot close --network tap:t0") as error:
        run_network.require_ports("tap:t0", (), outbound=False)
    assert "firewall" in error.value.hint


# ---- CPUs of the host


def test_the_cpus_of_this_host() -> None:
    had = set(os.sched_getaffinity(0))
    try:
        run_surroundings.bind_to(None)
        assert os.sched_getaffinity(0) == had
        run_surroundings.bind_to(frozenset({min(had)}))
        assert os.sched_getaffinity(0) == {min(had)}
    finally:
        os.sched_setaffinity(0, had)
    with pytest.raises(HostError, match=r"--cpuset-cpus 60000: not all of these CPUs are available"):
        run_surroundings.bind_to(frozenset({60000}))


def test_a_name_of_the_host_is_no_device() -> None:
    with pytest.raises(HostError, match=r"'lo' is no TAP device|may not use|cannot be opened"):
        tap.opened("lo")
