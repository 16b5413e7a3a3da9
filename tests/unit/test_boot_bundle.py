# SPDX-License-Identifier: Apache-2.0
"""A bundle as a machine to boot, and a series as a person and a program see it."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.boot_data import series_boot

from vmtailor.analysis.guests.machine_variants import USUAL
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import records
from vmtailor.base.natives import Natives
from vmtailor.base.terminal import TerminalConsole
from vmtailor.booting import series_run
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.booting.lab_booter import LabBooter
from vmtailor.cli.boots.boot_bundle import boot_bundle
from vmtailor.cli.tables.series_table import document, show
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import seal
from vmtailor.drivers.monitors import lab_folder
from vmtailor.drivers.monitors.lab_folder import Lab
from vmtailor.model.boots.boot import Milestone, Outcome
from vmtailor.model.boots.series import BootSeries, JudgedBy, SeriesBoot, Variant
from vmtailor.model.boots.workload import ReadyBy, ReadySignal
from vmtailor.model.bundle import Bundle
from vmtailor.model.change import Change, ChangeKind, Effect, Figure, Setting, Verdict, exact
from vmtailor.model.exercise import Exercise, Ready, ReadyKind
from vmtailor.model.image import ImageConfig
from vmtailor.model.machine import Accelerator, Clock, DiskMode
from vmtailor.model.plan import RootFormat
from vmtailor.pipeline import bundle_boots
from vmtailor.pipeline.options import BootOptions


def write_bundle(folder: Path, config: str = "", *, network: bool = False) -> None:
    made = Bundle(
        "hello", "oci:x", "sha256:0", ImageConfig("amd64"), "vmlinux", "6.12", "config", "System.map", "root.erofs",
        RootFormat.EROFS, "microvm", 1, 64 << 20, network, ("root=/dev/vda", "quiet"), (),
    )  # fmt: skip
    records.save(Exercise("x", Ready(ReadyKind.EXIT)), folder / "exercise.json")
    contents = {"vmlinux": "x", "System.map": "", "root.erofs": "x", "config": config}
    for name, text in contents.items():
        (folder / name).write_text(text)
    seal(folder, made)


def test_a_bundle_is_a_machine(tmp_path: Path) -> None:
    assert not bundle_folder.is_bundle(tmp_path)
    write_bundle(tmp_path)
    assert bundle_folder.is_bundle(tmp_path)
    chosen = Chosen(clock=Clock.INSTRUCTIONS, append=("debug",))
    machine = machine_of(bundle_folder.load_container(tmp_path), chosen)
    assert machine.board == "microvm" and machine.memory_bytes == 64 << 20 and not machine.network
    assert machine.words == ("root=/dev/vda", "quiet", "debug")
    assert [d.path for d in machine.disks] == [str(tmp_path / "root.erofs")] and machine.disks[
        0
    ].mode is DiskMode.READ_ONLY
    assert machine.clock is Clock.INSTRUCTIONS
    smaller = Chosen(memory_bytes=20 << 20)
    assert machine_of(bundle_folder.load_container(tmp_path), smaller).memory_bytes == 20 << 20
    assert machine.memory_bytes == bundle_folder.load_container(tmp_path).bundle.memory_bytes
    wall = bundle_boots.prepare(tmp_path, Chosen(), 9.0, Natives(tmp_path), Store(tmp_path))
    assert wall.machine.words == ("root=/dev/vda", "quiet", "printk.time=1")
    # Where instructions are counted, no word costs any: the machine is the one that the fit measured.
    assert wall.on(Clock.INSTRUCTIONS).machine.words == ("root=/dev/vda", "quiet")
    (tmp_path / "System.map").unlink()
    with pytest.raises(UserInputError, match=r"lacks its file System\.map"):
        bundle_folder.load_container(tmp_path)


@pytest.mark.parametrize("network", [False, True])
def test_the_machine_has_a_network_where_the_bundle_has_one(tmp_path: Path, network: bool) -> None:
    write_bundle(tmp_path, network=network)
    assert machine_of(bundle_folder.load_container(tmp_path), Chosen()).network is network


def series(*boots: SeriesBoot, trials: tuple[Change, ...] = ()) -> BootSeries:
    return BootSeries(
        "1", "vm\x1b[31m", ReadySignal(ReadyBy.LOGIN), 9.0, (Variant("base", USUAL, "qemu"),), boots, trials=trials,
        judged_by=JudgedBy.INSTRUCTIONS if trials else JudgedBy.READY, interaction=-2e6 if trials else None,
    )  # fmt: skip


def boot(number: int, at: float, outcome: Outcome = Outcome.READY, problem: str = "") -> SeriesBoot:
    marks = (Milestone("ready", wall_s=at, source="x"),)
    return series_boot("base", number, outcome, marks, at, problem=problem, cpu_s=at / 2)


def shown(found: BootSeries, out: Path) -> str:
    text = io.StringIO()
    show(found, out, TerminalConsole(file=text, width=200))
    return text.getvalue()


def test_two_modes_are_shown_as_two(tmp_path: Path) -> None:
    times = (5.0, 5.1, 5.05, 6.2, 6.3, 6.25, 5.07, 6.21)
    text = shown(series(*(boot(n, at) for n, at in enumerate(times, 1))), tmp_path)
    assert "5.060 (4×) or 6.230 (4×)" in text and "two modes" in text
    assert "\x1b[31m" not in text


def test_a_failed_boot_is_shown_with_its_console(tmp_path: Path) -> None:
    (tmp_path / "base-1").mkdir()
    (tmp_path / "base-1" / "console.times.log").write_text("[1.0 0.0] \x1b]0;evil\x07last words\n")
    text = shown(series(boot(1, 3.0, Outcome.PANIC, "the kernel panicked: x"), boot(2, 4.0)), tmp_path)
    assert "1 of 2 boots ready" in text and "panic: the kernel panicked: x" in text
    assert "last words" in text and "\x1b]" not in text


def test_boots_end_with_a_mark_and_a_whole_command(tmp_path: Path) -> None:
    def on_terminal(*found: SeriesBoot) -> list[str]:
        text = io.StringIO()
        show(series(*found), out, TerminalConsole(file=text, width=40, height=24, force_terminal=True))
        return re.sub(r"\x1b\[[0-9;]*m", "", text.getvalue()).splitlines()

    out = tmp_path / ("deep" * 15) / "boots"
    lines = on_terminal(boot(1, 4.0))
    assert lines[0].startswith("✓ ")
    assert lines[-3:] == ["Show where the time went:", "  vmtailor analyze \\", f"    {out}/base-1/console.log"]
    assert f"consoles and records  {out}" in lines
    lines = on_terminal(boot(1, 4.0), boot(2, 3.0, Outcome.PANIC, "x"))
    assert lines[0].startswith("✗ ") and f"  its console: {out}/base-2/console.log" in lines


def test_trials_are_shown_and_saved(tmp_path: Path) -> None:
    figure = Figure.INIT_INSTRUCTIONS
    good = Change(
        "audit", "no audit", (Setting(ChangeKind.COMMAND_LINE, "audit", "0"),),
        expected=(exact(figure, -3e6, "audit_init"),),
        measured=(Effect(figure, -2.5e6, -3e6, -2e6, "instructions"), exact(Figure.CPU, -0.5)), verdict=Verdict.BETTER,
    )  # fmt: skip
    found = series(boot(1, 3.0), trials=(good,))
    text = shown(found, tmp_path)
    assert "2.00 – 3.00" in text and "+0.50" in text
    assert "+3.00" in text and "+2.50" in text and "better" in text and "M instr" in text
    assert "together the changes save 2.00 M instr less" in text
    record = document(found, tmp_path)
    assert next(iter(record)) == "schema"
    assert record["trials"][0]["verdict"] == "better" and record["figures"]["base"]["ready"]["median"] == 3.0


def lab(store: Store) -> None:
    """A lab that has QEMU and cannot be started."""
    place = store.folder(lab_folder.FOLDER)
    for name in (lab_folder.DISK, lab_folder.KERNEL, lab_folder.INITRD, lab_folder.SYMBOLS):
        (place / name).write_bytes(b"x")
    here = Lab(lab_folder.VERSION, "x86_64", "6.12", {"qemu": "7.2"}, "d", lab_folder.sizes(place), "m")
    records.save(here, place / lab_folder.RECORD)


def asked(folder: Path, **more: Any) -> BootOptions:
    return BootOptions(subject=folder, lab=True, out=folder / "boots", **more)


@pytest.mark.parametrize(
    "more", [{"changes": ("quiet",)}, {"attribute": True}, {"cpu_model": "max"}, {"accelerator": Accelerator.KVM}]
)
def test_what_a_monitor_takes_no_part_in_is_refused(tmp_path: Path, more: dict[str, Any]) -> None:
    write_bundle(tmp_path)
    with pytest.raises(UserInputError, match="with --on or --lab"):
        boot_bundle(asked(tmp_path, **more), tmp_path)


def test_a_monitor_that_cannot_start_is_refused_before_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bundle = tmp_path / "b"
    bundle.mkdir()
    write_bundle(bundle)
    lab(Store())
    with pytest.raises(HostError, match="the lab has no Firecracker"):
        boot_bundle(asked(bundle, on="firecracker"), bundle)
    assert capsys.readouterr().err == ""


def test_a_boot_in_the_lab_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bundle, started = tmp_path / "b", []
    bundle.mkdir()
    write_bundle(bundle)
    lab(Store())

    class Ended(Exception):
        pass

    def run(*args: Any, booter: object, **_: object) -> None:
        started.append((args[1][0][0].machine, booter))
        raise Ended

    monkeypatch.setattr(series_run, "run", run)
    with pytest.raises(Ended):
        boot_bundle(asked(bundle), bundle)
    ((machine, booter),) = started
    assert (machine.monitor, machine.clock, machine.accelerator) == ("lab/qemu", Clock.INSTRUCTIONS, Accelerator.TCG)
    assert isinstance(booter, LabBooter) and "on QEMU in the lab\n" in capsys.readouterr().err
