# SPDX-License-Identifier: Apache-2.0
"""What people write on the command line: sizes, ports, variables, commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.cli.sizes import parse_memory
from vmtailor.drivers import rig
from vmtailor.model.image import ImageConfig
from vmtailor.model.machine import PublishedPort
from vmtailor.pipeline.running import RunOptions, parse_port, run_of

IMAGE = ImageConfig("amd64", entrypoint=("/entry",), cmd=("image", "words"))


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("256M", 256 << 20),
        ("64", 64 << 20),
        ("1G", 1 << 30),
        ("1 GiB", 1 << 30),
        ("8192k", 8 << 20),
        (" 9mb ", 9 << 20),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1M", "1.5G", "256X", "7M", "1025G", "0x10", "1 2", "256M\n256M"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(UserInputError) as caught:
        parse_memory(text)
    assert caught.value.hint


@given(st.text(max_size=20))
def test_any_text_is_a_size_or_an_error_for_a_person(text: str) -> None:
    try:
        size = parse_memory(text)
    except UserInputError:
        return
    assert 8 << 20 <= size <= 1 << 40


@pytest.mark.parametrize(
    ("text", "port"),
    [
        ("8080:80", PublishedPort("127.0.0.1", 8080, 80, "tcp")),
        ("0.0.0.0:8080:80/tcp", PublishedPort("0.0.0.0", 8080, 80, "tcp")),
        ("192.168.1.255:1:65535/udp", PublishedPort("192.168.1.255", 1, 65535, "udp")),
    ],
)
def test_ports(text: str, port: PublishedPort) -> None:
    assert parse_port(text) == port


@pytest.mark.parametrize(
    "text",
    ["80", ":80", "80:", "0:80", "80:0", "65536:80", "a:b", "1.2.3:80:80", "300.1.1.1:80:80", "80:80/sctp", "::1:8:8",
     "8080:80,hostfwd=tcp::22-:22", "80:80\n", "٨٠:80"],
)  # fmt: skip
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(UserInputError) as caught:
        parse_port(text)
    assert caught.value.hint


@given(st.text(max_size=30) | st.from_regex(r"[0-9.:/a-z,]{0,30}", fullmatch=True))
def test_nothing_but_numbers_reaches_the_machine(text: str) -> None:
    try:
        port = parse_port(text)
    except UserInputError:
        return
    assert 0 < port.host_port < 65536 and 0 < port.guest_port < 65536
    parts = port.host_address.split(".")
    assert len(parts) == 4 and all(part.isascii() and 0 <= int(part) <= 255 for part in parts)


@pytest.mark.parametrize(
    ("command", "entrypoint", "argv"),
    [
        ((), None, None),
        (("other",), None, ("/entry", "other")),
        ((), "/bin/sh", ("/bin/sh",)),
        (("-c", "ls"), "/bin/sh", ("/bin/sh", "-c", "ls")),
    ],
)
def test_what_is_executed(command: tuple[str, ...], entrypoint: str | None, argv: tuple[str, ...] | None) -> None:
    run = run_of(RunOptions(Path("b"), command=command, entrypoint=entrypoint), IMAGE, network=False)
    assert run.argv == argv
    assert run.network is None and run.terminal is None and not run.stdin


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSED_ON", "from outside")
    monkeypatch.delenv("NOT_SET", raising=False)
    options = RunOptions(Path("b"), env=("A=1", "B=", "C=x=y", "PASSED_ON", "NOT_SET"))
    run = run_of(options, IMAGE, network=True)
    assert run.env == (("A", "1"), ("B", ""), ("C", "x=y"), ("PASSED_ON", "from outside"))
    assert run.network == rig.NETWORK
    with pytest.raises(UserInputError):
        run_of(RunOptions(Path("b"), env=("=1",)), IMAGE, network=True)


@pytest.mark.parametrize("fitted", [False, True])
@pytest.mark.parametrize("asked", [None, False, True])
def test_a_container_is_privileged_as_it_was_fitted_unless_told_otherwise(fitted: bool, asked: bool | None) -> None:
    run = run_of(RunOptions(Path("b"), privileged=asked), IMAGE, network=False, privileged=fitted)
    assert run.privileged is (fitted if asked is None else asked)
