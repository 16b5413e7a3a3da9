# SPDX-License-Identifier: Apache-2.0
"""A system's bundle measured and fitted once more, from nothing but what is in it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.bundle_data import bundle
from tests.fakes.fit_run_data import fit_run
from tests.fakes.started import Start
from tests.unit.systems.test_reverifying import write

from vmtailor.base.files import records
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.bundle import RUN
from vmtailor.model.exercise import StepKind
from vmtailor.model.machine import Clock, DiskMode
from vmtailor.pipeline import measured_machines
from vmtailor.pipeline.measured_machines import Measured, MeasureRequest
from vmtailor.stages import system_verify
from vmtailor.stages.measure import MeasuredMachine
from vmtailor.stages.system_verify import SystemTarget

pytestmark = pytest.mark.usefixtures("own_cache")

Asked = list[tuple[MeasureRequest, MeasuredMachine]]

BOOT = Boot(Outcome.READY, (), 1.0, "qemu")


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Asked:
    """Nothing is booted: what would have been measured."""
    seen: Asked = []

    def record(asked: MeasureRequest) -> Measured:
        seen.append((asked, asked.subject(tmp_path)))
        return Measured((BOOT,), (BOOT,), (), 7 << 20, None)

    monkeypatch.setattr(measured_machines, "measured", record)
    return seen


def test_the_machine_of_a_systems_bundle_is_measured_until_its_system_is_ready(
    tmp_path: Path, start: Start, measured: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "bundle")
    driven: list[tuple[SystemTarget, object]] = []

    def workload(target: SystemTarget, *_: object, until: object) -> None:
        driven.append((target, until))

    monkeypatch.setattr(system_verify, "workload", workload)
    code, out, err = start("measure", folder, "--repeat", "2", "--json")
    assert code == 0, err
    ((asked, found),) = measured
    machine = found.machine
    assert (asked.boots, machine.clock, machine.network) == (2, Clock.INSTRUCTIONS, True)
    assert machine.words == ("root=/dev/vda", "rw") and machine.cpu_model == "max" and machine.ports == ()
    assert machine.disks[0].path == str(folder / "disk.raw") and machine.disks[0].mode is DiskMode.OVERLAID
    ((target, until),) = driven
    assert str(until) == "ready" and target.root.device == "/dev/vda2"
    assert all(step.kind is not StepKind.HOST_COMMAND for step in target.exercise.load)
    said = json.loads(out)
    assert said["tailored"]["min_memory_bytes"] == 7 << 20 and said["baseline_of"] == "0.1.0"
    before = fit_run().baseline
    assert said["baseline"]["init_instructions"] == before.init_instructions
    assert before.ready_wall_us is not None and said["baseline"]["ready_wall_us"] is None
    assert "baseline's figures are those of the fit (vmtailor 0.1.0)" in " ".join(err.split())


@pytest.mark.attack
@pytest.mark.parametrize(
    ("name", "says"), [("disk.raw", "its content is another one"), ("vmlinux", "its content is another one")]
)
def test_what_is_measured_is_what_the_record_says(tmp_path: Path, start: Start, name: str, says: str) -> None:
    folder = write(tmp_path / "bundle")
    (folder / name).write_bytes((folder / name).read_bytes()[::-1])
    code, _, err = start("measure", folder)
    assert code == 2 and says in " ".join(err.split())


@pytest.mark.attack
def test_a_strangers_processor_is_one(tmp_path: Path, start: Start) -> None:
    folder = write(tmp_path / "bundle")
    run = fit_run()
    tailored = replace(run.tailored, conditions=(("cpu model", "max -device x"),))
    records.save(replace(run, tailored=tailored), folder / RUN)
    seal(folder, bundle(root="disk.raw", words=("root=/dev/vda", "rw")))
    code, _, err = start("measure", folder)
    assert code == 2 and "is no CPU model" in err


def test_what_a_systems_bundle_has_is_not_asked_for(tmp_path: Path, start: Start) -> None:
    code, _, err = start("measure", write(tmp_path / "bundle"), "--source", "x")
    assert code == 2 and "--source does not go with" in err and "the bundle of a system" in " ".join(err.split())
