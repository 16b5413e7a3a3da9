# SPDX-License-Identifier: Apache-2.0
"""The symbols that monitors need: they are names of the kernel, none of them is the usual board's, and the page has
them all."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.fit_run_data import fit_run

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.base.files import records
from vmtailor.drivers.kernel import symbol_names
from vmtailor.drivers.monitors import monitors
from vmtailor.model.architecture import named
from vmtailor.model.kernel_needs import KernelNeed
from vmtailor.model.plan import RootFormat

ROOT = Path(__file__).parents[2]
NEEDS = {one.id: one for monitor in monitors.every() for one in monitor.row.need}


def test_the_page_is_up_to_date() -> None:
    checked = subprocess.run([sys.executable, ROOT / "tools/monitor_needs.py", "--check"], check=False)
    assert checked.returncode == 0


@pytest.mark.parametrize("need", NEEDS.values(), ids=NEEDS)
def test_what_a_monitor_needs_is_more_than_the_usual_board(need: KernelNeed) -> None:
    assert set(need.symbols) <= set(symbol_names.shipped()[1])
    for name in need.architectures or ("x86_64", "arm64"):
        board = named(name).board_names[0]
        situation = symbol_catalogue.Situation(board, RootFormat.EROFS, "6.12.117", architecture=name, network=True)
        usual = {symbol for entry in symbol_catalogue.load().chosen(situation) for symbol, _ in entry.symbols}
        assert not usual & set(need.symbols)


def test_the_price_is_of_the_code_of_all_symbols_of_a_need(tmp_path: Path) -> None:
    run = fit_run()
    costs = (("ACPI", 1_000_000), ("PCI", 2000), ("EPOLL", 7))
    records.save(replace(run, baseline=replace(run.baseline, symbol_costs=costs)), tmp_path / "run.json")
    tool = (sys.executable, ROOT / "tools/monitor_needs.py", "--costs", tmp_path / "run.json")
    said = subprocess.run(tool, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert said.splitlines()[:2] == ["pci-and-acpi: 1,002,000 instructions", "virtio-console: 0 instructions"]
    assert "firecracker-acpi: 1,002,000 instructions\n" in said and "serial-16550" not in said


def test_the_price_in_a_tailored_kernel_is_the_difference_of_two_fits_of_one_image(tmp_path: Path) -> None:
    run = fit_run()
    more = replace(
        run.tailored, symbols_y=run.tailored.symbols_y + 7, kernel_bytes=run.tailored.kernel_bytes + 1_500_000,
        init_instructions_net=(run.tailored.init_instructions_net or 0) + 2_000_000,
    )  # fmt: skip
    former, refit, other = (tmp_path / name for name in ("former.json", "refit.json", "other.json"))
    records.save(run, former)
    records.save(replace(run, tailored=more), refit)
    records.save(replace(run, image_digest="sha256:" + "0" * 64), other)
    tool = (sys.executable, ROOT / "tools/monitor_needs.py", "--price", former)
    said = subprocess.run((*tool, refit), check=True, stdout=subprocess.PIPE, text=True).stdout
    assert said.splitlines() == [
        "symbols_y: +7", "kernel_bytes: +1,500,000 bytes", "init_instructions_net: +2,000,000 instructions",
    ]  # fmt: skip
    refused = subprocess.run((*tool, other), check=False, stderr=subprocess.PIPE, text=True)
    assert refused.returncode == 1 and "different images" in refused.stderr


def test_needs_have_names_of_their_own_and_reasons() -> None:
    assert len(NEEDS) == sum(len(one.row.need) for one in monitors.every()) >= 3
    assert all(one.where and one.reason and one.symbols for one in NEEDS.values())
    assert not monitors.usual().row.need
