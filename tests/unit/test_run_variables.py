# SPDX-License-Identifier: Apache-2.0
"""Files of variables, as container engines read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.pipeline.run_environment import variables


def test_a_file_of_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSED_ON", "from outside")
    monkeypatch.delenv("NOT_SET", raising=False)
    file = tmp_path / "env"
    file.write_text("# comment\n\n  A=1\nB='quoted' # no comment\r\nC=\nPASSED_ON\nNOT_SET\nD=a=b ")
    assert variables([file], ["A=2"]) == (
        ("A", "1"), ("B", "'quoted' # no comment"), ("C", ""), ("PASSED_ON", "from outside"), ("D", "a=b "), ("A", "2"),
    )  # fmt: skip


@pytest.mark.parametrize("text", ["=x", "a b=c", "A\t=1", "A=1\n=2"])
def test_a_line_that_is_no_variable_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "env"
    file.write_text(text)
    with pytest.raises(UserInputError, match=f"{file}, line {len(text.splitlines())}") as caught:
        variables([file], [])
    assert caught.value.hint


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"A=\xff")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "binary"):
        with pytest.raises(UserInputError, match="cannot be read"):
            variables([path], [])


@given(st.binary(max_size=100))
def test_any_file_is_variables_or_an_error_for_a_person(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any-env"
    file.write_bytes(data)
    try:
        found = variables([file], [])
    except UserInputError:
        return
    assert all(name and "\0" not in name + value for name, value in found)
