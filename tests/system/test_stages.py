# SPDX-License-Identifier: Apache-2.0
"""One stage at a time, in a work folder: each reads what the one before wrote; together they give what `fit` does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.program import assert_clear, run_program
from tests.system.conftest import EXAMPLES, Fitted

from vmtailor.base.files import records
from vmtailor.model.bundle import PLAN
from vmtailor.model.fit_run import FitRun
from vmtailor.model.plan import Plan

pytestmark = [pytest.mark.system, pytest.mark.slow]


def test_stage_by_stage(tmp_path: Path, lighttpd: Fitted, no_builds: dict[str, str]) -> None:
    """Only `verify` boots: everything else is found by its content, as the fit has left it."""
    work = tmp_path / "work"

    def ran(*words: str | Path, boots: bool = False) -> dict[str, Any]:
        ended = run_program(tmp_path / "run", *words, "--json", env=None if boots else no_builds, timeout_s=600)
        assert ended.code == 0, f"{words}: {ended.code}\n{ended.stdout}\n{ended.stderr}"
        document: dict[str, Any] = json.loads(ended.stdout)
        return document

    fitted = records.load(FitRun, lighttpd.bundle / "run.json")
    exercise = EXAMPLES / "lighttpd" / "exercise.toml"
    ran("trace", f"oci:{lighttpd.layout}", "-x", exercise, "-o", work)
    lighttpd.layout.rename(tmp_path / "moved")  # nobody asks for the image again
    try:
        ran("plan", work)
        # The very plan of the fit, which for this image needs no repair.
        assert records.load(Plan, work / PLAN) == records.load(Plan, lighttpd.bundle / PLAN)
        kernel = ran("build", work)
        assert kernel["image"] == str(work / "vmlinux")
        assert (work / "vmlinux").read_bytes() == (lighttpd.bundle / "vmlinux").read_bytes()
        assert ran("verify", work, boots=True)["verified"] is True
        sides = ran("measure", work, "--repeat", "2")
        # Paths are no part of what is measured; nor is what the fit adds for its report.
        assert sides["tailored"]["init_instructions"] == fitted.tailored.init_instructions
        assert sides["baseline"]["ready_instructions"] == fitted.baseline.ready_instructions
        # And of a bundle: the same two machines.
        again = ran("measure", lighttpd.bundle, "--repeat", "2")
        assert again["tailored"]["init_instructions_net"] == fitted.tailored.init_instructions_net
        assert again["baseline"]["init_instructions_net"] == fitted.baseline.init_instructions_net
    finally:
        (tmp_path / "moved").rename(lighttpd.layout)
    (work / PLAN).unlink()
    assert_clear(run_program(tmp_path / "run", "build", work), 2, "vmtailor plan writes it")
