# SPDX-License-Identifier: Apache-2.0
"""Stop signals: as systemd's images write them, as numbers, in any case; and everything that is none."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.guest.guest_volume import signal_number
from vmtailor.drivers.image.signals import RTMAX, RTMIN, name_of, number_of


@pytest.mark.parametrize(
    ("text", "name", "number"),
    [
        ("SIGRTMIN+3", "SIGRTMIN+3", 37),
        ("RTMIN+3", "SIGRTMIN+3", 37),
        ("sigrtmin+3", "SIGRTMIN+3", 37),
        ("37", "SIGRTMIN+3", 37),
        ("SIGRTMIN", "SIGRTMIN", 34),
        ("34", "SIGRTMIN", 34),
        ("SIGRTMAX", "SIGRTMAX", 64),
        ("64", "SIGRTMAX", 64),
        ("SIGRTMAX-3", "SIGRTMAX-3", 61),
        ("rtmax-30", "SIGRTMAX-30", 34),
        ("SIGRTMIN+30", "SIGRTMIN+30", 64),
        (" term ", "SIGTERM", 15),
        ("SIGPOLL", "SIGIO", 29),
        ("1", "SIGHUP", 1),
    ],
)
def test_signals(text: str, name: str, number: int) -> None:
    assert (name_of(text), number_of(text), signal_number(name)) == (name, number, number)


@pytest.mark.attack
@pytest.mark.parametrize(
    "text",
    ["", "SIG", "0", "65", "-9", "+9", "9" * 5000, "²", "٣", "SIGRTMIN-1", "SIGRTMAX+1", "SIGRTMIN+31", "SIGRTMAX-31",
     "SIGRTMIN+" + "9" * 5000, "SIGRTMIN++1", "RTMIN+", "TERM\0", "SIGSIGTERM", "32", "33", "x" * 10**6],
)  # fmt: skip
def test_no_signals(text: str) -> None:
    assert name_of(text) is None
    if text not in ("32", "33"):  # numbers that the kernel has, and no name
        with pytest.raises(UserInputError) as caught:
            signal_number(text)
        assert len(caught.value.message) < 100


@pytest.mark.parametrize("member", sorted(signal.Signals.__members__))
def test_all_that_this_host_names(member: str) -> None:
    assert number_of(member) == number_of(member.removeprefix("SIG").lower()) == signal.Signals[member].value


@given(
    st.text(max_size=12) | st.from_regex(r"(SIG)?RTM(IN|AX)[+-]?[0-9]{0,3}", fullmatch=True) | st.integers().map(str)
)
def test_a_name_leads_back_to_its_number(text: str) -> None:
    number, name = number_of(text), name_of(text)
    assert number is None or 1 <= number <= RTMAX
    if name is not None:
        assert number_of(name) == number
    elif number is not None:
        assert number in (RTMIN - 1, RTMIN - 2)
