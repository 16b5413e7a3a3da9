# SPDX-License-Identifier: Apache-2.0
"""The record of a supervised run's end: only the supervisor writes its keys, and a guest's words may be anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import VmtailorError
from vmtailor.booting.run_end import Finish, RunEnd, parse
from vmtailor.model.guest import GuestNote, GuestReport


def record(*parts: bytes) -> bytes:
    return b"\0".join((b"vmtailor 1", b"finish closed", *parts, b""))


def test_all_that_is_recorded() -> None:
    found = parse(
        record(
            b"elapsed-ms 1500", b"heard 1", b"listening 1", b"exit 7", b"signal 9", b"reason execve: no ",
            b"note S why\n", b"note  without", b"fatal-symbol F", b"fatal gave up\n", b"farewell reboot: Power down",
            b"console c\n", b"kernel-log k", b"monitor-said  words\n", b"monitor-status -6", b"failed-stdout 28",
        )
    )  # fmt: skip
    report = GuestReport(
        notes=(GuestNote("S", "why"), GuestNote("", "without")), fatal=GuestNote("F", "gave up"), exit_code=7, signal=9,
        exit_reason="execve: no", files=(("kernel-log", "k"),), console="c\n",
    )  # fmt: skip
    assert found == RunEnd(
        Finish.CLOSED, report, heard=True, listening=True, farewell="reboot: Power down", elapsed_s=1.5, said="words",
        status=-6, failed=(("standard output", 28),),
    )  # fmt: skip


def test_what_is_not_recorded_is_not_known() -> None:
    assert parse(record()) == RunEnd(Finish.CLOSED)


@pytest.mark.attack
@pytest.mark.parametrize("data", [b"", b"vmtailor 1", b"vmtailor 2\0finish closed\0", b"vmtailor 1\0finish closed"])
def test_what_is_no_record_is_an_error(data: bytes) -> None:
    with pytest.raises(VmtailorError, match="left no record"):
        parse(data)


@pytest.mark.attack
@given(st.binary(max_size=200).map(lambda data: data.replace(b"\0", b" ")))
def test_words_of_a_guest_are_words(words: bytes) -> None:
    found = parse(record(b"console " + words, b"reason " + words, b"note S " + words, b"monitor-status " + words))
    assert found.report.console == words.decode("utf-8", "replace") and found.report.exit_code is None
