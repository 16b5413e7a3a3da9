# SPDX-License-Identifier: Apache-2.0
"""New complaints of the kernel are found; old ones, in other numbers, are not."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.cost.counters import SymbolTable
from vmtailor.analysis.guests.kernel_log import complaints, named, new_complaints, whole

LOG = """<6>[    0.1] all is well
<4>[    0.2] odd thing 0x12 at 7
<3>without a stamp
<28>[ 0.3][    T1] daemon, level 4
"""


def test_levels_up_to_warning_count() -> None:
    assert complaints(LOG) == ["odd thing 0x12 at 7", "without a stamp", "daemon, level 4"]


def test_what_is_on_the_console_counts() -> None:
    assert complaints("", "[    0.1] PCI: Fatal\n\nKernel panic - not syncing\n") == [
        "PCI: Fatal",
        "Kernel panic - not syncing",
    ]


def test_the_same_message_with_other_numbers_is_not_new() -> None:
    assert new_complaints(["odd thing 0xff at 99"], complaints(LOG)) == []


def test_a_new_message_is_found_once() -> None:
    found = ["unable to open an initial console"] * 2
    assert new_complaints(found, complaints(LOG)) == found[:1]
    assert new_complaints(found, [], [re.compile("initial console")]) == []


@given(st.text(), st.text())
def test_no_text_breaks_it(log: str, console: str) -> None:
    assert new_complaints(complaints(log, console), complaints(log, console)) == []


def test_the_kernels_words_are_each_there_once_and_in_order() -> None:
    log = "<6>[    0.000000] Linux version 6.12\n<3>[    0.100000] a failed\n"
    console = "[    0.100000] a failed\r\n[    9.000000] reboot: Restarting system\r\n"
    assert whole(log, console).splitlines() == [*log.splitlines(), "[    9.000000] reboot: Restarting system"]
    assert whole("", console) == console
    assert whole("<6>plain\n", "plain\nlast\n") == "<6>plain\nlast\n"


def test_initcalls_of_a_kernel_without_names_are_named_by_its_table() -> None:
    table = SymbolTable.parse("ffffffff81000000 T a_init\nffffffff81000100 T b_init\nffffffff81000200 T end_\n")
    log = (
        "<7>[    0.1] calling  0xffffffff81000100 @ 1\n"
        "<7>[    0.2] initcall 0xffffffff81000100 returned 0 after 3 usecs\n"
        "<7>[    0.3] calling  0x0000000000000005 @ 1\n"
        "<6>[    0.4] found SMP MP-table at 0xffffffff81000000 here\n"
    )
    assert named(log, table).splitlines() == [
        "<7>[    0.1] calling  b_init+0x0/0x0 @ 1",
        "<7>[    0.2] initcall b_init+0x0/0x0 returned 0 after 3 usecs",
        *log.splitlines()[2:],
    ]
