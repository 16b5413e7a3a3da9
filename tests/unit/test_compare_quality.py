# SPDX-License-Identifier: Apache-2.0
"""How often `compare` is wrong, over random halves of thirty real boots of one machine (tests/data/boot/repeated)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).parents[2] / "tools" / "compare_quality.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("compare_quality", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


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
