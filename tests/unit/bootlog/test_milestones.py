# SPDX-License-Identifier: Apache-2.0
"""Messages that mark a boot: each with the mark that it makes, or the fact that it tells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.unit.bootlog.reading import timeline_of

from vmtailor.analysis.bootlog import kernel_messages, machine_facts
from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.log_lines import Content

KERNEL = "[    0.000000] Linux version 6.1.0 (gcc) #1 SMP\n"


def log(*messages: str) -> Observed:
    lines = "".join(f"[    {at}.000000] {message}\n" for at, message in enumerate(messages, 1))
    return kernel_messages.read(Content("x", iter([(KERNEL + lines).encode()])))


def capture(*messages: str) -> Observed:
    """A serial capture that begins before the kernel."""
    lines = "".join(f"[{at}.000000 1.000000] {message}\n" for at, message in enumerate(messages, 1))
    later = "".join(f"[{at}.000000 0.100000] {KERNEL}" for at in (8, 9))
    return kernel_messages.read(Content("x", iter([(lines + later[: len(later) // 2]).encode()])))


@pytest.mark.parametrize(
    ("message", "mark"),
    [
        ("SeaBIOS (version rel-1.16.2)", "firmware"),
        ("BdsDxe: loading Boot0001", "firmware"),
        ("NOTICE:  BL1: v2.9", "firmware"),
        ("OpenSBI v1.3", "firmware"),
        ("UEFI firmware (version edk2)", "firmware"),
        ("coreboot-4.19 bootblock", "firmware"),
        ("U-Boot 2023.01 (Jan 01 2023)", "loader"),
        ("EDK II boots", "firmware"),
        ("SPL initialised", "loader"),
        ("## Flattened Device Tree blob at 1000", "loader"),
        ("welcome to lk/MP", "loader"),
        ("Barebox 2012", "loader"),
        ("GRUB loading.", "loader"),
        ("Welcome to GRUB!", "loader"),
        ("SYSLINUX 6.04", "loader"),
        ("ISOLINUX 6.04", "loader"),
        ("systemd-boot 252", "loader"),
        ("barebox 2023.01.0", "loader"),
        ("iPXE 1.21.1 -- Open Source", "loader"),
        ("Hit any key to stop autoboot:  0", "loader"),
        ("## Loading kernel from FIT", "loader"),
        ("I> MB1 (version: 0.32)", "loader"),
    ],
)
def test_firmware_and_loaders_are_known_by_what_they_say_first(message: str, mark: str) -> None:
    found = capture(message)
    assert found.loader and found.marks[mark][1] == f"'{message[:60]}'"
    assert {"firmware", "loader", "kernel-handed-over"} & set(found.marks) == {mark}


@pytest.mark.parametrize(
    "message", ["Starting kernel ...", "EFI stub: Booting Linux Kernel...", "EFI stub: Exiting boot services"]
)
def test_a_loader_says_when_it_hands_over(message: str) -> None:
    found = capture("U-Boot 2023.01", message)
    assert found.marks["kernel-handed-over"][1] == f"'{message}'"
    assert found.marks["kernel-handed-over"][0] > found.marks["loader"][0]


@pytest.mark.parametrize("message", ["UEFI Secure Boot is off", "Starting up", "EFI v2.7 by EDK", "Hit the road", "GR"])
def test_what_only_begins_alike_is_no_loader(message: str) -> None:
    found = log(message)
    assert not found.loader and not {"firmware", "loader", "kernel-handed-over"} & set(found.marks)


@pytest.mark.parametrize(
    ("message", "marks"),
    [
        ("Run /sbin/init as init process", {"run-init", "run-any"}),
        ("Run /init as init process", {"run-initrd", "run-any"}),
        ("Run /bootchart-vt as init process", {"run-initrd", "run-any"}),
        ("Run for it", set()),
        ("Freeing unused kernel image (initmem) memory: 2048K", {"freed"}),
        ("Freeing init memory: 200K", {"freed"}),
        ("Freeing initrd memory: 9000K", {"initrd-freed"}),
        ("Freeing SMP alternatives memory: 32K", set()),
        ("Kernel panic - not syncing: VFS", {"panic"}),
        ("systemd[1]: systemd 252 running in system mode (+PAM)", {"systemd", "systemd-first"}),
        ("systemd[1]: Running in initrd.", {"systemd-initrd"}),
        ("systemd[1]: Switching root.", {"switch-root"}),
        ("systemd[1]: Startup finished in 1.000s (kernel) + 2.000s (userspace) = 3.000s.", {"finished"}),
        ("systemd[1]: Startup finished in no time.", set()),
        ("systemd[1]: Starting a.service - The A service...", {"unit-starts:a.service"}),
        ("systemd[1]: Mounting /boot...", {"unit-starts:/boot"}),
        ("systemd[1]: Activating swap /dev/vdb...", {"unit-starts:/dev/vdb"}),
        ("systemd[1]: Started a.service - The A service.", {"unit-up:a.service"}),
        ("systemd[1]: Finished b.service.", {"unit-up:b.service"}),
        ("systemd[1]: Mounted /boot.", {"unit-up:/boot"}),
        ("systemd[1]: Activated swap /dev/vdb.", {"unit-up:/dev/vdb"}),
        ("systemd[1]: Reached target multi-user.target - Multi-User System.", {"unit-up:multi-user.target"}),
        ("systemd[1]: Stopped a.service.", set()),
        ("[  OK  ] Reached target Graphical Interface.", {"unit-up:Graphical Interface"}),
        ("[  OK  ] Started Getty on tty1.", set()),
        ("Cloud-init v. 23.1 finished at Mon, 01 Jan 2024. Datasource DataSourceNoCloud. Up 6.90 seconds",
         {"cloud-init-finished"}),
        ("Cloud-init v. 23.1 running 'init' at Mon, 01 Jan 2024. Up 3.20 seconds.", set()),
        ("Cloud-init v. 23.1 finished at last", set()),
    ],
)  # fmt: skip
def test_a_message_makes_its_mark(message: str, marks: set[str]) -> None:
    found = log(message)
    assert set(found.marks) - {"kernel-first-line", "systemd-line"} == marks
    assert {found.marks[name][0] for name in marks} <= {1_000_000}


def test_of_marks_that_come_twice_the_first_stays_or_the_last_as_they_mean() -> None:
    found = log(
        "Run /init as init process",
        "systemd[1]: systemd 252 running in system mode",
        "Run /sbin/init as init process",
        "Run /sbin/other as init process",
        "systemd[1]: systemd 252 running in system mode",
    )
    at: Mapping[str, int] = {name: mark[0] // 1_000_000 for name, mark in found.marks.items()}
    assert at == {
        "kernel-first-line": 0, "run-initrd": 1, "run-any": 1, "run-init": 4, "systemd": 5, "systemd-first": 2,
        "systemd-line": 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("message", "arch"),
    [
        ("CPU features: detected: GIC system register", "arm64"),
        ("psci: PSCIv1.1 detected in firmware.", None),  # kernels of 32 bits say so as well
        ("arch_timer: cp15 timer(s) running at 24.00MHz (phys).", None),
        ("Booting Linux on physical CPU 0x0", None),
        ("Booting Linux on physical CPU 0x0000000000 [0x410fd034]", "arm64"),
        ("CPU: ARMv7 Processor [412fc0f1] revision 1", "arm"),
        ("CPU: PIPT / VIPT nonaliasing data cache", "arm"),
        ("SBI specification v1.0 detected", "riscv64"),
        ("riscv: base ISA extensions acdfim", "riscv64"),
        ("setup: Linux is running under KVM", "s390x"),
        ("sclp_cmd: sclp", "s390x"),
        ("CPU0 revision is: 00019300", "mips"),
        ("x86/fpu: Supporting XSAVE feature", "x86_64"),
        ("BIOS-e820: [mem 0x0-0x9fbff] usable", "x86_64"),
        ("Command line: quiet", "x86_64"),
        ("systemd[1]: Detected architecture x86-64.", "x86_64"),
        ("systemd[1]: Detected architecture arm64.", "arm64"),
        ("tsc is a word", None),
        ("Kernel command line: quiet", None),
    ],
)
def test_a_processor_is_known_by_what_only_its_kernels_say(message: str, arch: str | None) -> None:
    assert machine_facts.identify(log(message)).arch == arch


def test_what_a_log_says_of_its_machine() -> None:
    found = log(
        "Kernel command line: root=/dev/vda quiet",
        "Hypervisor detected: KVM",
        "clocksource: Switched to clocksource kvm-clock",
        "clocksource: Switched to clocksource tsc",
        "systemd[1]: Detected virtualization qemu.",
    )
    assert (found.version, found.command_line, found.hypervisor) == ("6.1.0", "root=/dev/vda quiet", "KVM")
    assert (found.clocksource, found.clocksource_switch_us) == ("tsc", 3_000_000)
    assert log("systemd[1]: Detected virtualization qemu.").hypervisor == "qemu"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("BUG: kernel NULL pointer dereference", "crashed"),
        ("Oops: 0000 [#1] SMP", "crashed"),
        ("Internal error: Oops: 5", "crashed"),
        ("general protection fault, maybe", "crashed"),
        ("Unable to handle kernel paging request", "crashed"),
        ("Kernel panic - not syncing: VFS", "crashed"),
        ("** 12 printk messages dropped **", "messages-dropped"),
        ("Unable to find a name", None),
        ("general remarks", None),
    ],
)
def test_trouble_is_warned_of(message: str, code: str | None) -> None:
    assert [one.code for one in log(message, "later", "Run /sbin/init as init process").warnings] == (
        [code] if code else []
    )


def test_a_login_prompt_before_the_kernel_is_a_mark() -> None:
    assert "login" in capture("U-Boot 2023.01", "buildroot login:").marks


def test_units_of_a_chain_begin_after_the_kernel(tmp_path: Path) -> None:
    """The chain counts from user space's beginning, whether or not the times of units stand beside it."""
    finished = "Startup finished in 1.5s (kernel) + 2.5s (userspace) = 4s\n\n"
    chain = "multi-user.target @2.4s\n└─slow.service @1.0s +1.4s\n"
    alone, blamed = (
        timeline_of(tmp_path, finished + chain),
        timeline_of(tmp_path, finished + "1.400s slow.service\n\n" + chain),
    )
    for timeline in (alone, blamed):
        unit = next(one for one in timeline.units if one.name == "slow.service")
        assert (unit.start_us, unit.end_us) == (2_500_000, 3_900_000)
