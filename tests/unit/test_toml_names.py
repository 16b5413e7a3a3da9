# SPDX-License-Identifier: Apache-2.0
"""Names that a TOML file has by mistake: each with the one that was meant, in every reader of tables."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import toml_files
from vmtailor.model.architecture import Architecture
from vmtailor.model.change import Cause


@dataclass(frozen=True)
class Row:
    id: str
    pattern: str


@dataclass(frozen=True)
class Rows:
    rules: tuple[Row, ...] = toml_files.table("rule", Row)


@pytest.mark.parametrize(
    ("text", "message", "meant"),
    [
        ('[[rule]]\nid = "a"\npatern = "x"', "rule 'a': unknown key patern", "pattern"),
        ('[[rules]]\nid = "a"', "unknown table rules", "rule"),
        ('[[rule]]\nid = "a"\npattern = "x"\ncolour = 1', "unknown key colour", ""),
    ],
)
def test_rows(text: str, message: str, meant: str) -> None:
    with pytest.raises(UserInputError, match=message) as caught:
        toml_files.read(Rows, text, "x.toml")
    assert caught.value.hint == (f"did you mean {meant}?" if meant else "")


def test_whole_documents_and_their_tables() -> None:
    for text, name, meant in (("titel = 1", "titel", "title"), ("[kernel]\nwrods = []", r"kernel\.wrods", "words")):
        with pytest.raises(UserInputError, match=f"unknown field {name}") as caught:
            toml_files.read_strictly(text, Architecture, "x.toml")
        assert f"did you mean {meant}?" in caught.value.hint


def test_entries_of_the_catalogue() -> None:
    for row, meant in (('symbls = {A = "y"}', "symbols"), ('symbols = {A = "y"}\nwhen = {machin = ["x"]}', "machine")):
        text = f'[[entry]]\nid = "a"\nreason = "why"\n{row}\n'
        with pytest.raises(UserInputError, match="unknown key") as caught:
            symbol_catalogue.parse(text, Cause.POLICY, "x.toml")
        assert f"did you mean {meant}?" in caught.value.hint


def test_a_name_is_shown_and_not_obeyed() -> None:
    error = toml_files.unknown("x.toml: unknown key", toml_files.misspelt(["\x1b[2J" + "a" * 1000], ["a"]))
    assert "\x1b" not in error.message and len(error.message) < 400
