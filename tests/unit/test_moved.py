# SPDX-License-Identifier: Apache-2.0
"""Functions of one kernel found in another that has them at other addresses."""

from __future__ import annotations

from vmtailor.analysis.cost.counterparts import begins, counterparts, functions, whole_functions
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.model.boots.counters import SourceFrame

MINE = """ffffffff80100000 T _text
ffffffff80100000 T kernel_entry
ffffffff80100100 t init
ffffffff80100140 t show
ffffffff80100180 t init
ffffffff801001c0 D table
ffffffff80100200 T last
"""
#: The same file by file, each function four bytes longer or shorter.
THEIRS = """ffffffff80100000 T _text
ffffffff80100000 T kernel_entry
ffffffff80100104 t init
ffffffff80100148 t show
ffffffff8010018c t init
ffffffff801001c0 D table
ffffffff80100210 T last
"""


def test_functions_of_one_name_are_told_apart_by_their_order() -> None:
    found, lacking = counterparts(functions(MINE), functions(THEIRS))
    assert lacking == ()
    assert found[0xFFFFFFFF80100100] == 0xFFFFFFFF80100104 and found[0xFFFFFFFF80100180] == 0xFFFFFFFF8010018C


def test_one_that_is_not_as_often_in_both_is_not_guessed() -> None:
    fewer = THEIRS.replace("ffffffff8010018c t init\n", "")
    found, lacking = counterparts(functions(MINE), functions(fewer))
    assert lacking == ("init",)
    assert 0xFFFFFFFF80100100 not in found and found[0xFFFFFFFF80100140] == 0xFFFFFFFF80100148


def test_an_address_is_its_function_as_a_whole() -> None:
    found, _ = counterparts(functions(MINE), functions(THEIRS))
    inside, last, data = 0xFFFFFFFF80100150, 0xFFFFFFFF80100204, 0x1000
    at = begins(SymbolTable.parse(MINE), found, [inside, last, data])
    assert at == {inside: 0xFFFFFFFF80100148, last: 0xFFFFFFFF80100210}
    show, inlined = SourceFrame("show", "fs/show.c", 3), SourceFrame("helper", "include/helper.h", 9)
    assert whole_functions(at, {0xFFFFFFFF80100148: (inlined, show), 0xFFFFFFFF80100210: ()}) == {inside: (show,)}
