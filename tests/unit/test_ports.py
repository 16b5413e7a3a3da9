# SPDX-License-Identifier: Apache-2.0
"""What `run -p` says, read; free host ports, chosen; why a host port could not be opened."""

from __future__ import annotations

import errno
import os
import re
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.cli.main import app
from vmtailor.drivers.host.host_ports import explained
from vmtailor.drivers.qemu.qemu import port_refusal
from vmtailor.model.machine import PublishedPort
from vmtailor.pipeline import run_forwards
from vmtailor.pipeline.run_ports import MOST_PORTS, announced, chosen, parse_all, parse_ports

KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("8080:80", PublishedPort("127.0.0.1", 8080, 80, "tcp")),
        ("0.0.0.0:8080:80/tcp", PublishedPort("0.0.0.0", 8080, 80, "tcp")),
        ("192.168.1.255:1:65535/udp", PublishedPort("192.168.1.255", 1, 65535, "udp")),
        ("80", PublishedPort("127.0.0.1", 0, 80, "tcp")),
        ("53/udp", PublishedPort("127.0.0.1", 0, 53, "udp")),
        ("0:80", PublishedPort("127.0.0.1", 0, 80, "tcp")),
        ("127.0.0.2::80", PublishedPort("127.0.0.2", 0, 80, "tcp")),
        ("127.0.0.2:0:80", PublishedPort("127.0.0.2", 0, 80, "tcp")),
    ],
)
def test_one_port(text: str, port: PublishedPort) -> None:
    assert parse_ports(text) == (port,)


def test_ranges_go_together_one_by_one() -> None:
    assert [(p.host_port, p.guest_port, p.protocol) for p in parse_ports("8000-8002:80-82/udp")] == [
        (8000, 80, "udp"), (8001, 81, "udp"), (8002, 82, "udp"),
    ]  # fmt: skip
    assert [(p.host_port, p.guest_port) for p in parse_ports("80-81")] == [(0, 80), (0, 81)]
    assert [p.host_address for p in parse_ports("127.0.0.9:0:80-81")] == ["127.0.0.9"] * 2


@pytest.mark.parametrize(
    "text",
    ["", ":80", "80:", "80:0", "0", "65536:80", "a:b", "1.2.3:80:80", "300.1.1.1:80:80", "80:80/sctp", "::1:8:8",
     "8080:80,hostfwd=tcp::22-:22", "80:80\n", "٨٠:80", "82-80", "0-2:80-82", "8000-8002-8004:80", "localhost:80:80",
     "127.0.0.1:80", "65535-65536", "-80", "80-"],
)  # fmt: skip
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(UserInputError, match="is not a port to publish") as caught:
        parse_ports(text)
    assert caught.value.hint


def test_ranges_that_do_not_go_together() -> None:
    with pytest.raises(UserInputError, match="has 3 host ports for 1 guest port"):
        parse_ports("8000-8002:80")


def test_addresses_of_ipv6() -> None:
    (first,), (second,) = parse_ports("[0:0::1]:8080:80"), parse_ports("[::]::80")
    assert (first.host_place, second.host_place, first.six) == ("[::1]:8080", "[::]:0", True)
    assert len(parse_all(["8080:80", "[::1]:8080:80"])) == 2
    assert [port.protocol for port in parse_all(["[::1]:53:53/udp", "[::1]:53:53"])] == ["udp", "tcp"]
    for text in ("[::1%lo]:8080:80", "[1.2.3.4]:8080:80", "[]:8080:80", "[::1]:80"):
        with pytest.raises(UserInputError, match="is not a port to publish"):
            parse_ports(text)
    with pytest.raises(UserInputError, match=r"a system cannot publish on \[::1\]:8080"):
        run_forwards.require_none([first])
    run_forwards.require_none(parse_ports("8080:80"))


def test_a_program_beside_leads_from_addresses_of_ipv6() -> None:
    """QEMU gets a free port of loopback in their place; others stay as they are."""
    asked = chosen(parse_all(["[::1]::80", "8080:81", "[::1]::82"]))
    of_qemu, (beside,) = run_forwards.opened(asked)
    try:
        assert of_qemu[1] == asked[1] and [port.guest_port for port in of_qemu] == [80, 81, 82]
        assert all(port.host_address == "127.0.0.1" and port.host_port for port in of_qemu)
        at = beside.argv.index("--")
        first, second = beside.inherited
        assert beside.argv[at + 2 :] == (str(first), str(of_qemu[0].host_port), str(second), str(of_qemu[2].host_port))
        with socket.create_connection(("::1", asked[0].host_port), 10):
            pass
        with pytest.raises(HostError, match=rf"\[::1\]:{asked[2].host_port}/tcp is already in use"):
            run_forwards.opened([asked[2]])
    finally:
        for descriptor in beside.inherited:
            os.close(descriptor)
    assert run_forwards.opened(asked[1:2]) == (asked[1:2], ())
    with pytest.raises(HostError, match=r"2001:db8::77 is not an address of this host") as caught:
        chosen(parse_ports("[2001:db8::77]::80"))
    assert "ip -6 address" in caught.value.hint


def test_datagrams_are_led_from_addresses_of_ipv6_too() -> None:
    """Two programs cannot have the same port for datagrams, as for connections."""
    (asked,) = chosen(parse_ports("[::1]::53/udp"))
    (of_qemu,), (beside,) = run_forwards.opened([asked])
    try:
        assert (of_qemu.host_address, of_qemu.protocol, of_qemu.guest_port) == ("127.0.0.1", "udp", 53)
        with socket.socket(fileno=os.dup(beside.inherited[0])) as taken:
            assert taken.type == socket.SOCK_DGRAM and taken.getsockname()[:2] == ("::1", asked.host_port)
        with pytest.raises(HostError, match=rf"\[::1\]:{asked.host_port}/udp is already in use"):
            run_forwards.opened([asked])
    finally:
        os.close(beside.inherited[0])


def test_one_host_port_cannot_lead_to_two() -> None:
    with pytest.raises(UserInputError, match="8080/tcp is published twice"):
        parse_all(["8080:80", "8079-8080:81-82"])
    assert len(parse_all(["8080:80", "8080:80/udp", "127.0.0.2:8080:80", "80", "80"])) == 5


@pytest.mark.lengthy
@pytest.mark.attack
def test_no_more_ports_than_anybody_wants() -> None:
    with pytest.raises(UserInputError, match="too many"):
        parse_all(["1-65535"])
    assert len(parse_all([f"1-{MOST_PORTS}"])) == MOST_PORTS


@pytest.mark.attack
@given(st.text(max_size=30) | st.from_regex(r"[0-9.:/a-z,\[\]\-]{0,30}", fullmatch=True))
def test_nothing_but_numbers_reaches_the_machine(text: str) -> None:
    try:
        ports = parse_ports(text)
    except UserInputError:
        return
    for port in ports:
        assert 0 <= port.host_port < 65536 and 0 < port.guest_port < 65536
        if port.six:
            assert set(port.host_address) <= set("0123456789abcdef:.")
            continue
        parts = port.host_address.split(".")
        assert len(parts) == 4 and all(part.isascii() and 0 <= int(part) <= 255 for part in parts)


def test_free_ports_are_chosen_and_told() -> None:
    asked = parse_all(["80", "81", "0:53/udp", "8080:82"])
    given = chosen(asked)
    assert given[3] == asked[3]
    assert len({port.host_port for port in given}) == 4 and all(port.host_port for port in given)
    for port in given[:3]:
        with socket.socket(socket.AF_INET, KINDS[port.protocol]) as free:
            free.bind((port.host_address, port.host_port))
    assert announced(asked, given).splitlines() == [
        f"vmtailor: 127.0.0.1:{given[0].host_port} leads to port 80/tcp",
        f"vmtailor: 127.0.0.1:{given[1].host_port} leads to port 81/tcp",
        f"vmtailor: 127.0.0.1:{given[2].host_port} leads to port 53/udp",
    ]
    assert announced(asked[3:], given[3:]) == ""


def test_no_port_can_be_chosen_at_another_hosts_address() -> None:
    with pytest.raises(HostError, match=r"192\.0\.2\.77 is not an address of this host"):
        chosen(parse_ports("192.0.2.77::80"))


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_port_that_is_in_use(protocol: str) -> None:
    with socket.socket(socket.AF_INET, KINDS[protocol]) as taken:
        taken.bind(("127.0.0.1", 0))
        if protocol == "tcp":
            taken.listen()
        port = taken.getsockname()[1]
        found = port_refusal(f"{protocol}:127.0.0.1:{port}-:80")
    assert f"127.0.0.1:{port}/{protocol} is already in use" in found.message and found.hint
    assert "free now" in port_refusal(f"{protocol}:127.0.0.1:{port}-:80").message


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_an_address_of_another_host_is_not_in_use(protocol: str) -> None:
    found = port_refusal(f"{protocol}:192.0.2.77:8080-:80")
    assert "192.0.2.77 is not an address of this host" in found.message
    assert "in use" not in found.message and found.hint


def test_a_port_that_needs_privileges_is_not_in_use() -> None:
    found = explained(OSError(errno.EACCES, "Permission denied"), "tcp", "127.0.0.1", 80)
    assert "127.0.0.1:80/tcp needs privileges" in found.message and "in use" not in found.message
    assert re.search(r"from \d+ up", found.hint)


@pytest.mark.attack
def test_a_rule_that_is_none_is_shown_as_it_is() -> None:
    assert "'gopher'" in port_refusal("gopher").message


def test_the_help_of_run_can_be_shown() -> None:
    shown = CliRunner().invoke(app, ["run", "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert shown.exit_code == 0, shown.output
    assert "0.0.0.0:8080:80" in shown.output and "--host-loopback" in shown.output
