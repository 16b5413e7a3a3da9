# SPDX-License-Identifier: Apache-2.0
"""`run` with a QEMU that is none: a machine whose init never speaks, and one that breaks."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.fit_run_data import fit_run
from tests.fakes.supervised import run

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import GuestError, HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.booting.run_end import Finish, RunEnd
from vmtailor.booting.run_verdict import Memory, memory_of, verdict
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import BundleFolder, seal
from vmtailor.drivers.monitors import monitor, monitors
from vmtailor.drivers.monitors.monitor import KvmState, KvmVerdict
from vmtailor.drivers.qemu import qemu_command, qemu_program
from vmtailor.model.architecture import every
from vmtailor.model.bundle import Bundle
from vmtailor.model.guest import GuestReport
from vmtailor.model.image import ImageConfig
from vmtailor.model.machine import Accelerator, PublishedPort
from vmtailor.model.plan import RootFormat
from vmtailor.pipeline import machine_run as running
from vmtailor.pipeline.machine_run import RunOptions

FAKE = Path(__file__).parents[1] / "fakes" / "qemu-system"


@pytest.fixture(autouse=True)
def fake_qemu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(qemu_program.BINARY_VARIABLE, str(FAKE))


def options(folder: Path, what: str) -> RunOptions:
    for name in ("vmlinux", "root"):
        (folder / name).write_bytes(b"x" * 512)
    bundle = Bundle(
        name="x", image_reference="oci:x", image_digest="", image=ImageConfig("amd64", entrypoint=("/x",)),
        kernel="vmlinux", kernel_version="6.12", kernel_config="config", system_map="map", root="root",
        root_format=RootFormat.EROFS,
        machine="microvm", cpus=1, memory_bytes=64 << 20, network=False, words=(f"fake={what}",), sources=(),
    )  # fmt: skip
    seal(folder, bundle)
    return RunOptions(folder, accelerator=Accelerator.TCG)


@pytest.mark.lengthy
def test_an_init_that_never_speaks_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "START_S", 1.0)
    with pytest.raises(GuestError, match=r"not started within \d+ s") as caught:
        run(options(tmp_path, "hang"))
    assert "memory" in caught.value.hint and "fake=hang" in caught.value.details


@pytest.mark.parametrize(("what", "said"), [("panic", "panicked"), ("exit", "by itself"), ("crash", "status")])
def test_a_machine_that_ends_without_the_containers_status(tmp_path: Path, what: str, said: str) -> None:
    with pytest.raises(GuestError, match=said) as caught:
        run(options(tmp_path, what))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("command", "kernel", "more", "says"),
    [
        (("--", "x"), "", {"entrypoint": "/sbin/tini"}, True),
        (("/init", "x"), "", {"entrypoint": ""}, True),  # the command alone
        (("init",), "# CONFIG_PID_NS is not set\n", {"entrypoint": "busybox"}, True),
        (("--",), "CONFIG_PID_NS=y\n", {"entrypoint": "tini"}, False),
        (("--",), "", {"entrypoint": "tini", "pid": "host"}, False),
        (("--",), "", {"entrypoint": "tini", "init": True}, False),
        (("tini",), "", {}, False),  # an argument of the image's entry point
        ((), "", {}, False),
    ],
)
def test_an_init_that_cannot_be_pid_1_is_told_of(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    kernel: str,
    more: dict[str, Any],
    says: bool,
) -> None:
    for name, data in (("config", kernel.encode()), ("init", bundle_folder.PID_ONE)):
        (tmp_path / name).write_bytes(data)
    with pytest.raises(GuestError, match="by itself"):
        run(replace(options(tmp_path, "exit"), command=command, **more))
    assert ("must be PID 1, which this kernel cannot do" in capsys.readouterr().err) is says


def test_a_port_needs_a_network(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="no port can be published"):
        run(replace(options(tmp_path, "exit"), ports=(PublishedPort("127.0.0.1", 1, 1),)))


def test_a_bundle_that_lacks_a_file(tmp_path: Path) -> None:
    options(tmp_path, "exit")
    (tmp_path / "root").unlink()
    with pytest.raises(UserInputError, match="lacks its file root"):
        bundle_folder.load(tmp_path)


def measured(folder: Path, what: str, has_bytes: int) -> RunOptions:
    """A bundle whose least memory was measured as 27 MiB."""
    run = fit_run()
    records.save(replace(run, tailored=replace(run.tailored, min_memory_bytes=27 << 20)), folder / "run.json")
    return replace(options(folder, what), memory_bytes=has_bytes)


@pytest.mark.parametrize("what", ["exit", "panic", "abort"])
def test_a_machine_that_dies_of_too_little_memory_says_so(tmp_path: Path, what: str) -> None:
    with pytest.raises(GuestError, match=r"20 MiB of memory, .* least memory is measured as 27 MiB") as caught:
        run(measured(tmp_path, what, 20 << 20))
    assert "--memory 27M" in caught.value.hint
    assert caught.value.details == ""


def test_too_little_memory_is_not_waited_for_as_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "START_TOO_LITTLE_S", 0.5)
    with pytest.raises(GuestError, match="least memory is measured as 27 MiB"):
        run(measured(tmp_path, "hang", 20 << 20))


def test_memory_that_is_enough_is_not_blamed(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match="panicked"):
        run(measured(tmp_path, "panic", 27 << 20))


def test_a_kernel_that_ran_out_of_memory_says_so(tmp_path: Path) -> None:
    with pytest.raises(GuestError, match="64 MiB of memory were not enough") as caught:
        run(options(tmp_path, "oom"))
    assert "--memory" in caught.value.hint


@pytest.mark.parametrize("text", [None, "{", '{"schema": "vmtailor/other/1"}'])
def test_least_memory_that_is_not_on_record_is_not_known(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    assert memory_of(tmp_path, 1 << 20) == Memory(1 << 20, None)


def test_a_cache_that_cannot_be_written_does_not_stop_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file where the home should be: nobody can make a folder there, root included."""
    home = tmp_path / "home"
    home.write_text("")
    monkeypatch.setattr(monitor, "KVM_DEVICE", tmp_path / "home")
    asked = []

    def works() -> KvmVerdict:
        asked.append(1)
        return KvmVerdict(KvmState.WORKS, "")

    monkeypatch.setattr(monitors.usual(), "kvm", works)
    assert monitors.usual().best_accelerator("x86_64", Store(home)) is Accelerator.KVM
    assert monitors.usual().best_accelerator("x86_64", Store(home)) is Accelerator.KVM
    assert len(asked) == 2
    assert monitors.usual().best_accelerator("x86_64", Store(tmp_path / "cache")) is monitors.usual().best_accelerator(
        "x86_64", Store(tmp_path / "cache")
    )
    assert len(asked) == 3


def test_that_kvm_does_not_work_is_asked_again_and_that_it_does_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user joins the group; a host that was busy is so no more."""
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(monitor, "KVM_DEVICE", tmp_path)
    answers = [KvmState.FORBIDDEN, KvmState.HANGS, KvmState.WORKS]
    monkeypatch.setattr(monitors.usual(), "kvm", lambda: KvmVerdict(answers.pop(0)))
    found = [monitors.usual().best_accelerator("x86_64", Store(tmp_path / "cache")) for _ in range(5)]
    assert found == [Accelerator.TCG] * 2 + [Accelerator.KVM] * 3 and not answers


@pytest.mark.parametrize("machine", ["x86_64", "aarch64", "mips64", "pdp11"])
def test_a_host_accelerates_machines_of_its_own_processor_and_no_others(
    machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same on each host: KVM works, and its guests are of this processor; all others are emulated."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    device = tmp_path / "kvm"
    device.touch()
    monkeypatch.setattr(monitor, "KVM_DEVICE", device)
    monkeypatch.setattr(monitors.usual(), "kvm", lambda: KvmVerdict(KvmState.WORKS))
    options(tmp_path, "exit")
    bundle = bundle_folder.load(tmp_path).bundle
    own = {"x86_64": "x86_64", "aarch64": "arm64", "mips64": "mips64el", "pdp11": ""}[machine]
    for row in every():
        chosen = monitors.usual().best_accelerator(row.name, Store(tmp_path / "cache"))
        assert chosen is (Accelerator.KVM if row.name == own else Accelerator.TCG), row.name
        foreign = replace(bundle, architecture=row.name, machine=row.board_names[0])
        argv = qemu_command.command(machine_of(BundleFolder(tmp_path, foreign, Store()), Chosen(accelerator=chosen)))
        assert argv[0] == row.emulator.program
        assert argv[argv.index("-accel") + 1].partition(",")[0] == str(chosen)
        model = argv[argv.index("-cpu") + 1]
        assert model == ("host" if row.name == own else row.emulator.cpu_model), row.name
    monkeypatch.setattr(monitors.usual(), "kvm", lambda: KvmVerdict(KvmState.HANGS))
    other = Store(tmp_path / "other")
    assert {monitors.usual().best_accelerator(row.name, other) for row in every()} == {Accelerator.TCG}


def test_a_full_folder_for_temporary_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = options(tmp_path, "exit")
    monkeypatch.setenv("TMPDIR", str(tmp_path))

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(HostError) as caught:
        run(given)
    assert str(tmp_path) in caught.value.message and "KiB are free" in caught.value.message
    assert "TMPDIR" in caught.value.hint


def test_more_processors_than_the_bundle_was_fitted_to(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="fitted to 1 CPU") as caught:
        run(replace(options(tmp_path, "exit"), cpus=2))
    assert "--cpus 2" in caught.value.hint


@pytest.mark.parametrize("finish", [Finish.HALTED, Finish.FAREWELL])
@pytest.mark.parametrize(
    ("listening", "memory", "console", "said", "hint"),
    [
        (False, Memory(12 << 20, 27 << 20), "", "12 MiB of memory, .* measured as 27 MiB", "--memory 27M"),
        (False, Memory(64 << 20, None), "System is deadlocked on memory", "64 MiB of memory were not", "--memory"),
        (False, Memory(64 << 20, None), "", "halted before the machine's init started", "fit the image again"),
        (True, Memory(12 << 20, 27 << 20), "", "the container ended the machine", "poweroff"),
        (True, Memory(64 << 20, None), "", "the container ended the machine", "poweroff"),
    ],
)
def test_only_a_container_that_runs_can_have_ended_the_machine(
    finish: Finish, listening: bool, memory: Memory, console: str, said: str, hint: str
) -> None:
    farewell = "reboot: System halted" if finish is Finish.FAREWELL else ""
    report = GuestReport(console=console)
    ended = RunEnd(finish, report, heard=True, listening=listening, farewell=farewell, elapsed_s=1.0)
    error = verdict(ended, "qemu", memory).error
    assert isinstance(error, GuestError) and re.search(said, error.message) and hint in error.hint
