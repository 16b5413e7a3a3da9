# SPDX-License-Identifier: Apache-2.0
"""Advice in words for six uses of containers: who leads, what is lacking, and when nothing can be said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.fakes.program import run_program
from tests.unit.bench.test_bench_cells import HOST

from vmtailor import __version__
from vmtailor.base.files import records
from vmtailor.bench.analysis import scenarios
from vmtailor.bench.analysis.scenarios import ScenarioAdvice, known
from vmtailor.bench.model.results import BenchFigure, BenchResults, BenchTrial, HostRun, SuiteName


def trials(suite: SuiteName, test: str, figure: str, by: Mapping[str, Sequence[float]], unit: str) -> list[BenchTrial]:
    larger = unit in ("MB/s", "GFLOP/s", "instances")
    return [
        BenchTrial(
            suite=suite, test=test, runtime=name, count=1, variant="", block=block, started_unix_s=0.0, seconds=1.0,
            figures=(BenchFigure(name=figure, value=value, unit=unit, larger_is_better=larger),),
        )
        for name, values in by.items()
        for block, value in enumerate(values, 1)
    ]  # fmt: skip


FAST, SLOW = (0.018, 0.019, 0.018, 0.020, 0.019), (0.150, 0.154, 0.151, 0.153, 0.149)
STARTS = trials(SuiteName.STARTUP, "report", "own report", {"native": FAST, "lxc": FAST, "docker": SLOW}, "s")
IDLE = trials(SuiteName.MEMORY, "idle", "PSS of each", {"lxc": [1e6] * 5, "docker": [1e7] * 5}, "B")


def advised(*parts: list[BenchTrial], among: Sequence[str] = ()) -> dict[str, ScenarioAdvice]:
    run = HostRun(HOST, "d", False, 1, trials=tuple(trial for part in parts for trial in part))
    return {one.scenario.name: one for one in scenarios.advise(run, among)}


def test_every_use_asks_for_figures_that_are_registered() -> None:
    names = [one.name for one in scenarios.scenarios()]
    assert names == ["compute framework", "portal", "build farm", "function service", "database", "many tenants"]
    assert all(known(need) for one in scenarios.scenarios() for need in one.needs)
    assert all(one.needs for one in scenarios.scenarios())


def test_who_leads_is_said_with_figures_and_what_is_lacking_with_its_command() -> None:
    found = advised(STARTS, IDLE)
    service = found["function service"]
    assert service.chosen == ("lxc",) and service.sentences[0].startswith("lxc: leads in 1 of 1 figures")
    assert "A start: lxc (19.00 ms; docker 151.0 ms)." in service.sentences
    assert "native" not in " ".join(service.sentences)  # it isolates nothing
    assert "vmtailor bench memory --only density" in service.sentences[-1]
    assert found["compute framework"].sentences[0].startswith("Cannot tell: no figure")
    # Memory alone says nothing of strangers.
    assert found["many tenants"].chosen == ()
    assert found["many tenants"].sentences[0] == (
        "Cannot tell without figures of neighbours that take memory, neighbours that begin processes without end."
    )
    assert "Idle memory: lxc" in " ".join(found["many tenants"].sentences)


def test_what_the_samples_do_not_tell_apart_leads_together() -> None:
    even = {"lxc": FAST, "nspawn": FAST, "docker": SLOW}
    found = advised(trials(SuiteName.STARTUP, "report", "own report", even, "s"))["function service"]
    assert found.chosen == ("lxc", "nspawn") and found.sentences[0].startswith("lxc or nspawn: lead in 1 of 1")
    alike = advised(trials(SuiteName.STARTUP, "report", "own report", {"lxc": FAST, "nspawn": FAST}, "s"))
    assert alike["function service"].chosen == ()
    assert "A start: the samples tell none from another" in alike["function service"].sentences[1]
    assert advised(STARTS, among=["native", "docker"])["function service"].chosen == (
        "native",
    )  # where it is asked for


def test_the_verb_says_it_without_weights(tmp_path: Path) -> None:
    run = HostRun(HOST, "d", False, 1, trials=(*STARTS, *IDLE))
    records.save(BenchResults(__version__, (run,)), tmp_path / "bench.json")
    ended = run_program(tmp_path, "bench", "advise", tmp_path / "bench.json", timeout_s=60)
    assert ended.code == 0 and "function service: a container for each request" in ended.stdout
    assert "lxc: leads in 1 of 1" in ended.stdout
    assert "Cannot tell without figures of neighbours that take memory" in ended.stdout
    told = run_program(tmp_path, "bench", "advise", tmp_path / "bench.json", "--json", timeout_s=60)
    found = json.loads(told.stdout)
    assert found["schema"] == "vmtailor/bench-scenarios/1" and len(found["runs"][0]["scenarios"]) == 6
    assert found["runs"][0]["scenarios"][3]["chosen"] == ["lxc"]
