# SPDX-License-Identifier: Apache-2.0
"""A machine, its hypervisor, cloud and processor are told by signs that agree, and never by one word of a log."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from vmtailor.analysis.bootlog import machine_facts
from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.changes.remedy_audience import condition_of
from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.base.errors import VmtailorError
from vmtailor.model.boots.timeline import MachineInfo, Timeline

DATA = Path(__file__).resolve().parents[2] / "data"
MACHINES: dict[str, dict[str, Any]] = tomllib.loads((DATA / "identity" / "machines.toml").read_text())


def timeline_of(folder: Path, *lines: str) -> Timeline:
    path = folder / "dmesg.txt"
    path.write_text("".join(f"[    0.{n:06d}] {line}\n" for n, line in enumerate(lines)))
    return analyze([path])


@pytest.mark.parametrize("name", MACHINES)
def test_what_a_machine_is(tmp_path: Path, name: str) -> None:
    row = MACHINES[name]
    timeline = timeline_of(tmp_path, *row["lines"].strip().splitlines())
    machine = timeline.machine
    found = (timeline.kernel.arch, machine.kind, machine.hypervisor, machine.cloud)
    assert found == (row.get("arch"), row.get("kind"), row.get("hypervisor"), row.get("cloud")), machine.seen
    assert set(row.get("has", ())) <= set(machine.has)
    assert not set(row.get("lacks", ())) & set(machine.has)
    assert not [one for one in timeline.warnings if one.code == "identity-unclear"]
    assert not [line for line in machine.seen if "identity: " in line]  # no line of the log


def test_each_kind_of_machine_is_in_the_list() -> None:
    assert {row.get("kind") for row in MACHINES.values()} > {"virtual", "board", "phone", "laptop", "desktop", "server"}
    assert {row.get("cloud") for row in MACHINES.values()} > {"amazon", "azure", "google"}


def test_what_counts_and_what_was_outweighed_is_said(tmp_path: Path) -> None:
    seen = timeline_of(
        tmp_path, "Hypervisor detected: KVM", "DMI: innotek GmbH VirtualBox/VirtualBox, BIOS VirtualBox 12/01/2006"
    ).machine.seen
    assert "hypervisor: DMI: innotek GmbH VirtualBox/VirtualBox, BIOS VirtualBox 12/01/2006" in seen
    assert "hypervisor, not kvm: Hypervisor detected: KVM" in seen


def test_signs_of_equal_weight_make_no_answer(tmp_path: Path) -> None:
    timeline = timeline_of(tmp_path, "DMI: innotek GmbH VirtualBox", "ACPI: XSDT 0x0 (v01 PRLS   PRLS_OEM 0003)")
    assert (timeline.machine.hypervisor, timeline.machine.kind) != ("virtualbox", "virtual")
    (told,) = [one.text for one in timeline.warnings if one.code == "identity-unclear"]
    assert told == (
        "the hypervisor is unknown: 'DMI: innotek GmbH VirtualBox' says virtualbox, "
        "'ACPI: XSDT 0x0 (v01 PRLS   PRLS_OEM 0003)' says parallels"
    )


def test_a_weak_sign_alone_is_none(tmp_path: Path) -> None:
    machine = timeline_of(tmp_path, "Kernel command line: androidboot.serialno=1 quiet").machine
    assert (machine.kind, machine.has) == (None, ())


@pytest.mark.parametrize(
    ("options", "arch"),
    [
        ({"X86_32": "y"}, "i686"), ({"X86_64": "y", "64BIT": "y"}, "x86_64"), ({"ARM": "y"}, "arm"),
        ({"ARM64": "y", "64BIT": "y"}, "arm64"), ({"RISCV": "y", "64BIT": "y"}, "riscv64"), ({"RISCV": "y"}, "riscv32"),
        ({"MIPS": "y"}, "mips"), ({"MIPS": "y", "CPU_LITTLE_ENDIAN": "y"}, "mipsel"),
        ({"MIPS": "y", "64BIT": "y", "CPU_LITTLE_ENDIAN": "y"}, "mips64el"),
    ],
)  # fmt: skip
def test_options_of_a_configuration_tell_what_its_title_does_not(options: dict[str, str], arch: str) -> None:
    """Of x86, RISC-V and MIPS the title names both widths alike."""
    title = {"i686": "x86_64", "riscv32": "riscv64"}.get(arch, "mips64el" if arch.startswith("mips") else arch)
    assert machine_facts.identify(Observed("x", arch=title, config=options)).arch == arch


def test_the_header_of_an_android_bootchart(tmp_path: Path) -> None:
    header = (
        "version = 0.8\ntitle = Boot chart for Android ( 10/04/12 13:01:23 )\n"
        "system.uname = Linux version 2.6.29-g46b05b2 (u@h) (gcc version 4.4.3 (GCC) ) #28 Thu Nov 17 06:39:36 PST\n"
        "system.cpu = ARMv7 Processor rev 0 (v7l)\n"
        "system.kernel.options = qemu.gles=0 qemu=1 console=ttyS0 android.qemud=ttyS1\n"
    )
    (tmp_path / "header").write_text(header)
    stat = "cpu  {0} 0 {0} {1} 0 0 0 0\n\n"
    (tmp_path / "proc_stat.log").write_text("".join(f"{at}\n{stat.format(at, at * 2)}" for at in (10, 30, 50)))
    timeline = analyze([tmp_path])
    assert (timeline.kernel.version, timeline.kernel.arch) == ("2.6.29-g46b05b2", "arm")
    assert (timeline.machine.hypervisor, timeline.machine.kind) == ("qemu", "virtual")


def test_advice_that_is_for_no_phone_is_for_no_board_with_its_system() -> None:
    need = condition_of({"phone": False})
    assert not need.met(MachineInfo("board", has=("android",)), "arm64")
    assert need.met(MachineInfo("board"), "arm64")


@pytest.mark.parametrize(
    "row",
    [
        {"is": "kind", "pattern": "x"},
        {"is": "kind", "value": "board", "weight": "2", "pattern": "x"},
        {"is": "kind", "value": "board", "against": ["phone"], "pattern": "x"},
    ],
)
def test_a_sign_that_says_nothing_is_refused(monkeypatch: pytest.MonkeyPatch, row: dict[str, Any]) -> None:
    machine_facts.known_facts.cache_clear()
    monkeypatch.setattr(machine_facts, "_table", lambda: {"fact": [row], "family_options": []})
    with pytest.raises(VmtailorError, match="the table of boot facts is wrong"):
        machine_facts.known_facts()
    monkeypatch.undo()
    machine_facts.known_facts.cache_clear()
