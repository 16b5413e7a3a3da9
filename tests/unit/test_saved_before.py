# SPDX-License-Identifier: Apache-2.0
"""Bundles and a work folder that version 0.1.0 wrote are read: the records are its own, shortened; of its large files
there are some bytes, with right digests."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.cli.fit_record import TraceLines, load_run
from vmtailor.drivers.host import bundle_folder, bundle_values
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.bundle import IMAGE, PLAN, RUN, SYSTEM, SYSTEM_EXERCISE, SYSTEM_RUN, Bundle
from vmtailor.model.exercise import ReadyKind
from vmtailor.model.fit_run import FitRun
from vmtailor.model.image import Image
from vmtailor.model.machine import Clock
from vmtailor.model.plan import Plan
from vmtailor.model.systems.system import System
from vmtailor.model.watched.system_run import SystemRun
from vmtailor.pipeline import reverify
from vmtailor.pipeline.reverify import SavedSystem, VerifyRequest
from vmtailor.pipeline.work_files import WorkFolder, is_work_folder

pytestmark = pytest.mark.usefixtures("own_cache")

SAVED = Path(__file__).parent.parent / "data/saved"
#: The schema of every record that 0.1.0 left in a folder, by the record's file.
SCHEMAS = {
    "bundle.json": "vmtailor/bundle/2",
    "exercise.json": "vmtailor/exercise/1",
    "image.json": "vmtailor/image/2",
    "kernel.json": "vmtailor/work-kernel/1",
    "plan.json": "vmtailor/plan/3",
    "run.json": "vmtailor/fit-run/8",
    "system-exercise.json": "vmtailor/system-exercise/1",
    "system-run.json": "vmtailor/system-run/1",
    "system.json": "vmtailor/subject/1",
    "trace.json": "vmtailor/trace/3",
    "verification.json": "vmtailor/verification/3",
    "work.json": "vmtailor/work/1",
}


def test_each_record_has_the_schema_that_it_was_written_with() -> None:
    found = {path.name: msgspec.json.decode(path.read_bytes()) for path in SAVED.rglob("*.json")}
    assert {name: said["schema"] for name, said in found.items() if "schema" in said} == SCHEMAS


def saved(name: str, tmp_path: Path) -> Path:
    """A copy that nobody else can change."""
    return Path(shutil.copytree(SAVED / name, tmp_path / name))


def test_a_containers_bundle_is_read_whole(tmp_path: Path) -> None:
    folder = saved("container", tmp_path)
    found = bundle_folder.load_container(folder)
    for one in found.bundle.files:
        found.data(one.name)
    assert not found.is_system and found.exercise.ready.kind is ReadyKind.EXIT
    assert found.symbols and found.config and found.init == b"init of a bundle\n" and found.baseline_config
    assert found.trace.requests_file == "requests.strace" and found.requests()
    assert found.record(Plan, PLAN).kernel_version == found.bundle.kernel_version == "6.12.117"
    assert found.record(Image, IMAGE).digest == found.bundle.image_digest
    run = found.record(FitRun, RUN)
    assert run == load_run(folder)[0] and run.image == found.image.config == found.record(Image, IMAGE).config
    assert (found.image.reference, found.image.digest) == (run.reference, run.image_digest)
    assert TraceLines(folder).quote("trace:requests:1")
    machine = machine_of(found, Chosen())
    assert machine.board == "microvm" and machine.words[0] == "root=/dev/vda" and not machine.network
    prepared = reverify.prepare(VerifyRequest(folder, Clock.INSTRUCTIONS))
    assert prepared.subject.runs == () and prepared.clock is Clock.INSTRUCTIONS
    assert records.load(Bundle, folder / "bundle.json") == found.bundle


def test_a_systems_bundle_is_read_whole(tmp_path: Path) -> None:
    folder = saved("system", tmp_path)
    found = bundle_folder.load(folder)
    for one in found.bundle.files:
        found.data(one.name)
    exercise = found.record(SystemExercise, SYSTEM_EXERCISE)
    bundle_values.require_system_exercise(exercise, folder)
    run = found.record(FitRun, RUN)
    assert found.is_system and run.system == found.record(System, SYSTEM)
    assert found.bundle.image is None and run.image is None and run.tcp_ports == run.system_ports == (80,)
    assert found.record(SystemRun, SYSTEM_RUN).boot.outcome is Outcome.READY
    prepared = reverify.prepare(VerifyRequest(folder, Clock.INSTRUCTIONS))
    assert isinstance(prepared.subject, SavedSystem) and len(prepared.subject.skipped) == 1


@pytest.mark.parametrize("ports", ["80", [80], [{"number": "x"}], [{}], {"number": 80}, [{"number": []}]])
def test_ports_of_an_older_systems_record_that_are_none(tmp_path: Path, ports: object) -> None:
    said = msgspec.json.decode((SAVED / "system" / RUN).read_bytes())
    said["image"]["exposed_ports"] = ports
    try:
        found = records.from_bytes(FitRun, msgspec.json.encode(said))
    except UserInputError as error:
        assert "is damaged" in error.message
    else:
        assert found.system_ports == () and found.image is None


@pytest.mark.attack
@pytest.mark.parametrize(("name", "other"), [("system", "container"), ("container", "system")])
def test_a_record_that_is_of_neither_kind_is_refused(tmp_path: Path, name: str, other: str) -> None:
    folder = saved(name, tmp_path)
    said = msgspec.json.decode((folder / "bundle.json").read_bytes())
    swapped = records.load(Bundle, SAVED / other / "bundle.json").image
    said |= {"schema": Bundle.SCHEMA, "image": msgspec.to_builtins(swapped)}
    (folder / "bundle.json").write_bytes(msgspec.json.encode(said))
    with pytest.raises(UserInputError, match="whether it is of an image or a system"):
        bundle_folder.load(folder)


def test_a_work_folder_is_read_whole(tmp_path: Path) -> None:
    folder = saved("work-folder", tmp_path)
    work = WorkFolder(folder)
    begun = work.work()
    made, sha256 = work.plan(begun)
    assert is_work_folder(folder) and work.exercise.ready.kind is ReadyKind.EXIT
    assert work.trace.kernel_release == begun.kernel.release and work.requests()
    assert made.kernel_version == begun.kernel.version
    assert Path(work.kernel(sha256).image).read_bytes() == b"vmlinux of a bundle\n"
