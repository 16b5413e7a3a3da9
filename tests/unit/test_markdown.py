# SPDX-License-Identifier: Apache-2.0
"""The summary of a fit in Markdown, for CI."""

from __future__ import annotations

from dataclasses import replace

from tests.fakes.fit_run_data import fit_run

from vmtailor.model.syscalls import FailedCall
from vmtailor.stages.report import summary


def test_a_summary_has_the_verdict_and_the_strong_figures() -> None:
    said = summary(fit_run())
    assert said.startswith("### ") and "| figure | baseline | tailored | ratio |" in said
    assert "| least memory |" in said and "difference" not in said


def test_against_a_fit_before_the_differences_stand_in_a_column() -> None:
    run = fit_run()
    assert run.tailored.kernel_bytes is not None
    before = replace(run, tailored=replace(run.tailored, kernel_bytes=run.tailored.kernel_bytes * 2))
    said = summary(run, before)
    assert " | -50.0% |" in said and said.count("| none |") >= 2
    assert "The kernel has the same symbols as before." in said


def test_symbols_that_came_or_went_are_named() -> None:
    run = fit_run()
    gone = next(one.id for one in run.plan.symbols if one.value == "y")
    less = replace(run.plan, changes=tuple(one for one in run.plan.changes if one.id != gone))
    assert f"1 kernel symbol gone:\n\n- `{gone}`" in summary(replace(run, plan=less), run)
    assert f"1 kernel symbol new:\n\n- `{gone}`" in summary(run, replace(run, plan=less))


def test_an_image_of_any_name_writes_no_markdown_of_its_own() -> None:
    calls = tuple(FailedCall(name=f"call`{number}|\n", arguments="", error="ENOSYS") for number in range(30))
    said = summary(replace(fit_run(), reference="oci:<img src=x>|[a](b)\n# x", degraded=calls))
    assert "\\<img src=x\\>\\|\\[a\\]\\(b\\)?\\# x" in said
    assert "- `call?0??`" in said and "- and 10 more" in said
