# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import dot_config
from vmtailor.drivers.kernel.make import lost
from vmtailor.model.kernel import LostSymbol

NAMES = st.from_regex(r"[A-Z0-9_]{1,12}", fullmatch=True)
VALUES = st.one_of(
    st.sampled_from(["y", "m", "n"]),
    st.integers(-5, 10**6).map(str),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"], exclude_characters="\x85")),
)


@given(st.dictionaries(NAMES, VALUES))
def test_what_is_rendered_is_parsed_back(symbols: dict[str, str]) -> None:
    assert dot_config.parse(dot_config.render(symbols)) == symbols


@given(st.text())
def test_any_text_parses(text: str) -> None:
    assert all(name for name in dot_config.parse(text))


def test_lines_of_a_real_file() -> None:
    text = 'CONFIG_NET=y\n# CONFIG_PCI is not set\nCONFIG_LOCALVERSION="-x \\"y\\""\n# a comment\nCONFIG_HZ=250\n'
    assert dot_config.parse(text) == {"NET": "y", "PCI": "n", "LOCALVERSION": '-x "y"', "HZ": "250"}


@pytest.mark.parametrize("symbol", [("NET\nX", "y"), ("A B", "y"), ("", "y"), ("NET", "y\nCONFIG_EVIL=y")])
def test_a_name_that_would_escape_is_refused(symbol: tuple[str, str]) -> None:
    with pytest.raises(UserInputError):
        dot_config.render(dict([symbol]))


def test_lost_symbols_keep_their_order_and_say_what_they_became() -> None:
    wanted = {"B": "y", "A": "n", "START": "0x1000000", "EMPTY": "", "MOD": "m", "GONE": "m"}
    resolved = {"A": "y", "START": "16777216", "MOD": "y"}
    assert lost(wanted, resolved) == (
        LostSymbol("B", "y", "n"), LostSymbol("A", "n", "y"), LostSymbol("GONE", "m", "n"),
    )  # fmt: skip


def test_a_compressed_one_is_read_too(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_bytes(gzip.compress(b"CONFIG_NET=y\n"))
    assert dot_config.read(file) == b"CONFIG_NET=y\n"
    for damaged in (gzip.compress(b"CONFIG_NET=y\n")[:-9], gzip.compress(b"\n" * (9 << 20)), b"\x1f\x8bx"):
        file.write_bytes(damaged)
        with pytest.raises(UserInputError, match="is damaged"):
            dot_config.read(file)
