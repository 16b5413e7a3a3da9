# SPDX-License-Identifier: Apache-2.0
"""How often `compare` is wrong, over random halves of thirty real boots of one machine (tests/data/boot/repeated)."""

from __future__ import annotations

from types import ModuleType

import pytest
from tests.fakes.tools import load_tool


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    return load_tool("compare_quality")


@pytest.mark.lengthy
def test_halves_of_one_machine_are_seldom_called_different(tool: ModuleType) -> None:
    timelines = tool.boots()
    assert len(timelines) == 30
    found = tool.run(timelines, splits=12, rows_a_split=60)
    assert found.rows > 1500 and found.injected == 720
    assert tool.passes(found), tool.report(found)


@pytest.mark.slow
def test_two_hundred_halves(tool: ModuleType) -> None:
    found = tool.run(tool.boots())
    assert tool.passes(found), tool.report(found)
    assert "A/A" in tool.report(found)
