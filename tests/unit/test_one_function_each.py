# SPDX-License-Identifier: Apache-2.0
"""What many places use: digests of files, sizes, escape sequences, versions."""

from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base import notation
from vmtailor.base.cache.store import digest
from vmtailor.base.files import digests
from vmtailor.base.text import remove_sequences, without_controls, without_escapes, without_sequences


@given(st.binary(max_size=5000))
def test_the_digest_of_a_file(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("digest") / "file"
    path.write_bytes(data)
    assert digests.sha256_of(path) == hashlib.sha256(data).hexdigest()
    assert digest(path) == digest(data) == hashlib.sha256(hashlib.sha256(data).digest()).hexdigest()
    with path.open("rb") as file:
        file.seek(min(3, len(data)))
        assert digests.sha256_of_rest(file) == hashlib.sha256(data[3:]).hexdigest()


@pytest.mark.parametrize(
    ("text", "size"),
    [("256M", 256 << 20), ("64", 64 << 20), ("1 GiB", 1 << 30), ("2t", 1 << 41), ("8192k", 8 << 20), ("100b", 100),
     ("134217728", 1 << 27), ("", None), ("1.5G", None), ("-1M", None), ("1G\n2", None), ("\u0661M", None)],
)  # fmt: skip
def test_sizes_as_people_write_them(text: str, size: int | None) -> None:
    assert notation.parse_size(text) == size


def test_a_unit_can_be_needed() -> None:
    assert (
        notation.parse_size("64", needs_unit=True) is None and notation.parse_size("64M", needs_unit=True) == 64 << 20
    )


@given(st.integers(1, 1 << 14))
def test_sizes_are_written_as_they_are_read(count: int) -> None:
    assert notation.parse_size(notation.size_text(count << 20)) == count << 20
    assert notation.mebibytes(count << 20) == f"{count} MiB"


def test_sizes_that_are_odd() -> None:
    assert (notation.size_text(1000), notation.size_text(3 << 29), notation.size_text(1 << 34)) == (
        "1000 bytes",
        "1536M",
        "16G",
    )
    assert notation.mebibytes(3 << 19) == "1.5 MiB" and notation.mebibytes(1 << 40) == "1048576 MiB"


@pytest.mark.parametrize(
    ("text", "left"),
    [("\x1b[1;31mred\x1b[0m", "red"), ("\x1b]0;title\x07text", "text"), ("\x1b]0;title\x1b\\text", "text"),
     ("\x1bcx", "x"), ("\x1b(Bx", "x"), ("a\x1b", "a"), ("\x1bP1$q\x1b\\a", "a"), ("plain\ttext\n", "plain\ttext\n")],
)  # fmt: skip
def test_escape_sequences_go(text: str, left: str) -> None:
    assert without_escapes(text) == without_sequences(text) == left
    found, count = remove_sequences(text.encode())
    assert found.decode() == left and (count > 0) == (text != left)


@pytest.mark.attack
@given(st.text(st.sampled_from("\x1b[]();?0m\x07\\P^_ \t\n\x00\x7fax")))
def test_nothing_is_left_that_a_terminal_obeys(text: str) -> None:
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", without_escapes(text))
    assert without_controls(remove_sequences(text.encode())[0]).decode() == without_escapes(text)


@pytest.mark.attack
def test_a_sequence_without_an_end_costs_little() -> None:
    assert len(without_escapes("\x1b]" * 100_000 + "\x1b[" + "0" * 100_000)) < 200_000


def test_versions_are_numbers() -> None:
    ascending = ["", "6", "6.1", "6.1.192", "6.9", "6.12", "6.12.117-1~deb12", "7.2", "7.2.22", "10.0"]
    assert sorted(sorted(ascending), key=notation.version_key) == ascending != sorted(ascending)
    assert notation.version_key("6.12.117+deb12-cloud") == (6, 12, 117) and notation.version_key("v6") == ()
