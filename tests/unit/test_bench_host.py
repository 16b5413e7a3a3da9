# SPDX-License-Identifier: Apache-2.0
"""The table of the machine that hosts containers: each figure beside its goal, and what misses one is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.fit_run_data import fit_run
from tests.fakes.tools import load_tool

from vmtailor.model.boots.boot import Phase, PhaseCounts


def test_units_that_are_named_are_one_more_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool, started = bench_host(), list[list[str]]()
    (tmp_path / "debian-vm").mkdir()
    (tmp_path / "debian-vm" / "disk.raw").touch()

    def run(argv: list[str], **_: Any) -> Any:
        started.append(argv)
        return SimpleNamespace(returncode=3)

    monkeypatch.setattr(tool.subprocess, "run", run)
    for units in ("trim", "trim --mask"):
        assert tool.fitted(tmp_path, "q35", units, 2, ["--mask", "ssh*", "--mask", "a.service"]) is None
    plain, named = started
    assert "--mask" not in plain and plain[plain.index("--units") + 1] == "trim"
    at = named.index("--mask")
    assert named[at : at + 4] == ["--mask", "ssh*", "--mask", "a.service"]
    assert [argv[argv.index("-o") + 1] for argv in started] == [f"{tmp_path}/q35-trim", f"{tmp_path}/q35-trim-mask"]
    run_of = fit_run()
    late = replace(run_of, tailored=replace(run_of.tailored, ready_virtual_us=6e6))
    assert "container ran" in tool.table([("q35", "trim --mask", late)]).splitlines()[-1]  # its goal holds there, too


def bench_host() -> Any:
    return load_tool("bench_host")


def test_goals_hold_for_the_way_that_they_are_for_and_a_figure_that_is_missing_misses_them() -> None:
    tool, run = bench_host(), fit_run()
    side = replace(
        run.tailored, init_instructions=300_000_000, init_instructions_net=100_000_000, init_virtual_us=400_000.0,
        ready_virtual_us=6_000_000.0, kernel_compressed_bytes=3_640_000, symbols_prompted=210,
        min_memory_bytes=(run.baseline.min_memory_bytes or 0) - (50 << 20),
    )  # fmt: skip
    run = replace(run, tailored=side)
    text = tool.table([("q35", "keep", run), ("q35", "trim", run)])
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("| ")}
    assert rows["the same, net"].split("|")[3].strip() == "0.20"  # without 200 M of loops
    keep, trim = (line for line in text.splitlines() if line.startswith("- "))
    assert "kernel file, compressed, MB" in keep and "container ran" not in keep
    assert "kernel file, compressed, MB" in trim and "container ran" in trim
    assert "least memory" not in keep
    soon = replace(run, tailored=replace(side, ready_virtual_us=4_500_000.0))
    trim, masked = tool.table([("q35", "trim", soon), ("q35", "trim --mask", soon)]).splitlines()[-2:]
    assert "kernel entry → a container ran" not in trim and "kernel entry → a container ran" in masked
    assert "4.30 (`--mask`)" in tool.table([("q35", "keep", run)])
    near = replace(run, tailored=replace(side, min_memory_bytes=(run.baseline.min_memory_bytes or 0) - (49 << 20)))
    assert "least memory" in tool.table([("q35", "keep", near)]).splitlines()[-1]
    unknown = replace(run, tailored=replace(side, init_virtual_us=None))
    assert "systemd of the real root" in tool.table([("q35", "keep", unknown)]).splitlines()[-1]


def test_what_follows_systemds_start_is_split_and_the_kernels_part_is_to_fall_by_a_fifth() -> None:
    tool, run = bench_host(), fit_run()

    def side(kernel: int) -> Any:
        phases = (PhaseCounts(Phase.KERNEL, 1, 0), PhaseCounts(Phase.INIT, kernel, 1_500_000_000))
        return replace(run.baseline, phases=phases, init_virtual_us=500_000.0, ready_virtual_us=6_500_000.0)

    for kernel, missed in ((1_500_000_000, False), (1_700_000_000, True)):
        found = replace(run, baseline=side(2_000_000_000), tailored=side(kernel))
        text = tool.table([("q35", "keep", found)])
        rows = {line.split("|")[1].strip(): line.split("|")[2].strip() for line in text.splitlines() if "|" in line}
        assert rows["systemd's start → a container ran, virtual s"] == "6.00"
        assert (rows["of it in the kernel"], rows["of it in programs"], rows["of it idle"]) == ("2.00", "1.50", "2.50")
        assert ("of it in the kernel" in text.splitlines()[-1]) is missed


@pytest.mark.parametrize(
    ("given", "ways"),
    [
        ([], ["keep", "trim"]),
        (["--units", "trim", "--mask", "a.service"], ["trim", "trim --mask"]),
        (["--units", "trim", "--mask", "a.service", "--try", "lsm", "audit"], ["trim", "trim --mask --try"]),
        (["--units", "--mask", "a.service"], ["trim --mask"]),
    ],
)
def test_what_is_named_is_one_more_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, given: list[str], ways: list[str]
) -> None:
    tool, asked = bench_host(), list[tuple[str, list[str]]]()
    monkeypatch.setattr(tool, "fitted", lambda out, machine, units, boots, named: asked.append((units, named)))
    monkeypatch.setattr("sys.argv", ["bench_host.py", "--out", str(tmp_path), *given])
    with pytest.raises(SystemExit, match="no fit came to its end"):
        tool.main()
    assert [units for units, _ in asked] == ways
    if "--try" in given:
        assert asked[-1][1] == ["--mask", "a.service", "--try", "lsm", "--try", "audit"]
