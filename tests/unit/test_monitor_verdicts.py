# SPDX-License-Identifier: Apache-2.0
"""The verdicts of other monitors in a bundle: what is kept, for which bundle it counts, who shows it, and what a
stranger may have written there."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.bundle_data import bundle, write_bundle
from tests.fakes.fit_run_data import fit_run
from tests.fakes.started import Start

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import AnswerNo, HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.base.terminal import TerminalConsole
from vmtailor.cli import verify as cli_verify
from vmtailor.drivers.host import bundle_folder, verdict_file
from vmtailor.drivers.host.bundle_folder import BundleFolder, seal
from vmtailor.drivers.monitors import lab_folder, monitor_proof
from vmtailor.drivers.monitors.lab_folder import Lab
from vmtailor.model.bundle import MONITORS, RECORD, RUN
from vmtailor.model.exercise import Proof
from vmtailor.model.machine import Accelerator, Clock
from vmtailor.model.monitor_verdicts import MonitorPlace, MonitorVerdict, MonitorVerdicts, merged
from vmtailor.model.trial import Trial, Verification
from vmtailor.pipeline import monitor_record, reverify
from vmtailor.pipeline.monitor_choice import MonitorChoice
from vmtailor.pipeline.reverify import SavedContainer, SavedSystem, VerifyRequest
from vmtailor.stages.report import fit_document, page, show

pytestmark = pytest.mark.usefixtures("own_cache")

IN_LAB = MonitorVerdict(
    monitor="libkrun", place=MonitorPlace.LAB, clock=Clock.INSTRUCTIONS, proof=Proof.LOAD, version="1.19.7",
    lab_kernel="6.12",
)  # fmt: skip
UNDER_KVM = MonitorVerdict("qemu", MonitorPlace.KVM, Clock.WALL, Proof.LOAD, "7.2")
EMULATED = replace(UNDER_KVM, place=MonitorPlace.EMULATED)
HERE = Lab(
    version="1",
    architecture="x86_64",
    kernel="6.12",
    monitors={"qemu": "7.2", "libkrun": "1.19.7"},
    digest="d",
    sizes={},
    made_from="m",
)
#: Bundles and work folders of earlier versions.
SAVED = Path(__file__).parents[1] / "data" / "saved"


def opened(folder: Path) -> BundleFolder:
    return bundle_folder.load(write_bundle(folder), Store(folder.parent / "cache"))


# --- the file


def test_verdicts_are_read_back_in_order_and_the_last_of_a_place_counts(tmp_path: Path) -> None:
    files = opened(tmp_path / "b")
    assert verdict_file.read(files) == ()
    failed = replace(IN_LAB, failures=("it is silent",), skipped=("curl",), version="1.0")
    assert verdict_file.keep(files, failed) == (failed,)
    assert verdict_file.keep(files, UNDER_KVM) == (UNDER_KVM, failed)
    assert verdict_file.keep(files, IN_LAB) == (UNDER_KVM, IN_LAB) == verdict_file.read(files)
    saved = records.load(MonitorVerdicts, files.path / MONITORS)
    assert (saved.kernel_sha256, saved.root_sha256) == (
        files.listed("vmlinux").sha256, files.listed("root.erofs").sha256,
    )  # fmt: skip
    assert saved.record_sha256 == hashlib.sha256((files.path / RECORD).read_bytes()).hexdigest()


def test_the_same_verdicts_are_the_same_bytes_whatever_their_order(tmp_path: Path) -> None:
    written = []
    for order in ((EMULATED, UNDER_KVM, IN_LAB), (IN_LAB, EMULATED, UNDER_KVM)):
        files = opened(tmp_path / "b")
        (files.path / MONITORS).unlink(missing_ok=True)
        for one in order:
            verdict_file.keep(files, one)
        written.append((files.path / MONITORS).read_bytes())
    assert written[0] == written[1]


def test_a_verdict_leaves_the_bundle_what_it_is(tmp_path: Path) -> None:
    files = opened(tmp_path / "b")
    before = {path: path.read_bytes() for path in files.path.rglob("*") if path.is_file()}
    verdict_file.keep(files, IN_LAB)
    after = {path: path.read_bytes() for path in files.path.rglob("*") if path.is_file()}
    assert after.pop(files.path / MONITORS) and after == before
    assert MONITORS not in {one.name for one in seal(files.path, bundle()).files}


@pytest.mark.attack
@pytest.mark.parametrize("name", ["vmlinux", "root.erofs", "exercise.json"])
def test_verdicts_cannot_be_carried_to_another_bundle(tmp_path: Path, name: str) -> None:
    files = opened(tmp_path / "b")
    verdict_file.keep(files, IN_LAB)
    data = (files.path / MONITORS).read_bytes()
    (files.path / name).write_bytes((files.path / name).read_bytes() + b" ")
    seal(files.path, bundle())
    assert verdict_file.read(bundle_folder.load(files.path)) == ()
    seal(files.path, bundle(words=("root=/dev/vda",)))  # the same files in another machine
    assert verdict_file.read(bundle_folder.load(files.path)) == ()
    (other := opened(tmp_path / "other")).path.joinpath(MONITORS).write_bytes(data)
    assert verdict_file.read(other) == (IN_LAB,)  # a copy of the same bundle
    assert verdict_file.keep(bundle_folder.load(files.path), UNDER_KVM) == (UNDER_KVM,)


def test_a_bundle_that_became_another_one_meanwhile_gets_no_verdict(tmp_path: Path) -> None:
    files = opened(tmp_path / "b")
    seal(files.path, bundle(memory_bytes=32 << 20))
    with pytest.raises(HostError, match="became another bundle while it was verified"):
        verdict_file.keep(files, IN_LAB)
    assert not (files.path / MONITORS).exists()


def test_a_damaged_file_is_replaced(tmp_path: Path) -> None:
    files = opened(tmp_path / "b")
    (files.path / MONITORS).write_text("{")
    with pytest.raises(UserInputError, match=r"monitors\.json is damaged"):
        verdict_file.read(files)
    assert verdict_file.keep(files, IN_LAB) == (IN_LAB,)


@pytest.mark.attack
def test_another_users_bundle_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = opened(tmp_path / "b")
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(HostError, match="belongs to another user"):
        verdict_file.keep(files, IN_LAB)


def test_a_bundle_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    files = opened(tmp_path / "b")
    monkeypatch.setattr(records, "save", read_only)
    with pytest.raises(HostError, match=r"monitors\.json cannot be written: read-only file system"):
        verdict_file.keep(files, IN_LAB)


def test_a_lock_that_another_process_keeps_is_waited_for_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = opened(tmp_path / "b")
    monkeypatch.setattr(verdict_file, "_LOCK_S", 0.1)
    with verdict_file._alone(files.path), pytest.raises(HostError, match="another process keeps"):
        verdict_file.keep(files, IN_LAB)
    assert verdict_file.keep(files, IN_LAB) == (IN_LAB,)


@pytest.mark.attack
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"monitor": "\x1b[31mqemu"}, "no name of a monitor"),
        ({"monitor": "q" * 33}, "no name of a monitor"),
        ({"monitor": ""}, "no name of a monitor"),
        ({"program_sha256": "x"}, "the digest of a program is none"),
        ({"lab_kernel": ""}, "whether it is of the lab"),
        ({"place": "kvm"}, "whether it is of the lab"),
        ({"place": "moon"}, "is damaged"),
        ({"version": "\x1b[31m7"}, "not plain"),
        ({"version": "7" * 101}, "longer than any"),
        ({"failures": ["x" * 401]}, "longer than any"),
        ({"failures": ["x"] * 21}, "longer than any"),
        ({"skipped": ["a\nb"]}, "not plain"),
    ],
)
def test_a_strangers_verdict_is_plain_and_short(
    tmp_path: Path, changed: dict[str, Any], says: str, start: Start
) -> None:
    files = opened(tmp_path / "b")
    verdict_file.keep(files, IN_LAB)
    document = json.loads((files.path / MONITORS).read_text())
    document["verdicts"][0] |= changed
    (files.path / MONITORS).write_text(json.dumps(document))
    with pytest.raises(UserInputError, match=says) as caught:
        verdict_file.read(files)
    assert "\x1b" not in caught.value.message
    for words in (("report", files.path), ("explain", files.path), ("gate", files.path, "kernel_bytes <= 1G")):
        code, out, err = start(*words)
        assert code == 2 and says in err and "\x1b" not in out + err


@pytest.mark.attack
def test_a_strangers_file_has_few_verdicts_and_one_of_each(tmp_path: Path) -> None:
    files = opened(tmp_path / "b")
    verdict_file.keep(files, IN_LAB)
    saved = records.load(MonitorVerdicts, files.path / MONITORS)
    many = tuple(replace(IN_LAB, monitor=f"m{number}") for number in range(65))
    for verdicts, says in ((many, "more than 64 verdicts"), ((IN_LAB, IN_LAB), "two verdicts in one place")):
        records.save(replace(saved, verdicts=verdicts), files.path / MONITORS)
        with pytest.raises(UserInputError, match=says):
            verdict_file.read(files)
    records.save(replace(saved, verdicts=many[:64]), files.path / MONITORS)
    assert len(verdict_file.keep(files, UNDER_KVM)) == 64
    assert len(verdict_file.read(files)) == 64
    (files.path / MONITORS).write_bytes(b" " * (verdict_file.MOST_BYTES + 1))
    with pytest.raises(UserInputError, match="larger than"):
        verdict_file.read(files)
    (files.path / MONITORS).unlink()
    (files.path / MONITORS).symlink_to(files.path / RUN)
    with pytest.raises(UserInputError, match="not a regular file"):
        verdict_file.read(files)
    run = (files.path / RUN).read_bytes()
    verdict_file.keep(files, IN_LAB)  # the link is replaced, and not followed
    assert not (files.path / MONITORS).is_symlink() and (files.path / RUN).read_bytes() == run


@given(st.text(max_size=600), st.lists(st.text(max_size=500), max_size=30))
def test_any_words_of_a_guest_are_kept_in_a_way_that_is_read(version: str, words: list[str]) -> None:
    made = verdict_file._bounded(replace(IN_LAB, version=version, failures=tuple(words), skipped=tuple(words)))
    verdict_file._require(made, Path("b"))
    assert records.from_bytes(MonitorVerdicts, records.to_bytes(MonitorVerdicts("r", "k", "f", (made,)))).verdicts == (
        made,
    )


# --- verify


@pytest.fixture
def verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Verification]:
    """Nothing is booted: the verdict of each verification. There is a lab."""
    found = [Verification(())]
    monkeypatch.setattr(SavedContainer, "verified", lambda *_: found[-1])
    monkeypatch.setattr(lab_folder, "load", lambda *_: (HERE, tmp_path))
    return found


def test_verify_keeps_what_it_found_with_its_monitor(
    tmp_path: Path, verdict: list[Verification], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_bundle(tmp_path / "b")
    cli_verify.verify(VerifyRequest(folder, Clock.INSTRUCTIONS))
    assert not (folder / MONITORS).exists()  # that is the fit's own monitor
    cli_verify.verify(VerifyRequest(folder, Clock.INSTRUCTIONS, on="libkrun", lab=True))
    out, err = capsys.readouterr()
    assert "libkrun under KVM in the lab\n" in err
    assert f"vmtailor report {folder}" in out
    verdict.append(Verification(("it is silent",)))
    with pytest.raises(AnswerNo):
        cli_verify.verify(VerifyRequest(folder, Clock.WALL, lab=True), json=True)
    assert "; it failed on QEMU under KVM in the lab\n" in capsys.readouterr().err
    libkrun, qemu = verdict_file.read(bundle_folder.load(folder))
    assert libkrun == replace(IN_LAB, proof=Proof.LOAD, skipped=libkrun.skipped) and len(libkrun.skipped) == 1
    assert (qemu.failures, qemu.clock, qemu.version) == (("it is silent",), Clock.WALL, "7.2")


@pytest.mark.parametrize("kept", [True, False])
def test_under_kvm_a_verdict_on_the_bundles_own_disk_is_kept_and_on_another_disk_none(
    tmp_path: Path, verdict: list[Verification], monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    monkeypatch.setattr(SavedSystem, "verified", lambda *_: verdict[-1])
    folder = tmp_path / "system"
    shutil.copytree(SAVED / "system", folder)
    asked = VerifyRequest(folder, Clock.WALL, accelerator=Accelerator.KVM)
    prepared = reverify.prepare(asked)
    if not kept:
        prepared = replace(prepared, request=replace(asked, disk=tmp_path / "newer.raw"))
    assert not reverify.verify_prepared(prepared).failures
    found = verdict_file.read(bundle_folder.load(folder))
    assert [(one.monitor, one.place) for one in found] == [("qemu", MonitorPlace.KVM)] * kept


def test_a_verdict_that_cannot_be_kept_counts_all_the_same(
    tmp_path: Path, verdict: list[Verification], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_bundle(tmp_path / "b")
    prepared = reverify.prepare(VerifyRequest(folder, Clock.INSTRUCTIONS, on="libkrun", lab=True))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert reverify.verify_prepared(prepared) is not None
    assert "the verdict is not kept in the bundle: " in capsys.readouterr().err
    assert not (folder / MONITORS).exists()


def test_the_program_of_a_user_is_named_by_its_digest(tmp_path: Path, verdict: list[Verification]) -> None:
    program = tmp_path / "firecracker"
    program.write_bytes(b"x")
    choice = MonitorChoice("lab/firecracker", Accelerator.TCG, Clock.WALL, {"firecracker": program})
    start = monitor_record.start_of(choice, "x86_64", choice.accelerator, choice.clock)
    assert start.program_sha256 == hashlib.sha256(b"x").hexdigest() and start.version("x86_64") == ""
    other = monitor_record.start_of(replace(choice, monitor="lab/qemu"), "x86_64", choice.accelerator, choice.clock)
    assert other.program_sha256 == "" and other.version("x86_64") == "7.2"


@pytest.mark.parametrize(
    ("accelerator", "place"), [(Accelerator.KVM, MonitorPlace.KVM), (Accelerator.TCG, MonitorPlace.EMULATED)]
)
def test_on_this_host_the_place_is_the_accelerators(accelerator: Accelerator, place: MonitorPlace) -> None:
    assert monitor_record.start_of(None, "x86_64", accelerator, Clock.WALL).place is place
    chosen = MonitorChoice("qemu", accelerator, Clock.WALL)
    assert monitor_record.start_of(chosen, "x86_64", accelerator, Clock.WALL).place is place


# --- what shows it


def test_the_fits_own_verdict_is_the_first() -> None:
    run = fit_run()
    (own,) = monitor_proof.verdicts_of(run)
    assert (own.monitor, own.place, own.passed, own.proof) == ("qemu", MonitorPlace.EMULATED, True, run.proof)
    assert monitor_proof.verdicts_of(run, (UNDER_KVM,)) == (own, UNDER_KVM)
    assert monitor_proof.verdicts_of(run, (EMULATED,)) == (EMULATED,)  # the later one counts
    failed = replace(run, verified=False, trials=())
    assert monitor_proof.verdicts_of(failed)[0].failures == ("not verified",)
    last = replace(run.trials[-1], passed=False, failures=("no answer",))
    assert isinstance(last, Trial)
    assert monitor_proof.verdicts_of(replace(failed, trials=(last,)))[0].failures == ("no answer",)


def test_the_proof_is_a_sentence() -> None:
    bad = replace(UNDER_KVM, monitor="later-one", failures=("no answer",))
    assert monitor_proof.line((EMULATED, IN_LAB)) == (
        "the same exercise passed on 2 monitors: QEMU (emulated), libkrun under KVM in the lab"
    )
    assert monitor_proof.line((EMULATED, bad)).endswith("1 monitor: QEMU (emulated); it failed on later-one under KVM")
    assert monitor_proof.line((bad,)) == "the exercise failed on later-one under KVM"


def test_a_row_says_which_program_it_was_and_what_was_left_out() -> None:
    own = replace(IN_LAB, version="", program_sha256="ab" * 32, skipped=("curl",))
    bad = replace(UNDER_KVM, failures=("no answer", "late"))
    first, second = monitor_proof.rows((own, bad))
    assert first.version == "your program abababababab, Linux 6.12"
    assert first.result == "verified with load; without 1 program of the host" and first.passed
    assert (second.version, second.clock, second.result, second.passed) == ("7.2", "wall", "no answer; late", False)


def test_the_document_has_a_row_for_each_monitor() -> None:
    own, lab = fit_document(fit_run(), (IN_LAB,))["monitors"]
    assert (own["monitor"], own["place"], own["passed"]) == ("qemu", "emulated", True)
    assert lab == {
        "monitor": "libkrun", "place": "lab", "passed": True, "proof": "exercised with load", "clock": "instructions",
        "version": "1.19.7", "program_sha256": "", "lab_kernel": "6.12", "failures": [], "skipped": [],
    }  # fmt: skip


def test_the_page_and_the_tables_show_monitors_once_there_are_some() -> None:
    assert 'id="monitors"' not in page(fit_run())
    hostile = replace(IN_LAB, failures=("<script>alert(1)</script>",))
    text = page(fit_run(), (), (UNDER_KVM, hostile))
    section = text[text.index('id="monitors"') :]
    assert "The same exercise passed on 2 monitors: QEMU (emulated), QEMU under KVM; it failed on libkrun" in section
    assert "<script>alert(1)" not in text
    out = io.StringIO()
    show(fit_run(), TerminalConsole(file=out, width=160), verbose=True, later=(IN_LAB,))
    assert "The same exercise on other monitors" in out.getvalue() and "1.19.7, Linux 6.12" in out.getvalue()


def test_report_explain_and_gate_know_the_monitors(tmp_path: Path, start: Start) -> None:
    files = opened(tmp_path / "b")
    kept = "kernel_bytes <= 1G"
    assert start("gate", files.path, "monitors_passed == 1", "monitors_failed <= 0")[0] == 0
    assert start("gate", files.path, "passed_on_libkrun >= 1")[0] == 1  # nobody has tried it
    verdict_file.keep(files, IN_LAB)
    verdict_file.keep(files, replace(UNDER_KVM, monitor="cloud-hypervisor", failures=("no answer",)))
    line = "the same exercise passed on 2 monitors: QEMU (emulated), libkrun under KVM in the lab"
    code, out, err = start("gate", files.path, "monitors_passed >= 2", "passed_on_libkrun >= 1")
    assert code == 0 and f"monitors: {line}; it failed on Cloud Hypervisor under KVM" in out, err
    assert start("gate", files.path, "passed_on_cloud_hypervisor >= 1")[0] == 1
    assert start("gate", files.path, kept, "monitors_failed <= 0")[0] == 1
    assert start("gate", files.path, kept)[0] == 0
    assert line in start("explain", files.path)[1].replace("\n", " ")
    code, out, _ = start("report", files.path, "--json")
    assert code == 0 and [one["passed"] for one in json.loads(out)["monitors"]] == [True, False, True]
    assert start("report", files.path)[0] == 0
    assert 'id="monitors"' in (files.path / "report.html").read_text()


def test_a_record_of_a_fit_without_its_bundle_has_no_monitors(tmp_path: Path, start: Start) -> None:
    records.save(fit_run(), tmp_path / RUN)
    (tmp_path / MONITORS).write_text("{")
    assert start("report", tmp_path, "--json")[0] == 0 and start("explain", tmp_path)[0] == 0


def test_merging_keeps_one_of_each_place() -> None:
    later = replace(UNDER_KVM, version="9")
    assert merged((IN_LAB, UNDER_KVM), (later,)) == (later, IN_LAB)
