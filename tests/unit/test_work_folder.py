# SPDX-License-Identifier: Apache-2.0
"""A work folder: each stage reads what the one before wrote and nothing else, and believes no record blindly."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes import kernel_tree, work_data
from tests.fakes.bundle_data import EXERCISE, write_bundle
from tests.fakes.hostile_bundles import own_cache, verified
from tests.fakes.started import Start

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.kernel import kernel_source
from vmtailor.model.bundle import STAGE_FILES as FILES
from vmtailor.model.exercise import StepKind
from vmtailor.model.kernel import KernelFiles
from vmtailor.model.machine import Accelerator, Clock
from vmtailor.model.plan import Plan
from vmtailor.pipeline import reverify, work_stages
from vmtailor.pipeline.image_subject import ImageSeen, ImageSubject
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.reverify import VerifyRequest
from vmtailor.pipeline.subject import Findings, WorkFiles
from vmtailor.pipeline.work_files import WorkFolder, is_work_folder
from vmtailor.stages import build as build_stage
from vmtailor.stages.verify import Target

__all__ = ["own_cache", "verified"]


@dataclass
class Begun:
    """A work folder that holds a trace, and what a fit would know."""

    path: Path
    asked: FitOptions
    inputs: ImageSubject
    findings: Findings[ImageSeen]
    files: WorkFiles
    built: list[Plan]


@pytest.fixture
def begun(tmp_path: Path, own_cache: Store, monkeypatch: pytest.MonkeyPatch) -> Begun:
    work_data.play(monkeypatch, tmp_path)
    inputs = work_data.inputs(tmp_path, own_cache)
    record = work_data.traced(tmp_path / "traced")
    built: list[Plan] = []

    def build(made: Plan, *given: object, sources: object, **explained: object) -> KernelFiles:
        assert given == (inputs.source.path, inputs.source.digest, own_cache)
        assert explained == {"explain": {}} and sources
        built.append(made)
        return work_data.kernel_files(tmp_path / "built")

    monkeypatch.setattr(build_stage, "build_kernel", build)
    files = inputs.files_of(record, tmp_path / "traced")
    WorkFolder(tmp_path / "work", own_cache).save_trace(inputs, files)
    findings = inputs.known(record, tmp_path / "traced")
    asked = FitOptions("", Path(), store=own_cache)
    return Begun(tmp_path / "work", asked, inputs, findings, files, built)


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def edit(path: Path, change: Callable[[Any], None]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def request(begun: Begun, **other: Any) -> VerifyRequest:
    return VerifyRequest(begun.path, Clock.INSTRUCTIONS, **other)


def test_the_plan_of_a_trace_is_the_very_plan_of_a_fit(begun: Begun) -> None:
    assert names(begun.path) == set(FILES["trace"]) and is_work_folder(begun.path)
    shutil.rmtree(begun.path.parent / "traced")
    wanted = begun.findings.planned()
    assert wanted.symbol("EPOLL") and wanted.symbol("IPV6") and wanted.network
    assert work_stages.plan(begun.path, begun.asked) == wanted
    assert records.load(Plan, begun.path / "plan.json") == wanted
    assert names(begun.path) == {*FILES["trace"], "plan.json"}
    kept = work_stages.plan(begun.path, replace(begun.asked, keep=("UNIX",)))
    assert kept.symbol("UNIX") and not wanted.symbol("UNIX")


def test_a_kernel_is_built_of_the_plan_and_needs_no_trace(begun: Begun) -> None:
    made = work_stages.plan(begun.path, begun.asked)
    for name in FILES["trace"][1:]:
        (begun.path / name).unlink()
    files, differing = work_stages.build(begun.path, begun.asked)
    assert begun.built == [made] and differing == ()
    assert files.image == str(begun.path / "vmlinux") and (begun.path / "vmlinux").read_text() == "vmlinux"
    assert names(begun.path) == {"work.json", "plan.json", *FILES["build"]}


def test_a_plan_edited_by_hand_is_built_as_it_says(begun: Begun) -> None:
    made = work_stages.plan(begun.path, begun.asked)
    edit(begun.path / "plan.json", lambda document: document["fragment"].remove(["EPOLL", "y"]))
    _, differing = work_stages.build(begun.path, begun.asked)
    assert differing == ("EPOLL",)
    assert set(made.fragment) - set(begun.built[0].fragment) == {("EPOLL", "y")}
    assert begun.built[0].total_y == made.total_y - 1 and begun.built[0].prompted_y == made.prompted_y - 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda plan: plan["fragment"].append(["NO_SUCH", "y"]), "has no such symbol"),
        (lambda plan: plan["fragment"].append(["EPOLL", "y"]), "set twice"),
        (lambda plan: plan.update(fragment=[["EPOLL", "$(shell x)"]]), "no value that it can have"),
        (lambda plan: plan.update(fragment={"EPOLL": "y"}), "damaged"),
        (lambda plan: plan.update(schema="vmtailor/plan/1"), "has schema 'vmtailor/plan/1'"),
        (lambda plan: plan.update(machine="q35"), "is for another machine"),
        (lambda plan: plan.update(kernel_version="6.1.1"), "is for another machine"),
        (lambda plan: _word(plan).update(id="a b"), "no word of a kernel command line"),
    ],
)
@pytest.mark.attack
def test_a_plan_is_read_strictly(begun: Begun, change: Callable[[Any], None], words: str) -> None:
    work_stages.plan(begun.path, begun.asked)
    edit(begun.path / "plan.json", change)
    with pytest.raises(UserInputError, match=words.replace("$", "\\$")):
        work_stages.build(begun.path, begun.asked)
    assert begun.built == [] and not (begun.path / "vmlinux").exists()


def _word(plan: Any) -> Any:
    """A word of the command line."""
    return next(change for change in plan["changes"] if change["settings"][0]["kind"] == "command-line")


def test_what_is_verified_is_trace_plan_and_kernel(begun: Begun, verified: list[Target]) -> None:
    made = work_stages.plan(begun.path, begun.asked)
    work_stages.build(begun.path, begun.asked)
    (begun.path / "trace" / "coverage.counts").unlink()
    found = reverify.verify_prepared(reverify.prepare(request(begun)))
    assert found.passed and records.load(type(found), begun.path / "verification.json") == found
    machine = verified[0].machine
    assert machine.kernel and Path(machine.kernel).read_text() == "vmlinux"
    assert "quiet" in machine.words
    assert machine.clock is Clock.INSTRUCTIONS and verified[0].network is made.network
    assert (machine.board, machine.memory_bytes, machine.cpus, machine.cpu_model) == ("microvm", 64 << 20, 1, "max")
    assert verified[0].image == begun.inputs.image.config
    for accelerator, model in ((Accelerator.TCG, "max"), (Accelerator.KVM, "host")):
        reverify.verify_prepared(reverify.prepare(VerifyRequest(begun.path, Clock.WALL, accelerator)))
        machine = verified[-1].machine
        assert (machine.clock, machine.accelerator, machine.cpu_model) == (Clock.WALL, accelerator, model)


@pytest.mark.attack
def test_programs_of_the_host_that_a_folder_names_are_not_run(begun: Begun, verified: list[Target]) -> None:
    work_stages.plan(begun.path, begun.asked)
    work_stages.build(begun.path, begun.asked)
    prepared = reverify.prepare(request(begun))
    assert prepared.subject.runs == () and len(prepared.subject.skipped) == 1
    found = reverify.verify_prepared(prepared)
    assert all(step.kind is not StepKind.HOST_COMMAND for step in verified[0].exercise.load)
    assert found.skipped == prepared.subject.skipped
    trusted = reverify.prepare(request(begun, trust_host_commands=True))
    assert len(trusted.subject.runs) == 1 and trusted.subject.exercise == EXERCISE


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("stage", "lacks", "writer"),
    [
        ("plan", "work.json", "trace"),
        ("plan", "exercise.json", "trace"),
        ("plan", "trace/trace.json", "trace"),
        ("plan", "trace/requests.strace", "trace"),
        ("build", "plan.json", "plan"),
        ("verify", "plan.json", "plan"),
        ("verify", "kernel.json", "build"),
        ("verify", "vmlinux", "build"),
        ("measure", "kernel.json", "build"),
    ],
)
def test_a_missing_record_is_told_with_the_stage_that_writes_it(
    begun: Begun, start: Start, stage: str, lacks: str, writer: str
) -> None:
    work_stages.plan(begun.path, begun.asked)
    work_stages.build(begun.path, begun.asked)
    (begun.path / lacks).unlink()
    code, _, said = start(stage, begun.path)
    assert code == 2 and f"{begun.path} has no {lacks}: vmtailor {writer} writes it" in " ".join(said.split())
    assert f"hint: vmtailor {writer} " in said


def test_what_the_trace_decided_is_no_option_of_later_stages(begun: Begun, start: Start) -> None:
    for words in (("plan", "--memory", "256M"), ("plan", "--cpus", "1"), ("build", "--keep", "UNIX")):
        code, _, said = start(words[0], begun.path, *words[1:])
        assert code == 2 and f"{words[1]} does not go with the work folder" in said, said
    assert start("plan", begun.path, "--keep", "UNIX")[0] == 0


def test_a_stage_that_runs_again_takes_away_what_was_made_of_the_one_before(
    begun: Begun, verified: list[Target]
) -> None:
    work_stages.plan(begun.path, begun.asked)
    work_stages.build(begun.path, begun.asked)
    (begun.path / "measured.json").write_text("")
    reverify.verify_prepared(reverify.prepare(request(begun)))
    assert {"measured.json", "verification.json"} < names(begun.path)  # nothing is made of a verification
    work_stages.build(begun.path, begun.asked)
    assert names(begun.path) == {*FILES["trace"], *FILES["plan"], *FILES["build"]} and len(verified) == 1
    work_stages.plan(begun.path, begun.asked)
    assert names(begun.path) == {*FILES["trace"], *FILES["plan"]}
    WorkFolder(begun.path).save_trace(begun.inputs, begun.files)
    assert names(begun.path) == set(FILES["trace"])


def test_a_kernel_of_another_plan_or_another_file_is_not_verified(begun: Begun) -> None:
    work_stages.plan(begun.path, begun.asked)
    work_stages.build(begun.path, begun.asked)
    plan = (begun.path / "plan.json").read_bytes()
    (begun.path / "plan.json").write_bytes(plan + b"\n")
    with pytest.raises(UserInputError, match="changed after vmlinux was built") as error:
        reverify.prepare(request(begun))
    assert error.value.hint == f"vmtailor build {begun.path}"
    (begun.path / "plan.json").write_bytes(plan)
    (begun.path / "vmlinux").write_text("another")
    with pytest.raises(UserInputError, match="is not the kernel"):
        reverify.prepare(request(begun))


@pytest.mark.attack
@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("work.json", lambda w: w["kernel"].update(vmlinuz="../../etc/passwd"), "none that the cache holds"),
        ("work.json", lambda w: w["kernel"].update(vmlinuz="/etc/passwd"), "none that the cache holds"),
        (
            "work.json",
            lambda w: w["kernel"].update(modules_dir=f"kernel-image/{'0' * 40}/modules"),
            "none that the cache holds",
        ),
        ("work.json", lambda w: w["kernel"].update(source_digest="../x"), "none that the cache holds"),
        ("work.json", lambda w: w["kernel"].update(source_digest="0" * 64), "source is no longer in the cache"),
        ("work.json", lambda w: w["image"].update(archive="/etc"), "image is none that the cache holds"),
        ("work.json", lambda w: w["image"].update(archive_sha256="00" * 32), "image oci:x is no longer in the cache"),
        ("work.json", lambda w: w.update(machine="microvm,accel=kvm"), "has no machine"),
        ("work.json", lambda w: w.update(cpu_model="max -device x"), "no CPU model"),
        ("work.json", lambda w: w.update(memory_bytes=1), "cannot have 1 bytes"),
        ("exercise.json", lambda e: e["load"][0].update(method="GET\r\nX"), "is no request"),
        ("trace/trace.json", lambda t: t.update(requests_file="../../etc/passwd"), "other names"),
        (
            "trace/trace.json",
            lambda t: t.update(modules_requested=[{"request": "x", "module": "x", "path": "a/../../x"}]),
            "has a name that none has",
        ),
    ],
)
def test_a_strangers_record_leads_nowhere(begun: Begun, name: str, change: Callable[[Any], None], words: str) -> None:
    edit(begun.path / name, change)
    with pytest.raises(UserInputError, match=words):
        work_stages.plan(begun.path, begun.asked)


@pytest.mark.attack
@pytest.mark.parametrize("name", FILES["trace"])
def test_only_regular_files_of_the_folder_are_read(begun: Begun, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    shutil.move(begun.path / name, outside)
    (begun.path / name).symlink_to(outside)
    with pytest.raises(UserInputError, match="is a symbolic link"):
        work_stages.plan(begun.path, begun.asked)
    (begun.path / name).unlink()
    os.mkfifo(begun.path / name)
    with pytest.raises(UserInputError, match="is a named pipe"):
        work_stages.plan(begun.path, begun.asked)


@pytest.mark.attack
def test_nothing_is_written_through_links(begun: Begun, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("mine")
    work_stages.plan(begun.path, begun.asked)
    for name in ("vmlinux", "vmlinux.new", "config", "kernel.json"):
        (begun.path / name).symlink_to(mine)
    work_stages.build(begun.path, begun.asked)
    assert mine.read_text() == "mine" and not (begun.path / "vmlinux").is_symlink()
    shutil.move(begun.path / "trace", tmp_path / "elsewhere")
    (begun.path / "trace").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserInputError, match="is a symbolic link"):
        WorkFolder(begun.path).save_trace(begun.inputs, begun.files)


def test_a_folder_with_something_else_is_left_alone(begun: Begun, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "letter").write_text("mine")
    with pytest.raises(UserInputError, match="is not a work folder"):
        WorkFolder(other).save_trace(begun.inputs, begun.files)
    assert names(other) == {"letter"} and not is_work_folder(other) and not is_work_folder(tmp_path / "nowhere")


def test_a_bundle_whose_init_counts_otherwise_is_not_measured(begun: Begun, start: Start, tmp_path: Path) -> None:
    code, _, said = start("measure", write_bundle(tmp_path / "bundle"))
    assert code == 2 and "is of another version, and counts otherwise" in " ".join(said.split())


def test_of_a_work_folder_trace_shows_what_was_seen(begun: Begun, start: Start) -> None:
    code, said, _ = start("trace", begun.path, "--json")
    assert code == 0 and {row["call"] for row in json.loads(said)["rows"]} == {"epoll_create1", "socket"}


def test_what_has_left_the_cache_is_named(begun: Begun) -> None:
    store, again = begun.asked.store, "trace again: vmtailor trace IMAGE -o FOLDER"
    work = WorkFolder(begun.path, store)
    release = begun.inputs.kernel.release
    for kind, what, hint in (
        ("kernel-debug", f"the baseline's kernel {release}", again), ("image", "the image oci:x", again),
        ("kernel-source", "the kernel's source", "give it again with --source, or trace again"),
    ):  # fmt: skip
        folder = store.root / kind
        folder.rename(store.root / "away")
        with pytest.raises(UserInputError) as error:
            work_stages.inputs_of(work, begun.asked)
        assert (error.value.message, error.value.hint) == (f"{what} is no longer in the cache", hint)
        (store.root / "away").rename(folder)
    inputs = work_stages.inputs_of(work, replace(begun.asked, cpus=64, memory_bytes=1))
    wanted = begun.inputs.options
    assert (inputs.options.cpus, inputs.options.memory_bytes) == (wanted.cpus, wanted.memory_bytes)
    assert (inputs.options.reference, inputs.options.architecture) == ("oci:x", "x86_64")
    assert inputs.kernel == begun.inputs.kernel and inputs.source == begun.inputs.source


def test_another_source_than_the_traced_one_is_refused(begun: Begun, tmp_path: Path) -> None:
    (begun.asked.store.root / "kernel-source").rename(tmp_path / "away")
    other = tmp_path / "other"
    shutil.copytree(kernel_tree.SOURCE, other)
    (other / "new").write_text("x")
    with pytest.raises(UserInputError) as error:
        work_stages.inputs_of(WorkFolder(begun.path, begun.asked.store), replace(begun.asked, source=str(other)))
    assert error.value.message == f"{other} is not the source that was traced with"
    assert error.value.hint == "give that, or trace again"


def test_a_source_of_the_users_own_is_given_again(begun: Begun, tmp_path: Path) -> None:
    """A folder given with --source is not in the cache."""
    own = tmp_path / "own"
    shutil.copytree(begun.inputs.source.path, own)
    tree = kernel_source.provide(begun.asked.store, str(own))
    inputs = replace(begun.inputs, source=tree)
    WorkFolder(begun.path, begun.asked.store).save_trace(
        inputs, inputs.files_of(begun.findings.seen.record, tmp_path / "traced")
    )
    with pytest.raises(UserInputError, match="no longer in the cache") as error:
        work_stages.plan(begun.path, begun.asked)
    assert "--source" in error.value.hint
    assert work_stages.plan(begun.path, replace(begun.asked, source=str(own))) == begun.findings.planned()
    (own / "Makefile").touch()
    (own / "Kbuild").write_text("other\n")
    with pytest.raises(UserInputError, match="is not the source that was traced with"):
        work_stages.plan(begun.path, replace(begun.asked, source=str(own)))
