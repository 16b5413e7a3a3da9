# SPDX-License-Identifier: Apache-2.0
"""The client that asks a container from within its machine, asked here: a step that is a connection alone."""

from __future__ import annotations

import socket
import subprocess

import pytest

from vmtailor.base.natives import locate

RECORDS = (".repeat 3", ".timeout-ms 1000", ".method GET", ".path /")


def asked(port: int) -> dict[str, str]:
    words = [str(locate().client), "count", "5000", "step tcp", f".port {port}", *RECORDS]
    said = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False).stdout
    return dict(item.split("=", 1) for item in said.split("\0") if item)


@pytest.mark.contract
def test_a_port_that_listens_is_right_and_one_that_does_not_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        found = asked(port)
        assert (found["done"], found["right"]) == ("3", "3")
    refused = asked(port)
    assert refused["right"] == "0" and "connect: Connection refused" in refused["why"]
