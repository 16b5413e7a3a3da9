# SPDX-License-Identifier: Apache-2.0
"""Digits that are none to `int`, and numbers longer than `int` reads: never a number, never an error of ours."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.machine_facts import identify
from vmtailor.analysis.ksource import uapi
from vmtailor.analysis.systems.kernels import version_order
from vmtailor.analysis.timeline.durations import known_tick_us
from vmtailor.base import natives
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.text import is_number
from vmtailor.bench.analysis import phrases
from vmtailor.bench.model.results import RuntimeIdentity
from vmtailor.drivers.image import signals
from vmtailor.drivers.kernel import kernel_source

ODD = ("²", "1²", "٣", "①", "9" * 5000)


@pytest.mark.attack
@pytest.mark.parametrize("odd", ODD)
def test_odd_digits_are_no_error_of_ours(odd: str) -> None:
    observed = Observed("log")
    observed.config["HZ"] = odd
    assert known_tick_us(observed) is None
    observed.messages.append((0, f"smpboot: Allowing {odd} CPUs, 0 hotplug CPUs"))
    identify(observed)
    assert signals.number_of(odd) is None
    assert version_order(f"6.{odd}") != version_order("6.1")
    assert uapi.of_table(f"{odd} common read sys_read\n", ["common"]) == ()


@pytest.mark.parametrize(("text", "number"), [("0", True), ("12", True), ("", False), ("²", False), (b"7", True)])
def test_a_number_is_of_ascii_digits(text: str | bytes, number: bool) -> None:
    assert is_number(text) is number


def test_a_home_of_nobody_is_the_user_s_input() -> None:
    with pytest.raises(UserInputError, match="no such home folder"):
        kernel_source.place("~nobody-of-this-name/linux")


@pytest.mark.attack
def test_a_limit_of_unknown_name_is_shown() -> None:
    """A results file may name any."""
    assert "1" in phrases.limits_words(RuntimeIdentity("native", limits_above=("1", "CPU")))


@pytest.mark.parametrize("stale", [False, True])
def test_native_parts_of_another_user_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stale: bool) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(natives, "locked", refused)
    monkeypatch.setattr(natives, "_stale", lambda made: stale)
    if stale:
        with pytest.raises(HostError, match="cannot be written"):
            natives._up_to_date(tmp_path, [], (), ())
    else:
        natives._up_to_date(tmp_path, [], (), ())
