# SPDX-License-Identifier: Apache-2.0
"""Addresses and certificates of fleets, and the extra that `fleet` needs."""

from __future__ import annotations

import importlib.util

import pytest

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.fleet.model import addresses
from vmtailor.fleet.model.addresses import Address
from vmtailor.fleet.run import engine_extra


def test_an_address_is_of_tls() -> None:
    assert addresses.parse("tls://host:1") == Address("host", 1)
    assert addresses.parse("tls://host") == Address("host", addresses.PORT)
    assert addresses.parse("tls://[::1]:9").text == "tls://[::1]:9"
    assert Address("127.0.0.2").is_loopback
    assert Address("localhost").is_loopback
    assert not Address("host").is_loopback
    assert not Address("0.0.0.0").is_loopback


@pytest.mark.parametrize("text", ["tcp://127.0.0.1:1", "tcp://host:1"])
def test_a_plain_address_is_refused_everywhere(text: str) -> None:
    with pytest.raises(UserInputError, match="could run programs"):
        addresses.parse(text)


@pytest.mark.parametrize(
    "text", ["", "host:1", "tls://", "tls://host:99999", "tls://u@host", "tls://host/x", "tls://[x"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UserInputError, match="is not the address"):
        addresses.parse(text)


def test_without_the_extra_it_says_which_one(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "distributed" else real(name))
    with pytest.raises(HostError, match=r"the extra vmtailor\[fleet\]: distributed") as caught:
        engine_extra.require()
    assert caught.value.hint.startswith("make setup-fleet")
