# SPDX-License-Identifier: Apache-2.0
"""Loads on a terminal and in the page of a fit: tables, lines of both sides, nothing where there are none."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from tests.fakes.fit_run_data import fit_run

from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli.tables import load_table
from vmtailor.model.boots.boot import Boot, ContainerRun, Outcome, Phase, PhaseCounts
from vmtailor.model.boots.load_result import Latencies, LoadResult, LoadStage, bucket_of
from vmtailor.stages.report import load_pictures, report_page

RUN = fit_run()


def stage(
    rate: float | None, median_us: int, *, right: int = 2000, took_ms: int = 1000, held: bool = True
) -> LoadStage:
    bucket = bucket_of(1000 * median_us)
    return LoadStage(
        rate=rate,
        asked=right,
        right=right,
        took_ns=took_ms * 1_000_000,
        held=held and rate is not None,
        latencies=Latencies(((bucket, right - 5), (bucket + 300, 5)), 1, 1000 * median_us, 9000 * median_us),
    )


PEAK = LoadResult(0, (stage(None, 1300),), title="peak of GET /, port 80")
SWEEP = LoadResult(
    1, (stage(1000, 90), stage(4000, 90_000, took_ms=800, held=False), stage(2000, 95)), title="rate of GET <b>"
)


def test_the_page_shows_the_loads_of_both_sides_on_one_scale() -> None:
    slower = replace(PEAK, stages=(stage(None, 2600),))
    run = replace(
        RUN, baseline=replace(RUN.baseline, loads=(slower, SWEEP)), tailored=replace(RUN.tailored, loads=(PEAK, SWEEP))
    )
    page = report_page.page(run)
    assert page.count('class="lines"') == 3 and "rate of GET &lt;b&gt;" in page and "<b>, port" not in page
    assert "2 000 requests a second were held, 4 000 were not" in page.replace("\u202f", " ")
    peak, sweep = load_pictures.loads(run.baseline, run.tailored)
    (shares,) = peak.pictures
    firsts = {line.name: float(line.points.split(",")[0]) for line in shares.lines}
    assert firsts["tailored"] == 0.0 < firsts["baseline"] < load_pictures.WIDTH
    for picture in (*peak.pictures, *sweep.pictures):
        for x, y in re.findall(r"([-\d.]+),([-\d.]+)", " ".join(line.points for line in picture.lines)):
            assert 0 <= float(x) <= load_pictures.WIDTH and -1 <= float(y) <= load_pictures.HEIGHT
        assert picture.across and picture.up


def test_a_page_without_loads_has_no_part_for_them() -> None:
    assert "Under load" not in report_page.page(RUN)


def test_a_load_without_right_answers_has_no_picture() -> None:
    none = LoadResult(0, (LoadStage(None, 5, 0, (("refused", 5),)),))
    assert load_pictures.loads(RUN.baseline, replace(RUN.tailored, loads=(none,))) == ()


@pytest.mark.parametrize("other", [PEAK, SWEEP])
def test_a_terminal_shows_stages_by_rate_and_what_a_request_costs(other: LoadResult) -> None:
    phases = (PhaseCounts(Phase.LOAD, 60_000_000, 20_000_000, client_kernel=110_000_000, client_user=10_000_000),)
    boots = [
        Boot(Outcome.READY, (), 1.0, phases=phases, container=ContainerRun(requests=2000, loads=loads))
        for loads in ((SWEEP,), (other,))
    ]
    out = io.StringIO()
    load_table.show_loads(boots, TerminalConsole(file=out, width=140))
    text = " ".join(out.getvalue().replace("\u202f", " ").split())
    assert text.index(" 1 000 ") < text.index(" 2 000 ") < text.index(" 4 000 ")
    assert "100 k instructions a request" in text and "gives 10 000 a second" in text
    assert ("the same in every boot" in text) is (other == SWEEP)
