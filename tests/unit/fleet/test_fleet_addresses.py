# SPDX-License-Identifier: Apache-2.0
"""Addresses and certificates of fleets, and the extra that `fleet` needs."""

from __future__ import annotations

import datetime
import importlib.util
from pathlib import Path

import pytest

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.fleet.model import addresses
from vmtailor.fleet.model.addresses import Address
from vmtailor.fleet.run import certificates, engine_extra


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


def test_certificates_are_made_once_and_found(tmp_path: Path) -> None:
    made = certificates.make(tmp_path / "c")
    assert certificates.found(tmp_path / "c") == made
    assert (tmp_path / "c" / certificates.KEY).stat().st_mode & 0o777 == 0o600
    with pytest.raises(UserInputError, match="is there"):
        certificates.make(tmp_path / "c")


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="certificate"):
        certificates.found(tmp_path)
    folder = certificates.make(tmp_path / "old", days=-1 / 48).folder
    with pytest.raises(UserInputError, match=f"ran out on {datetime.datetime.now(datetime.UTC):%Y}"):
        certificates.found(folder)
    folder = certificates.make(tmp_path / "open").folder
    (folder / certificates.KEY).chmod(0o644)
    with pytest.raises(UserInputError, match="others can read"):
        certificates.found(folder)
    folder = certificates.make(tmp_path / "bad").folder
    (folder / certificates.CERTIFICATE).write_text("none")
    with pytest.raises(UserInputError, match="is no certificate"):
        certificates.found(folder)


def test_without_the_extra_it_says_which_one(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "distributed" else real(name))
    with pytest.raises(HostError, match=r"the extra vmtailor\[fleet\]: distributed") as caught:
        engine_extra.require()
    assert caught.value.hint == "pip install 'vmtailor[fleet]'"
