# SPDX-License-Identifier: Apache-2.0
"""A second monitor (tests/fakes/toyvm: a program, its driver, its row of data) starts machines in every way
knows, without a word about it elsewhere."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grimp
import pytest
from tests.fakes.supervised import supervise

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.booting import boot_counter, series_run
from vmtailor.booting.booter import boot
from vmtailor.booting.run_orders import RunOrders
from vmtailor.booting.run_volume import with_run
from vmtailor.booting.system_console import attached
from vmtailor.drivers.host import host
from vmtailor.drivers.host.caught_signals import caught
from vmtailor.drivers.monitors import monitor, monitors
from vmtailor.drivers.monitors.monitor import Wants
from vmtailor.drivers.monitors.supervised_start import RUN_VOLUME
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.counters import CountingConfig
from vmtailor.model.boots.ending import Ending
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, OwnInit, ReadyBy, ReadySignal, Run
from vmtailor.model.checks import Need, State
from vmtailor.model.exercise import Exercise, Ready, ReadyKind
from vmtailor.model.machine import Accelerator, Clock, Devices, Disk, DiskFormat, DiskMode, Machine, PublishedPort
from vmtailor.pipeline import keys
from vmtailor.stages import verify

NAMES = ("cloud-hypervisor", "firecracker", "libkrun", "qemu", "toyvm")
TOY = Path(__file__).parent.parent / "fakes" / "toyvm"


@pytest.fixture(autouse=True)
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitors, "FOLDERS", [*monitors.FOLDERS, TOY])


def machine(folder: Path, what: str) -> Machine:
    for name in ("kernel", "root"):
        (folder / name).write_bytes(b"x" * 512)
    return Machine(
        board="microvm", memory_bytes=64 << 20, kernel=str(folder / "kernel"), words=("quiet", f"toy={what}"),
        disks=(Disk(str(folder / "root")),), clock=Clock.WALL, accelerator=Accelerator.KVM, cpu_model="host",
        monitor="toyvm",
    )  # fmt: skip


def test_the_monitors_are_those_with_a_row() -> None:
    assert monitors.names() == NAMES
    assert monitors.usual().name == "qemu" and tuple(one.name for one in monitors.every()) == NAMES
    with pytest.raises(UserInputError, match="no monitor 'bochs' is known") as caught:
        monitors.named("bochs")
    assert caught.value.hint == "known: cloud-hypervisor, firecracker, libkrun, qemu, toyvm"


def test_nothing_imports_the_folder_of_a_monitor() -> None:
    graph = grimp.build_graph("vmtailor", cache_dir=None)
    for driver in monitors.drivers():
        folder = driver.rpartition(".")[0]
        inside = {name for name in graph.modules if f"{name}.".startswith(f"{folder}.")}
        importers = {one for name in inside for one in graph.find_modules_that_directly_import(name)}
        assert not importers - inside
        assert inside or folder == "tests.fakes.toyvm"


def test_doctor_knows_the_programs_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    (tool,) = [tool for tool in host.tools() if tool.name == "Toy VM"]
    assert (tool.program, tool.package, tool.need) == ("toyvm", "toyvm", Need.OPTIONAL)
    assert host.check_tool(tool).state is State.MISSING
    monkeypatch.setenv("PATH", str(TOY), prepend=os.pathsep)
    assert host.check_tool(tool).found == str(TOY / "toyvm")


def test_a_system_is_watched_until_it_is_ready(tmp_path: Path) -> None:
    found, gathered = boot(machine(tmp_path, "login"), OwnInit(ReadySignal(ReadyBy.LOGIN), 20.0), tmp_path)
    assert found.outcome is Outcome.READY and [mark.name for mark in found.milestones][-1] == "ready"
    assert found.command.startswith(str(TOY / "toyvm")) and "toy=login" in found.command
    assert gathered.end.stderr == "toyvm: started" and b"toy: up" in gathered.console


def test_a_panic_is_a_result(tmp_path: Path) -> None:
    found, _ = boot(machine(tmp_path, "panic"), OwnInit(ReadySignal(ReadyBy.LOGIN), 20.0), tmp_path)
    assert found.outcome is Outcome.PANIC and "the kernel panicked" in found.problem


def test_a_container_runs_to_its_end(tmp_path: Path) -> None:
    work = Exercised(Run(exercise=Exercise("x", Ready(ReadyKind.EXIT)), key=FIXED_KEY), 20.0)
    found, gathered = boot(machine(tmp_path, "init"), work, tmp_path)
    assert found.container is not None and (found.container.exit_code, found.container.stdout) == (3, "out\n")
    assert gathered.end.ending is Ending.EXITED and gathered.counters is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kernel", "root"]  # nothing is left


def test_run_relays_a_container(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    toy = with_run(machine(tmp_path, "init"), RUN_VOLUME)
    orders = RunOrders(monitors.of(toy).supervised(toy), (), 15, 5.0, 20.0)
    assert supervise(orders, tmp_path / "end") == 3
    assert capfd.readouterr().out == "out\n" and not (tmp_path / "end").exists()


def test_a_monitor_that_runs_no_container_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="Firecracker does not run a container by itself"):
        monitors.named("firecracker").supervised(machine(tmp_path, "init"))


def test_the_console_of_a_system_is_attached(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with caught() as signals:
        finished = attached(machine(tmp_path, "panic"), signals, interactive=False)
    assert finished.end.ending is Ending.PANIC and finished.lost and "Kernel panic" in capfd.readouterr().out


def test_a_series_has_the_command_of_each_variant_s_monitor(tmp_path: Path) -> None:
    toy = machine(tmp_path, "login")
    other = replace(toy, monitor="qemu")
    commands = [series_run.variant("x", one).command for one in (toy, other)]
    assert "--config-file" in commands[0] and "qemu-system" in commands[1]


def test_all_that_cannot_be_had_is_named_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy = machine(tmp_path, "login")
    assert monitors.of(toy).refusals(toy) == ()
    asked = replace(
        toy, board="q35", kernel=None, initrd="/i", firmware="seabios", acpi=True, cpus=33, cpu_model="qemu64",
        disks=(Disk("/d", DiskFormat.QCOW2, DiskMode.OVERLAID),), network=True, outbound=True, entropy=True,
        ports=(PublishedPort("127.0.0.1", 53, 53, "udp"),), clock=Clock.INSTRUCTIONS, accelerator=Accelerator.TCG,
        extras=("-S",), devices=Devices.USUAL,
    )  # fmt: skip
    refused = monitors.of(asked).refusals(asked, Wants(probe=True))
    assert refused == (
        "q35, whose devices are on pci", "accelerator tcg", "clock of instructions", "33 CPUs", "CPU 'qemu64'",
        "disk in qcow2", "overlaid disk", "published udp port", "firmware that starts a disk's own loader",
        "choice of firmware", "initial RAM disk", "ACPI", "way out to the world", "source of entropy",
        "words of its own", "second serial port",
    )  # fmt: skip
    foreign = replace(toy, architecture="arm64", board="virt")
    assert monitors.of(foreign).refusals(foreign) == ("machines for arm64",)
    monkeypatch.setattr(type(monitors.of(toy)), "run", lambda *_: pytest.fail("it was started"))
    with pytest.raises(UserInputError, match="Toy VM cannot start this machine: it has no q35, whose devices"):
        boot(asked, OwnInit(ReadySignal(ReadyBy.LOGIN), 20.0), tmp_path)


def test_qemu_refuses_nothing_that_it_has(tmp_path: Path) -> None:
    usual = replace(machine(tmp_path, "x"), monitor="qemu", initrd="/i", acpi=True, extras=("-S",), outbound=True)
    assert monitors.of(usual).refusals(usual, Wants(probe=True)) == ()
    one_port = replace(usual, architecture="riscv64", board="virt")
    assert monitors.of(one_port).refusals(one_port, Wants(attendant=True)) == ("second serial port",)


def test_without_a_counter_nothing_is_counted(tmp_path: Path) -> None:
    toy = machine(tmp_path, "init")
    one = monitors.of(toy)
    assert not one.counts("x86_64") and boot_counter.settling(replace(toy, clock=Clock.INSTRUCTIONS)) is None
    with pytest.raises(HostError, match="Toy VM cannot count instructions"):
        one.counter(CountingConfig(), Any, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(HostError, match="Toy VM cannot count instructions"):
        one.require_counting("x86_64")
    with pytest.raises(UserInputError, match="Toy VM has no CPU 'qemu64'"):
        one.require_cpu("x86_64", "microvm", "qemu64")
    one.require_cpu("x86_64", "microvm", "host")


def test_each_monitor_remembers_for_itself_that_kvm_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr(monitor, "KVM_DEVICE", tmp_path)
    store = Store(tmp_path / "cache")
    assert monitors.named("toyvm").best_accelerator("x86_64", store) is Accelerator.KVM
    (kept,) = (tmp_path / "cache" / "kvm").iterdir()
    assert kept.name.startswith("toyvm-")


def test_results_depend_on_the_monitor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy, natives = machine(tmp_path, "init"), tmp_path / "native"
    natives.write_text("x")
    parts: Any = SimpleNamespace(init=natives, client=natives, load_client=natives, builtin=natives, stage1=natives)
    exercise = Exercise("x", Ready(ReadyKind.EXIT))
    before = keys.of_run(verify, toy, exercise, parts)
    assert keys.of_run(verify, replace(toy, cpus=2), exercise, parts) != before
    other = tmp_path / "other"
    other.write_text("another version")
    monkeypatch.setattr(type(monitors.of(toy)), "identity", lambda *_: (other,))
    assert keys.of_run(verify, toy, exercise, parts) != before
    assert os.access(TOY / "toyvm", os.X_OK)
