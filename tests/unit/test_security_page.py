# SPDX-License-Identifier: Apache-2.0
"""The page about security names tests that exist, and each of them is among those that `make attack` runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/security.md").read_text()
FILES = {path.name: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
NAMES = sorted(set(re.findall(r"`(test_\w+(?:\.py)?)`", PAGE)))


@pytest.mark.parametrize("name", NAMES)
def test_what_the_page_names_is_there_and_is_an_attack(name: str) -> None:
    found = [
        text for file, text in FILES.items() if file == name or re.search(rf"^def {re.escape(name)}\(", text, re.M)
    ]
    assert found, "no such test"
    assert any("mark.attack" in text for text in found)


def test_it_names_many() -> None:
    assert len(NAMES) > 25
