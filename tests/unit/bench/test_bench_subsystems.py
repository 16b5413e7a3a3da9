# SPDX-License-Identifier: Apache-2.0
"""Instructions of the kernel by subsystem: where functions are, and what is counted of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vmtailor.analysis.cost.plugin_counts import FIRMWARE, UNKNOWN, SymbolTable
from vmtailor.analysis.cost.waterfall import OTHER
from vmtailor.bench.analysis.boot_counts import BEFORE, by_subsystem, counts, per_unit, started
from vmtailor.bench.analysis.figure_parts import part
from vmtailor.bench.analysis.host_runs import Pair, compared
from vmtailor.bench.cli.result_tables import show_compared
from vmtailor.bench.model.job import STOCK, BenchJob, BenchMachine
from vmtailor.bench.model.results import CLOCK, BenchFigure, BenchHost, BenchTrial, HostRun, SuiteName
from vmtailor.bench.run.kernel_subsystems import path_of, subsystems
from vmtailor.bench.run.machine_counts import cannot_tell
from vmtailor.model.boots.boot import Boot, FunctionCost, Outcome, Phase, PhaseCounts
from vmtailor.model.boots.counters import SourceFrame
from vmtailor.model.machine import Machine

TREE = {"net/core/dev.c", "fs/ext4/inode.c", "mm/slub.c", "include/linux/list.h"}
KNOWN = {"dev_open": "net/core", "ext4_read": "fs/ext4", "kmalloc": "mm"}


def boot(**instructions: int) -> Boot:
    """A boot that had so many instructions of each function behind the program's begin, and 7 of no function."""
    rows = tuple(FunctionCost(name, Phase.START_UP, cost) for name, cost in instructions.items())
    before = (FunctionCost(FIRMWARE, Phase.FIRMWARE, 50), FunctionCost("kmalloc", Phase.KERNEL, 20))
    phases = (
        PhaseCounts(Phase.FIRMWARE, 50, 0),
        PhaseCounts(Phase.KERNEL, 20, 3),
        PhaseCounts(Phase.START_UP, sum(instructions.values()) + 7, 11),
    )
    return Boot(Outcome.READY, (), 1.0, phases=phases, functions=(*before, *rows))


def test_a_function_is_of_the_folder_of_the_file_in_which_it_begins() -> None:
    names = ("dev_open", "list_add", "lost", "kmalloc")
    text = "".join(f"{at:016x} t {name}\n" for at, name in zip((0x10, 0x20, 0x30, 0x40), names, strict=True))
    table = SymbolTable.parse(text, "x86_64")
    noted = "debian/build/one/net/core/dev.c"
    frames = {
        0x10: (SourceFrame("list_add", "include/linux/list.h", 3), SourceFrame("dev_open", noted, 9)),
        0x20: (SourceFrame("list_add", "/build/include/linux/list.h", 3),),
        0x30: (SourceFrame("lost", "usercopy_64.c", 3),),
        0x40: (SourceFrame("kmalloc", "./mm/../mm/slub.c", 3),),
    }
    found = subsystems(table, frames, TREE.__contains__)
    assert found == {"dev_open": "net/core", "list_add": "include", "kmalloc": "mm"}


@pytest.mark.parametrize(
    ("noted", "path"),
    [("/a/b/net/core/dev.c", "net/core/dev.c"), ("mm/slub.c", "mm/slub.c"), ("", ""), ("nowhere.c", "")],
)
def test_a_path_is_the_longest_ending_that_is_there(noted: str, path: str) -> None:
    assert path_of(noted, TREE.__contains__) == path


def test_subsystems_add_up_to_what_was_counted() -> None:
    found = boot(dev_open=100, ext4_read=10, strange=1)
    to_end = (Phase.FIRMWARE, Phase.KERNEL, Phase.START_UP)
    parts = by_subsystem(found, to_end, KNOWN)
    assert parts == {"net/core": 100.0, "fs/ext4": 10.0, "mm": 20.0, BEFORE: 50.0, OTHER: 8.0}
    assert sum(parts.values()) == counts(found, to_end)[0]
    assert by_subsystem(found, to_end, {}) == {}  # what is not known is not called other
    unknown = by_subsystem(boot(**{UNKNOWN: 4}), (Phase.START_UP,), KNOWN)
    assert unknown == {OTHER: 11.0}


def test_a_unit_and_a_start_have_them() -> None:
    unit = {
        figure.name: figure.value
        for figure in per_unit(boot(dev_open=100, kmalloc=50), boot(dev_open=300, kmalloc=50, ext4_read=30), 10, KNOWN)
    }
    assert unit["kernel a unit"] == 23.0
    assert {name: value for name, value in unit.items() if ": " in name} == {
        "kernel a unit: net/core": 20.0, "kernel a unit: fs/ext4": 3.0,
    }  # fmt: skip
    start = {figure.name: figure.value for figure in started(boot(dev_open=100), KNOWN)}
    assert start["kernel to the program: mm"] == 20.0 and start["kernel to its end: net/core"] == 100.0
    assert "kernel to the program: net/core" not in start


def test_of_subsystems_a_comparison_shows_those_that_moved(capsys: pytest.CaptureFixture[str]) -> None:
    def run(net: float) -> HostRun:
        figures = (
            BenchFigure("kernel", 1000.0 + net, "instructions"),
            BenchFigure(part("kernel", "mm"), 1000.0, "instructions"),
            BenchFigure(part("kernel", "net"), net, "instructions"),
        )
        trials = tuple(
            BenchTrial(SuiteName.STARTUP, "boot", STOCK, 1, CLOCK, block, 0.0, 1.0, figures) for block in (1, 2)
        )
        host = BenchHost("here", "6.1", "a processor", 2, 1 << 33, "x", "v2", False, False)
        return HostRun(host, "sha256:0", True, 1, (), (), trials)

    before, after = run(500.0), run(900.0)
    show_compared(Pair(before, after), compared(before, after))
    said = capsys.readouterr().out
    assert "kernel: net" in said and "kernel: mm" not in said


def test_a_bundle_alone_says_why_it_has_none() -> None:
    stock = BenchMachine(STOCK, Machine("microvm", 256 << 20), "6.12", "/map", "", "/subsystems.json")
    bundle = BenchMachine("vm:mine", Machine("microvm", 256 << 20), "6.12", folder="/mine")
    job = BenchJob((SuiteName.STARTUP,), (), (1,), 6, True, 1, "", "", "", "", "", "", machines=(bundle,))
    assert any("vm:mine: by subsystem of the kernel: only beside vm:stock" in text for text in cannot_tell(job))
    beside = replace(job, machines=(stock, replace(bundle, subsystems=stock.subsystems)))
    assert not any("by subsystem" in text for text in cannot_tell(beside))
