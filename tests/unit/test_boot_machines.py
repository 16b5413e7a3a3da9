# SPDX-License-Identifier: Apache-2.0
"""`vmtailor boot` of a disk, a kernel or a bundle: the machine, the workload and the choices that its boots are given.
Nothing is booted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from tests.fakes.boot_data import series_boot
from tests.fakes.bundle_data import write_bundle

from vmtailor.analysis.cost import loops
from vmtailor.analysis.guests.machine_variants import USUAL
from vmtailor.base import natives
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import ExitCode, UserInputError
from vmtailor.booting import series_run
from vmtailor.booting.booter import boot as plain_boot
from vmtailor.booting.fitted_machine import Chosen
from vmtailor.booting.instruction_boots import Settled
from vmtailor.cli.boots import boot_bundle, boot_machine, boot_output, boot_requests
from vmtailor.drivers.guest import guest_programs
from vmtailor.model.architecture import of_host
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.series import BootSeries, JudgedBy, Variant
from vmtailor.model.boots.workload import Nothing, OwnInit, ReadyBy, ReadySignal
from vmtailor.model.machine import Accelerator, Clock, Disk, DiskMode, PublishedPort
from vmtailor.pipeline import boot_trials, bundle_boots
from vmtailor.pipeline.options import BootOptions
from vmtailor.pipeline.systems import exercise_boots, subjects, system_kernel, system_plan
from vmtailor.stages.boot import boot_attribution, profile

pytestmark = pytest.mark.usefixtures("own_cache")
LOGIN = ReadySignal(ReadyBy.LOGIN)
GOOD = BootSeries(
    "1", "vm", LOGIN, 9.0, (Variant("base", USUAL, "qemu"),), (series_boot("base", 1, Outcome.READY, (), 1.0),)
)


class Calls(list[tuple[tuple[Any, ...], dict[str, Any]]]):
    """What a function was given, each time that it was called."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self.answer = answer

    def __call__(self, *given: Any, **named: Any) -> Any:
        self.append((given, named))
        return self.answer


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for name in ("kernel", "initrd"):
        (tmp_path / name).write_text(name)
    (tmp_path / "disk.raw").write_bytes(b"\xeb" * 510 + b"\x55\xaa" + bytes(3584))
    return tmp_path


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What would have been shown of boots, or of the cost of one."""
    seen: list[Any] = []
    for module in (boot_machine, boot_bundle):
        monkeypatch.setattr(module, "show_series", lambda *given: seen.append(given))
        monkeypatch.setattr(module, "show_boot_cost", lambda *given: seen.append(given))
    yield seen
    assert seen


def test_a_disk_is_booted_by_its_own_loader(files: Path, shown: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    run = Calls(GOOD)
    monkeypatch.setattr(series_run, "run", run)
    boot_machine.boot_machine(BootOptions(Path("disk.raw"), times=3, timeout_s=9.0, out=files / "out"))
    (name, schedule, workload, out), named = run[0]
    assert (name, out) == ("disk.raw", files / "out") and workload == OwnInit(LOGIN, 9.0)
    assert [(one.name, number) for one, number in schedule] == [("base", 1), ("base", 2), ("base", 3)]
    assert named["booter"] is plain_boot and out.is_dir()
    disk = Disk(schedule[0][0].machine.disks[0].path, mode=DiskMode.OVERLAID)
    assert schedule[0][0].machine == replace(
        USUAL, board="q35", memory_bytes=2 << 30, cpus=1, disks=(disk,), cpu_model="max", accelerator=Accelerator.TCG,
        clock=Clock.WALL,
    )  # fmt: skip
    assert Path(disk.path).name == "disk.raw" and shown == [(GOOD, files / "out", False)]


@pytest.mark.usefixtures("shown")
def test_a_kernel_is_booted_as_it_was_asked_for(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Calls(GOOD)
    monkeypatch.setattr(series_run, "run", run)
    asked = BootOptions(
        kernel=Path("kernel"), initrd=Path("initrd"), append=("quiet",), disks=(Path("disk.raw"),), ready="tcp:22",
        also=("systemd",), marks=("up=^Up",), machine="microvm", memory_bytes=64 << 20, cpus=2, cpu_model="qemu64",
        qemu=("-x",), debug_initcalls=True, timeout_s=7.0,
    )  # fmt: skip
    boot_machine.boot_machine(asked)
    (name, schedule, workload, _), _ = run[0]
    machine = schedule[0][0].machine
    assert name == "kernel" and (machine.kernel, machine.initrd) == (str(files / "kernel"), str(files / "initrd"))
    assert machine.words[0] == "quiet" and set(profile.INITCALLS) < set(machine.words)
    assert (machine.board, machine.memory_bytes, machine.cpus, machine.cpu_model) == ("microvm", 64 << 20, 2, "qemu64")
    assert machine.extras == ("-x",) and [Path(one.path).name for one in machine.disks] == ["disk.raw"]
    assert machine.ports == (PublishedPort("127.0.0.1", 0, 22),)
    assert workload.ready.by is ReadyBy.TCP and workload.timeout_s == 7.0
    assert [one.by for one in workload.also] == [ReadyBy.SYSTEMD] and workload.marks == (("up", re.compile("^Up")),)


@pytest.mark.usefixtures("shown")
def test_the_instruction_clock_has_nothing_from_outside(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Calls(GOOD)
    monkeypatch.setattr(series_run, "run", run)
    boot_machine.boot_machine(BootOptions(kernel=Path("kernel"), clock=Clock.INSTRUCTIONS, out=files / "out"))
    (_, schedule, _, _), named = run[0]
    machine = schedule[0][0].machine
    assert machine.clock is Clock.INSTRUCTIONS and not machine.entropy and "nokaslr" in machine.words
    assert isinstance(named["booter"], Settled)


@pytest.mark.usefixtures("shown")
def test_a_sampled_boot_carries_the_collector(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Calls(GOOD)
    monkeypatch.setattr(series_run, "run", run)
    carried = Calls(replace(USUAL, kernel="/k", initrd="/with-collector"))
    monkeypatch.setattr(profile, "with_collector", carried)
    parts = SimpleNamespace(collector=Path("/collector"))
    monkeypatch.setattr(guest_programs, "of", lambda architecture: parts if architecture == "x86_64" else None)
    asked = BootOptions(kernel=Path("kernel"), initrd=Path("initrd"), sample=True, out=files / "out")
    boot_machine.boot_machine(asked)
    (_, schedule, workload, _), _ = run[0]
    assert workload == OwnInit(LOGIN, 300.0, collector=True) and schedule[0][0].machine.initrd == "/with-collector"
    assert carried[0][0][1:] == (Path("/collector"), files / "out")
    for wrong in (replace(asked, initrd=None), replace(asked, arch="riscv64"), replace(asked, ready="nothing:3")):
        with pytest.raises(UserInputError, match="--sample"):
            boot_machine.boot_machine(wrong)


def test_a_boots_cost_is_that_of_its_packages(files: Path, shown: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    of_package, attributed = Calls("known"), Calls("cost")
    monkeypatch.setattr(boot_attribution, "of_package", of_package)
    monkeypatch.setattr(boot_attribution, "attributed", attributed)
    monkeypatch.setattr(guest_programs, "of", lambda architecture: f"parts of {architecture}")
    asked = BootOptions(
        kernel=Path("kernel"), arch="arm64", attribute=True, timeout_s=4.0, out=files / "out", json=True
    )
    boot_machine.boot_machine(asked)
    (kernel, store, architecture), _ = of_package[0]
    assert (kernel, architecture) == (files / "kernel", "arm64") and isinstance(store, Store)
    (machine, known, out), named = attributed[0]
    assert (machine.kernel, machine.architecture, known, out) == (
        str(files / "kernel"),
        "arm64",
        "known",
        files / "out",
    )
    assert named == {"natives": "parts of arm64", "store": store, "timeout_s": 4.0}
    assert shown == [("cost", files / "out", True, "arm64")]


def test_trials_are_made_on_the_machine_that_is_booted(
    files: Path, shown: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_machine = Calls(GOOD)
    monkeypatch.setattr(boot_trials, "on_machine", on_machine)
    monkeypatch.setattr(boot_attribution, "of_package", lambda *given: ("known", given[2]))
    monkeypatch.setattr(guest_programs, "of", lambda architecture: f"parts of {architecture}")
    asked = BootOptions(kernel=Path("kernel"), changes=("one-cpu",), times=8, out=files / "out")
    boot_machine.boot_machine(asked)
    (name, machine, workload, wanted, out), named = on_machine[0]
    assert (name, machine.kernel, workload.ready, out) == ("kernel", str(files / "kernel"), LOGIN, files / "out")
    assert [one.change.id for one in wanted] == ["one-cpu"]
    assert (named["times"], named["natives"], named["judged_by"]) == (8, "parts of x86_64", JudgedBy.READY)
    assert named["known"] is None
    boot_machine.boot_machine(replace(asked, judged_by=JudgedBy.INSTRUCTIONS))
    assert on_machine[1][1]["known"] == ("known", "x86_64") and len(shown) == 2
    with pytest.raises(UserInputError, match="judging by instructions needs --kernel"):
        boot_machine.boot_machine(
            replace(asked, kernel=None, subject=Path("disk.raw"), judged_by=JudgedBy.INSTRUCTIONS)
        )
    with pytest.raises(UserInputError, match="need a moment to be ready at"):
        boot_machine.boot_machine(replace(asked, ready="nothing:5"))


def test_a_wait_without_a_signal() -> None:
    assert boot_machine.workload_of(BootOptions(ready="nothing:5")) == Nothing(5.0)
    for wrong in ({"also": ("systemd",)}, {"marks": ("a=b",)}, {"ready": "login", "also": ("nothing:5",)}):
        with pytest.raises(UserInputError, match="goes without --also and --mark"):
            boot_machine.workload_of(replace(BootOptions(ready="nothing:5"), **wrong))


def test_the_clock_of_instructions_is_for_one_emulated_processor(files: Path) -> None:
    asked = BootOptions(kernel=Path("kernel"), clock=Clock.INSTRUCTIONS)
    for wrong in (replace(asked, cpus=2), replace(asked, accelerator=Accelerator.KVM)):
        with pytest.raises(UserInputError, match="one CPU and TCG"):
            boot_machine.boot_machine(wrong)
    assert not (files / "build").exists()


def test_a_system_is_exercised_on_the_machine_that_was_asked_for(
    files: Path, shown: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exercised = Calls(SimpleNamespace(series=GOOD, notes=("it has no swap",)))
    monkeypatch.setattr(exercise_boots, "exercised", exercised)
    (files / "x.toml").write_text('[ready]\nkind = "unit"\nunit = "a.target"\n')
    asked = BootOptions(Path("disk.raw"), times=2, timeout_s=8.0, cpus=2, machine="microvm", out=files / "out")
    boot_machine.boot_system(asked, Path("x.toml"))
    (subject, exercise, machine_for, out), named = exercised[0]
    assert (subject, exercise.ready.unit, out) == ("disk.raw", "a.target", files / "out")
    assert (named["times"], named["timeout_s"]) == (2, 8.0)
    machine = machine_for(of_host())
    assert (machine.board, machine.cpus, machine.memory_bytes, machine.kernel) == ("microvm", 2, 2 << 30, None)
    assert "it has no swap" in capsys.readouterr().err and shown == [(GOOD, files / "out", False)]


# ---- bundles


def test_a_bundle_is_booted_as_it_was_asked_for(
    tmp_path: Path, shown: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_bundle(tmp_path / "made", architecture="arm64", machine="virt")
    monkeypatch.setattr(guest_programs, "of", lambda architecture: f"parts of {architecture}")
    boots, attribute, trials = Calls("series"), Calls("cost"), Calls("trials")
    monkeypatch.setattr(bundle_boots, "boots", boots)
    monkeypatch.setattr(bundle_boots, "attribute", attribute)
    monkeypatch.setattr(boot_trials, "on_bundle", trials)
    asked = BootOptions(
        folder, append=("debug",), times=4, timeout_s=6.0, clock=Clock.INSTRUCTIONS, memory_bytes=48 << 20,
        cpu_model="cortex-a57", debug_initcalls=True, out=tmp_path / "out",
    )  # fmt: skip
    boot_bundle.boot_bundle(asked, folder)
    (subject, times, out, _), _ = boots[0]
    assert subject.own == Chosen(
        "cortex-a57", Accelerator.TCG, Clock.INSTRUCTIONS, ("debug", *profile.INITCALLS), 48 << 20
    )
    assert (subject.natives, subject.workload.timeout_s, times) == ("parts of arm64", 6.0, 4)
    boot_bundle.boot_bundle(replace(asked, attribute=True, json=True), folder)
    assert attribute[0][0][1] == out == tmp_path / "out"
    boot_bundle.boot_bundle(replace(asked, changes=("NET=n",), judged_by=JudgedBy.CPU), folder)
    (tried, wanted, where), named = trials[0]
    assert tried.loaded.path == folder and [one.change.id for one in wanted] == ["NET=n"] and where == out
    assert (named["times"], named["judged_by"]) == (4, (JudgedBy.CPU,))
    assert shown == [("series", out, False), ("cost", out, True, "arm64"), ("trials", out, False)]


# ---- what is shown


def test_a_series_with_a_failed_boot_ends_with_5(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boot_output.show_series(GOOD, tmp_path, True)
    assert '"schema"' in capsys.readouterr().out
    failed = replace(GOOD, boots=(*GOOD.boots, series_boot("base", 2, Outcome.PANIC, (), 1.0)))
    with pytest.raises(typer.Exit) as error:
        boot_output.show_series(failed, tmp_path, False)
    assert error.value.exit_code == ExitCode.GUEST
    other = replace(GOOD, boots=(*GOOD.boots, series_boot("a change", 1, Outcome.PANIC, (), 1.0)))
    boot_output.show_series(other, tmp_path, True)


def test_the_cost_of_a_boot_is_shown_with_the_loops_of_its_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    show_cost = Calls(None)
    monkeypatch.setattr(boot_output, "show_cost", show_cost)
    cost: Any = object()
    boot_output.show_boot_cost(cost, Path("out"), False, "arm64")
    (given, out, _, table), _ = show_cost[0]
    assert (given, out, table) == (cost, Path("out"), loops.table("arm64"))
    assert loops.table("arm64") != loops.table("x86_64")


def test_progress_counts_the_boots_of_each_variant() -> None:
    told: list[Any] = []
    progress: Any = SimpleNamespace(update=lambda *given: told.append(given))
    boot_output.telling(progress, 5)("base", 2, 3.4)
    assert told == [(1, 5, "base 2: 3 s")]


# ---- a traced boot


def test_a_traced_boot_is_planned_where_it_got_ready(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = Calls(None)

    class Open:
        def __enter__(self) -> str:
            return "system"

        def __exit__(self, *_: object) -> None:
            return None

    def subject(*given: Any) -> Open:
        opened(*given)
        return Open()

    boot = SimpleNamespace(failures=())
    traced, planned, show_plan = Calls(SimpleNamespace(boot=boot)), Calls("plan"), Calls(None)
    monkeypatch.setattr(subjects, "opened", subject)
    monkeypatch.setattr(system_kernel, "traced", traced)
    monkeypatch.setattr(system_plan, "planned", planned)
    monkeypatch.setattr(boot_requests, "show", Calls(None))
    monkeypatch.setattr(boot_requests, "show_plan", show_plan)
    monkeypatch.setattr(natives, "locate", lambda: "natives")
    asked = BootOptions(Path("disk.raw"), ready="systemd", requests=Path("trace"), cpus=2)
    boot_requests.boot_requests(asked, Path("trace"))
    assert opened[0][0][0] == "disk:disk.raw"
    (found, workload, folder, parts), named = traced[0]
    assert (found, folder, parts) == ("system", files / "trace", "natives") and workload.ready.by is ReadyBy.SYSTEMD
    assert named == {"memory_bytes": 2 << 30, "cpus": 2}
    (system, record, where, _, store), _ = planned[0]
    assert (system, record, where) == ("system", traced.answer, files / "trace") and isinstance(store, Store)
    assert show_plan[0][0][:3] == ("plan", traced.answer, files / "trace")
    boot.failures = ("never ready",)
    with pytest.raises(typer.Exit) as error:
        boot_requests.boot_requests(replace(asked, memory_bytes=1 << 30, cpus=None), Path("trace"))
    assert error.value.exit_code == ExitCode.GUEST and len(planned) == 1
    assert traced[1][1] == {"memory_bytes": 1 << 30, "cpus": 1} and show_plan[1][0][0] is None
    for wrong in (replace(asked, subject=None), replace(asked, ready="nothing:4")):
        with pytest.raises(UserInputError, match="--requests needs a"):
            boot_requests.boot_requests(wrong, Path("trace"))
    assert capsys.readouterr().out == ""
