# SPDX-License-Identifier: Apache-2.0
"""A container's program is PID 1: where its image insists on that, traced and planned for; and as in an engine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from tests.fakes.program import finish, interrupt, run_program, started
from tests.system.conftest import FIT_S, Fitted, layout_of, with_image

from vmtailor.analysis.guests.varying_output import Output
from vmtailor.base.files import records
from vmtailor.model.bundle import PLAN
from vmtailor.model.plan import Plan
from vmtailor.model.trace import Trace

pytestmark = pytest.mark.system

GUESTS = Path(__file__).parents[1] / "guests"
RABBITMQ = Path(__file__).parents[1] / "data" / "servers" / "rabbitmq"
PATIENCE_S = 90.0


def traced(image: str, folder: Path) -> tuple[Trace, Plan]:
    """What is seen of an image, and the plan without any margin."""
    work, exercise = folder / "work", GUESTS / image / "exercise.toml"
    given = ("--exercise", exercise) if exercise.exists() else ()
    for words in (
        ("trace", f"oci:{layout_of(GUESTS / image, folder)}", *given, "-o", work),
        ("plan", work, "--margin", "none"),
    ):
        ended = run_program(folder / "run", *words, timeout_s=1200)
        assert ended.code == 0, f"{words}: {ended.code}\n{ended.stdout}\n{ended.stderr}"
    return records.load(Trace, work / "trace" / "trace.json"), records.load(Plan, work / PLAN)


def test_an_init_of_an_image_is_traced_as_pid_one_and_its_kernel_keeps_what_that_takes(tmp_path: Path) -> None:
    seen, plan = traced("first", tmp_path)
    assert any(one.id == "PID_NS" and one.is_kept for one in plan.symbols)
    # What it prints is another time in each of the two boots, which is not compared later.
    assert seen.requests_report.exit_code == 0
    assert seen.coverage_boot.container is not None
    varying = Output(seen.requests_report.stdout, seen.coverage_boot.container.stdout).varying()
    assert len(varying) == 1 and varying[0].startswith("it is * ")


@pytest.mark.slow
def test_an_init_that_a_wrapper_becomes_is_evidence_without_its_name_in_the_image(tmp_path: Path) -> None:
    seen, plan = traced("wrapped", tmp_path)
    assert {"first is busybox init", "by its descriptor"} <= set(seen.requests_report.stdout.splitlines())
    (kept,) = [one for one in plan.symbols if one.id == "PID_NS"]
    assert kept.is_kept and [one.reference.rpartition(":")[0] for one in kept.reasons] == ["trace:requests"]


@pytest.fixture(scope="module")
def wrapped(lighttpd: Fitted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_image(lighttpd.bundle, GUESTS / "wrapped", tmp_path_factory.mktemp("wrapped"), network=False)


@pytest.mark.slow
def test_a_wrapper_becomes_an_init_that_insists(wrapped: Path, tmp_path: Path) -> None:
    with started(tmp_path, "run", "--stop-timeout", "600", wrapped) as running:
        running.wait_for("all done", where=running.out)
        interrupt(running)
        with pytest.raises(subprocess.TimeoutExpired):  # two that come as one would be one
            running.process.wait(1.0)
        interrupt(running)
        ended = finish(running, PATIENCE_S)
    said = ended.stdout.splitlines()
    assert said[0] == "prepared by 1"
    assert {"first is busybox init", "by its descriptor", "reloads"} <= set(said)
    assert "must be run as PID 1" not in ended.stdout + ended.stderr
    # As a child of the machine's init it refuses, with `--init` as with `--pid host`.
    ended = run_program(tmp_path / "below", "run", "--init", wrapped)
    assert ended.code == 1 and "must be run as PID 1" in ended.stdout + ended.stderr


FACTS = ("--entrypoint", "/bin/busybox"), ("sh", "/facts")
FOUND = (
    "own number 1, first is busybox\nto the first one's output\nSIGHUP has no effect\nSIGTERM has no effect\n"
    "SIGUSR1 has no effect\nSIGKILL has no effect\nlisted\n"
)


@pytest.mark.slow
def test_what_pid_1_finds(wrapped: Path, tmp_path: Path) -> None:
    ended = run_program(tmp_path, "run", *FACTS[0], wrapped, *FACTS[1])
    assert (ended.code, ended.stdout, ended.stderr) == (6, FOUND, "")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("podman") is None, reason="podman is not here to compare with")
def test_an_engine_gives_the_same(tmp_path: Path) -> None:
    layout = layout_of(GUESTS / "wrapped", tmp_path)
    command = ["podman", "run", "--rm", *FACTS[0], f"oci:{layout}", *FACTS[1]]
    engine = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (engine.returncode, engine.stdout) == (6, FOUND), engine.stderr


@pytest.mark.slow
def test_a_slow_starter_is_traced_within_stretched_limits(tmp_path: Path) -> None:
    """RabbitMQ: its limit of two minutes is for a machine that is not emulated, nor traced."""
    layout, exercise = layout_of(RABBITMQ, tmp_path), RABBITMQ / "exercise.toml"
    ended = run_program(
        tmp_path / "run", "trace", f"oci:{layout}", "--exercise", exercise, "-o", tmp_path / "work", timeout_s=FIT_S
    )
    assert ended.code == 0, ended.stderr[-3000:]
    seen = records.load(Trace, tmp_path / "work" / "trace" / "trace.json")
    assert seen.requests_report.ready is not None and seen.requests_report.ready.ok
    assert all(result.ok for result in seen.requests_report.results)
