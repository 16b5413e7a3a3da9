# SPDX-License-Identifier: Apache-2.0
"""Entry points that insist on being PID 1: traced as such on the packaged kernel, and planned for."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes.program import run_program
from tests.system.conftest import layout_of

from vmtailor.analysis.guests.varying_output import Output
from vmtailor.base.files import records
from vmtailor.model.bundle import PLAN
from vmtailor.model.plan import Plan
from vmtailor.model.trace import Trace

pytestmark = pytest.mark.system

GUEST = Path(__file__).parents[1] / "guests" / "first"


def test_an_init_of_an_image_is_traced_as_pid_one_and_its_kernel_keeps_what_that_takes(tmp_path: Path) -> None:
    work = tmp_path / "work"
    for words in (("trace", f"oci:{layout_of(GUEST, tmp_path)}", "-o", work), ("plan", work)):
        ended = run_program(tmp_path / "run", *words, timeout_s=1200)
        assert ended.code == 0, f"{words}: {ended.code}\n{ended.stdout}\n{ended.stderr}"
    plan = records.load(Plan, work / PLAN)
    assert any(one.id == "PID_NS" and one.is_kept for one in plan.symbols)
    # What it prints is another time in each of the two boots, which is not compared later.
    seen = records.load(Trace, work / "trace" / "trace.json")
    assert seen.requests_report.exit_code == 0
    assert seen.coverage_boot.container is not None
    varying = Output(seen.requests_report.stdout, seen.coverage_boot.container.stdout).varying()
    assert len(varying) == 1 and varying[0].startswith("it is * ")
