# SPDX-License-Identifier: Apache-2.0
"""Output that differs by itself: what two runs show of it, and what a third must still have."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.guests.varying_output import MASK, Output

DATES = ("now: Thu Jan  1 00:00:02 UTC 2026\nok\n", "now: Fri Jan  2 01:01:04 UTC 2026\nok\n")


@pytest.mark.parametrize(
    ("runs", "other", "allowed"),
    [
        # A date, a process number, seconds since 1970, a random name, a duration of another form.
        (DATES, "now: Thu Jan  1 00:00:01 UTC 2026\nok\n", True),
        (DATES, "now: Thu Jan  1 00:00:01 UTC 2026\nno\n", False),
        (DATES, "now: nothing\nok\n", False),
        (("pid 41\n", "pid 42\n"), "pid 7\n", True),
        (("pid 41\n", "pid 42\n"), "pid: 7\n", False),
        # A word where both had a number is an error, and so is one between what is fixed or behind it.
        (("read 41 bytes\n", "read 42 bytes\n"), "read error: no such device, 0 bytes\n", False),
        (("41 bytes\n", "42 bytes\n"), "41 bytes: I/O error\n", False),
        (("id=3f9a\n", "id=b1\n"), "id is missing: =77aa\n", False),
        (("pid 41\n", "pid 42\n"), "process 7\n", False),
        (("1767225602\n", "1767315664\n"), "1767225601\n", True),
        (("id=3f9a\n", "id=b1\n"), "id=77aa\n", True),
        (("took 0.0002 s\n", "took 1.5e-05 s\n"), "took 2e-06 s\n", True),
        (("took 0.0002 s\n", "took 1.5e-05 s\n"), "took 2e-06 m\n", False),
        # Lines that change places between threads.
        (("a 1\nb 2\n", "b 2\na 1\n"), "a 1\nb 2\n", True),
        # Fewer or more lines: those that both have must be there.
        (("begin\n.\n.\nend\n", "begin\n.\nend\n"), "begin\nend\n", False),
        (("begin\n.\n.\nend\n", "begin\n.\nend\n"), "begin\n.\n.\n.\nend\n", True),
        (("begin\n.\n.\nend\n", "begin\n.\nend\n"), "begin\n.\n.\nfailed\n", False),
        # What does not vary is compared to the byte.
        (("pid 41\n", "pid 41\n"), "pid 7\n", False),
        (("pid 41\n", "pid 42\n"), "pid 7\nand more\n", False),
        (("a\nx  y\n", "b\nx  y\n"), "c\nx y\n", False),
    ],
)
def test_a_third_run(runs: tuple[str, str], other: str, allowed: bool) -> None:
    assert Output(*runs).allows(other) is allowed


def test_what_varies_is_named() -> None:
    assert Output(*DATES).varying() == ("now: * Jan * *:*:* UTC 2026",)
    assert Output("a\n", "a\n").varying() == ()
    assert Output("a\n", "a\nb\n").varying() == ("the number of lines",)
    assert Output("1\n2\n3\n4\n5", "6\n7\n8\n9\n0").varying() == (MASK,) * 3


texts = st.text(alphabet="ab1 \n.", max_size=40)


@given(texts, texts)
def test_both_runs_are_allowed_and_agreeing_ones_are_compared_whole(one: str, again: str) -> None:
    found = Output(one, again)
    assert found.allows(one)
    assert found.allows(again)
    assert (found.varying() == ()) is (one == again)
    assert Output(one, one).allows(again) is (one == again)


@pytest.mark.parametrize("end", ["\n", " "])
def test_long_outputs_take_time_in_proportion(end: str) -> None:
    def seconds(lines: int) -> float:
        one, again, other = ("".join(f"{i} of {lines}: {x}{i}{end}" for i in range(lines)) for x in "xyz")
        begun = time.process_time()
        assert Output(one, again).allows(other)
        return time.process_time() - begun

    seconds(100)
    assert seconds(8000) < 20 * max(seconds(1000), 0.01)
