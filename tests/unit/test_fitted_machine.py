# SPDX-License-Identifier: Apache-2.0
"""The machine of a bundle, field by field, and what `run` refuses by the kind of bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.fakes.bundle_data import trace_record, write_bundle

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.booting.fitted_machine import Chosen, machine_of, stamped
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.model.bundle import SYSTEM
from vmtailor.model.machine import Accelerator, Clock, Disk, DiskFormat, DiskMode, Machine, PublishedPort
from vmtailor.model.option import OptionSubject, rows_of
from vmtailor.pipeline import machine_run, reverify, run_mounts, run_network
from vmtailor.pipeline.machine_run import RunOptions, require_meant
from vmtailor.pipeline.reverify import VerifyRequest
from vmtailor.stages.verify import Target


def opened(folder: Path, **other: Any) -> BundleFolder:
    return bundle_folder.load(write_bundle(folder, **other), Store(folder / "cache"))


def test_the_machine_is_what_the_record_says_in_every_field(tmp_path: Path) -> None:
    for network in (True, False):
        folder = tmp_path / str(network)
        made = opened(folder, network=network, cpus=2, memory_bytes=96 << 20, architecture="arm64", machine="virt")
        assert machine_of(made, Chosen()) == Machine(
            board="virt",
            memory_bytes=96 << 20,
            kernel=str(folder / "vmlinux"),
            words=("root=/dev/vda", "quiet"),
            disks=(Disk(str(folder / "root.erofs")),),
            network=network,
            cpus=2,
            cpu_model="max,pauth-impdef=on",
            architecture="arm64",
            accelerator=Accelerator.TCG,
            clock=Clock.WALL,
        )


@pytest.mark.parametrize(
    ("field", "chosen", "value"),
    [
        ("cpu_model", Chosen(cpu_model="qemu64"), "qemu64"),
        ("cpu_model", Chosen(accelerator=Accelerator.KVM), "host"),
        ("cpu_model", Chosen(cpu_model="EPYC", accelerator=Accelerator.KVM), "EPYC"),
        ("accelerator", Chosen(accelerator=Accelerator.KVM), Accelerator.KVM),
        ("clock", Chosen(clock=Clock.INSTRUCTIONS), Clock.INSTRUCTIONS),
        ("words", Chosen(append=("debug",)), ("root=/dev/vda", "quiet", "debug")),
        ("memory_bytes", Chosen(memory_bytes=20 << 20), 20 << 20),
    ],
)
def test_what_the_user_chose_goes_before_it(tmp_path: Path, field: str, chosen: Chosen, value: object) -> None:
    assert getattr(machine_of(opened(tmp_path), chosen), field) == value


def test_the_wall_clock_has_time_stamps_where_they_are_asked_for() -> None:
    assert stamped(Chosen()).append == ("printk.time=1",)
    assert stamped(Chosen(append=("printk.time=0",))).append == ("printk.time=0",)
    assert stamped(Chosen(clock=Clock.INSTRUCTIONS)).append == ()


@pytest.mark.parametrize("form", DiskFormat)
def test_what_a_system_writes_to_its_disk_is_thrown_away(tmp_path: Path, form: DiskFormat) -> None:
    write_bundle(tmp_path)
    (tmp_path / SYSTEM).write_text("{}")
    (tmp_path / f"disk.{form}").write_text("disk")
    made = opened(tmp_path, root=f"disk.{form}", image=None)
    assert made.is_system and machine_of(made, Chosen()).disks == (
        Disk(str(tmp_path / f"disk.{form}"), form, DiskMode.OVERLAID),
    )


@pytest.mark.parametrize(
    ("name", "taking"),
    [
        (row.name, taking)
        for _, row in rows_of(RunOptions)
        for taking in (OptionSubject.CONTAINER, OptionSubject.SYSTEM)
        if row.subjects == {taking}
    ],
)
def test_an_option_of_the_other_kind_is_refused_by_its_name(
    tmp_path: Path, name: str, taking: OptionSubject, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What mounts and addresses need besides is not asked here.
    monkeypatch.setattr(run_mounts, "require_meant", lambda *_: None)
    monkeypatch.setattr(run_network, "require_six", lambda *_: None)
    container, folder = opened(tmp_path / "container"), tmp_path / "system"
    write_bundle(folder)
    (folder / SYSTEM).write_text("{}")
    system = opened(folder, image=None)
    ((field, row),) = ((one.name, row) for one, row in rows_of(RunOptions) if row.name == name)
    asked: dict[str, Any] = {field: (True,) if row.many else True}
    options = RunOptions(folder, **asked)
    takes, refuses = (container, system) if taking is OptionSubject.CONTAINER else (system, container)
    require_meant(options, takes)
    with pytest.raises(UserInputError, match=f"^{name} does not go with "):
        require_meant(options, refuses)


def test_what_a_machine_does_not_have_is_refused(tmp_path: Path) -> None:
    alone = opened(tmp_path, network=False)
    with pytest.raises(UserInputError, match="no network device"):
        require_meant(RunOptions(tmp_path, ports=(PublishedPort("127.0.0.1", 1, 1),)), alone)
    with pytest.raises(UserInputError, match="fitted to 1 CPU") as error:
        require_meant(RunOptions(tmp_path, cpus=2), alone)
    assert error.value.hint == "fit the image with --cpus 2"
    require_meant(RunOptions(tmp_path, cpus=1), alone)
    assert machine_run.STOP_S == 10.0  # as container engines wait


@pytest.mark.usefixtures("own_cache")
def test_a_container_is_verified_in_the_machine_that_was_traced(tmp_path: Path, verified: list[Target]) -> None:
    folder = write_bundle(tmp_path, trace=trace_record(cpu_model="qemu64"), network=True)
    for clock, model in ((Clock.INSTRUCTIONS, "qemu64"), (Clock.WALL, "max")):
        asked = VerifyRequest(folder, clock, None if clock is Clock.INSTRUCTIONS else Accelerator.TCG)
        reverify.verify_prepared(reverify.prepare(asked))
        machine = verified[-1].machine
        # Published ports are tried in a boot of their own: the trace was made without a network device.
        assert (machine.cpu_model, machine.clock, machine.network) == (model, clock, False) and verified[-1].network
