# SPDX-License-Identifier: Apache-2.0
"""Repair with real kernels: a rule is taken away, so that the plan lacks what the container uses. The container copes
with that, and all the same it is found, and put back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from vmtailor.analysis.changes import plan_summary
from vmtailor.model.change import Cause
from vmtailor.pipeline import kernel_repair
from vmtailor.pipeline.image_subject import prepare
from vmtailor.pipeline.options import FitOptions

pytestmark = [pytest.mark.system, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
COPER = ROOT / "tests/guests/coper"
LACKING = "EVENTFD"


def test_what_a_plan_lacks_is_found_and_put_back(tmp_path: Path, forget: Callable[[str], None]) -> None:
    forget(LACKING)
    layout = tmp_path / "layout"
    subprocess.run([sys.executable, str(ROOT / "examples/build.py"), str(COPER), str(layout)], check=True, timeout=300)
    # A margin would keep what the program imports, whatever the trace says.
    options = FitOptions(f"oci:{layout}", tmp_path / "bundle", exercise_file=COPER / "exercise.toml", margins=())
    findings = prepare(options).trace()
    fitted = kernel_repair.fit_kernel(findings)

    first, second = findings.trials
    assert not first.passed and len(first.failures) == 1, first
    assert "eventfd2" in first.failures[0] and "ENOSYS" in first.failures[0]
    assert second.passed and second.purpose == "repair"
    assert [(change.id, change.value, change.verdict) for change in second.changes] == [(LACKING, "y", "better")]
    assert fitted.verification.passed and fitted.plan.unexplained == ()
    back = {
        one.id: [reason.text for reason in one.reasons if reason.cause is Cause.REPAIR]
        for one in fitted.plan.symbols
        if one.is_kept and plan_summary.cause_of(one) is Cause.REPAIR
    }
    assert list(back) == [LACKING] and "eventfd2" in back[LACKING][0]
