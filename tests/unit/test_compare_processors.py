# SPDX-License-Identifier: Apache-2.0
"""Bundles of one image on several processors, set side by side by `vmtailor compare`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.fit_run_data import fit_run
from tests.fakes.started import Start

from vmtailor.analysis.comparison import processors, sides
from vmtailor.base.errors import UserInputError
from vmtailor.base.figures import NARROW_SPACE
from vmtailor.base.files import records
from vmtailor.cli import compare as compare_verb
from vmtailor.model.boots.comparison import PlatformFigure, ProcessorsCompared
from vmtailor.model.change import Cause, Reason, symbol
from vmtailor.model.fit_run import FitRun


def on_arm64() -> FitRun:
    """The same run, as if for another processor: one symbol instead of another, and other figures."""
    run = fit_run()
    gone = next(one for one in run.plan.changes if one.is_kept and one.setting.chosen and one.reasons)
    own = symbol("SERIAL_AMBA_PL011", "y", Reason(Cause.PLATFORM, "platform:uart", "the serial line carries all talk"))
    changes = tuple(own if one is gone else one for one in run.plan.changes)
    plan = replace(run.plan, architecture="arm64", machine="virt", changes=changes)
    return replace(run, plan=plan, tailored=replace(run.tailored, kernel_bytes=4_500_000, min_memory_bytes=None))


@pytest.fixture
def bundles(tmp_path: Path) -> tuple[Path, Path]:
    paths = (tmp_path / "here", tmp_path / "there")
    for path, run in zip(paths, (fit_run(), on_arm64()), strict=True):
        path.mkdir()
        records.save(run, path / "run.json")
    return paths


def test_figures_stand_side_by_side_and_what_only_one_needs_has_its_reason() -> None:
    runs = (fit_run(), on_arm64())
    found = processors.compare_processors(("a", "b"), runs)
    assert [(one.name, one.architecture) for one in found.platforms] == [("a", "x86_64"), ("b", "arm64")]
    figures = {one.name: one for one in found.figures}
    assert figures["kernel file"].values == (runs[0].tailored.kernel_bytes, 4_500_000.0)
    assert figures["least memory"].values[1] is None
    units = {one.name: one.unit for one in found.figures}
    assert {name for name, unit in units.items() if unit == "bytes"} == {
        "kernel file", "kernel file, packed", "least memory",
    }  # fmt: skip
    assert {name for name, unit in units.items() if unit == ""} == {
        "symbols =y", "symbols with a prompt", "device accesses",
    }  # fmt: skip
    assert set(units.values()) == {"", "bytes", "instructions"}
    own = next(one for one in found.differing if one.symbol == "SERIAL_AMBA_PL011")
    assert own.has == (None, "y") and own.why == "the serial line carries all talk"
    assert len(found.differing) == 2 and {one.has for one in found.differing} == {(None, "y"), ("y", None)}
    kept = sum(one.is_kept for one in runs[0].plan.symbols)
    assert found.shared == kept - 1


def test_two_bundles_of_one_processor_are_no_comparison_of_processors(bundles: tuple[Path, Path]) -> None:
    assert sides.runs_of([bundles[0], bundles[0]]) is None
    assert sides.runs_of([bundles[0], bundles[0].parent]) is None
    assert sides.runs_of(bundles) is not None
    with pytest.raises(UserInputError, match="two of these bundles are of one processor"):
        processors.compare_processors(("a", "b", "c"), (fit_run(), fit_run(), on_arm64()))


def test_the_verb_prints_both_forms(
    start: Start, bundles: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    code, out, err = start("compare", *bundles)
    assert code == 0, err
    for words in ("x86-64", "arm64, virt", "4.50\u202fMB", "SERIAL_AMBA_PL011", "serial line", "no verdict"):
        assert words in out
    assert json.loads(start("compare", *bundles, "--json")[1])["schema"] == ProcessorsCompared.SCHEMA
    code, _, err = start("compare", *bundles, "-o", tmp_path / "page.html")
    assert code == 2 and "--json" in err and not (tmp_path / "page.html").exists()


@pytest.mark.parametrize(
    ("name", "unit", "value", "text"),
    [
        ("least memory", "bytes", 16 << 20, "16 MiB"),
        ("kernel file", "bytes", 4_500_000, "4.50 MB"),
        ("kernel file", "bytes", None, "–"),
        ("to init", "instructions", 28_500_000, "28.5 M"),
    ],
)
def test_memory_is_told_in_powers_of_1024_and_files_of_1000(
    name: str, unit: str, value: float | None, text: str
) -> None:
    shown = compare_verb._platform_amount(PlatformFigure(name, unit, (value,)), value)
    assert shown.replace(NARROW_SPACE, " ") == text
