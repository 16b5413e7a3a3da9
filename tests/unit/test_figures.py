# SPDX-License-Identifier: Apache-2.0
"""Figures as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.base import figures
from vmtailor.base.text import plain, plural


def spaced(text: str) -> str:
    return text.replace("\u202f", " ")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "–"),
        (0, "0"),
        (812, "812"),
        (999.6, "1.00 k"),
        (26_902_130, "26.9 M"),
        (1_355_210_118, "1.36 G"),
        (2.5, "2.50"),
    ],
)
def test_short(value: float | None, expected: str) -> None:
    assert spaced(figures.short(value)) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(None, "–"), (450_000, "0.45 M"), (26_902_130, "26.9 M"), (1_355_210_118, "1 355 M")]
)
def test_millions(value: float | None, expected: str) -> None:
    assert spaced(figures.millions(value)) == expected


def test_sizes_and_times() -> None:
    assert spaced(figures.file_bytes(8_402_112)) == "8.40 MB"
    assert spaced(figures.file_bytes(512)) == "512 B"
    assert spaced(figures.memory_bytes(22 << 20)) == "22 MiB"
    assert spaced(figures.microseconds(31_240)) == "31.2 ms"
    assert spaced(figures.microseconds(4_070_000)) == "4.07 s"
    assert spaced(figures.microseconds(12)) == "12.0 µs"
    assert spaced(figures.seconds(247)) == "4 min 07 s"
    assert spaced(figures.seconds(59.96)) == "60.0 s"
    assert spaced(figures.grouped(1_236_400)) == "1 236 400"


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (100, 50, "÷ 2.0"),
        (50, 100, "× 2.0"),
        (7, 7, "="),
        (None, 3, "–"),
        (0, 3, "–"),
        (11.7, 8.4, "÷ 1.39"),
        (4000, 1, "÷ 4 000"),
    ],
)
def test_ratio(before: float | None, after: float | None, expected: str) -> None:
    assert spaced(figures.ratio(before, after)) == expected


@given(st.floats(1, 1e15), st.floats(1, 1e15))
def test_a_ratio_never_hides_its_direction(before: float, after: float) -> None:
    text = figures.ratio(before, after)
    assert text[0] == ("÷" if before > after else "×" if before < after else "=")


@given(st.text())
def test_plain_text_has_no_control_characters(text: str) -> None:
    assert all(c.isprintable() or c == "\u202f" for c in plain(text))


def test_plain_shows_escape_sequences() -> None:
    assert plain("a\x1b[31m\nb") == "a\\x1b[31m\\x0ab"


def test_plural() -> None:
    assert [plural(n, "repair") for n in (0, 1, 2)] == ["0 repairs", "1 repair", "2 repairs"]
