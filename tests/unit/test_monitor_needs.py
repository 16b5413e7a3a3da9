# SPDX-License-Identifier: Apache-2.0
"""The symbols that monitors need: they are names of the kernel, none of them is the usual board's, and the page has
them all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.drivers.kernel import symbol_names
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import MonitorNeed
from vmtailor.model.architecture import named
from vmtailor.model.plan import RootFormat

ROOT = Path(__file__).parents[2]
NEEDS = {one.id: one for monitor in monitors.every() for one in monitor.row.need}


def test_the_page_is_up_to_date() -> None:
    checked = subprocess.run([sys.executable, ROOT / "tools/monitor_needs.py", "--check"], check=False)
    assert checked.returncode == 0


@pytest.mark.parametrize("need", NEEDS.values(), ids=NEEDS)
def test_what_a_monitor_needs_is_more_than_the_usual_board(need: MonitorNeed) -> None:
    assert set(need.symbols) <= set(symbol_names.shipped()[1])
    for name in need.architectures or ("x86_64", "arm64"):
        board = named(name).board_names[0]
        situation = symbol_catalogue.Situation(board, RootFormat.EROFS, "6.12.117", architecture=name, network=True)
        usual = {symbol for entry in symbol_catalogue.load().chosen(situation) for symbol, _ in entry.symbols}
        assert not usual & set(need.symbols)


def test_needs_have_names_of_their_own_and_reasons() -> None:
    assert len(NEEDS) == sum(len(one.row.need) for one in monitors.every()) >= 3
    assert all(one.where and one.reason and one.symbols for one in NEEDS.values())
    assert not monitors.usual().row.need
