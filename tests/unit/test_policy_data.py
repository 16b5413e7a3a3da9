# SPDX-License-Identifier: Apache-2.0
"""The contents of the catalogue: documented, within their bounds, and free of what must not be in them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.analysis.changes.symbol_catalogue import Situation
from vmtailor.analysis.cost import loops
from vmtailor.model.change import Cause
from vmtailor.model.plan import RootFormat

ROOT = Path(__file__).resolve().parents[2]
MICROVM = Situation("microvm", RootFormat.EROFS, "6.12.117")


def symbols(cause: Cause, situation: Situation = MICROVM) -> set[str]:
    return {
        name
        for e in symbol_catalogue.load().chosen(situation)
        if e.cause is cause
        for name, value in e.symbols
        if value == "y"
    }


def test_the_reference_is_up_to_date() -> None:
    checked = subprocess.run([sys.executable, ROOT / "tools/catalogue_reference.py", "--check"], check=False)
    assert checked.returncode == 0


def test_the_platform_is_small() -> None:
    platform = symbols(Cause.PLATFORM)
    assert len(platform) <= 26
    # What a program that prints does not use is demanded, or it is not in.
    assert not platform & {"NET", "UNIX", "EPOLL", "FUTEX", "PROC_FS", "SYSFS", "MULTIUSER", "MODULES", "PCI", "ACPI"}


def test_metadata_is_checked_by_instructions_where_the_root_has_checksums() -> None:
    names = ("CRYPTO_CRC32C_INTEL", "CRC_OPTIMIZATIONS")
    for root in RootFormat:
        older, newer = (symbols(Cause.PLATFORM, Situation("q35", root, version)) for version in ("6.12.117", "6.18.1"))
        has = root in (RootFormat.EXT4, RootFormat.XFS)
        assert [name in older for name in names] == [has, False]
        assert [name in newer for name in names] == [False, has]


def test_the_protection_that_must_stay_is_policy() -> None:
    policy = symbols(Cause.POLICY)
    assert {
        "CPU_MITIGATIONS", "MITIGATION_PAGE_TABLE_ISOLATION", "MITIGATION_RETPOLINE", "STACKPROTECTOR_STRONG",
        "STRICT_KERNEL_RWX", "HARDENED_USERCOPY", "PARAVIRT", "KVM_GUEST",
    } <= policy  # fmt: skip


def test_no_word_turns_protection_off_or_only_pleases_the_emulator() -> None:
    words = {word.partition("=")[0] for e in symbol_catalogue.load().entries for word in e.words}
    assert not words & {"mitigations", "nopti", "nospectre_v2", "noapictimer", "no_timer_check", "lpj", "init_on_alloc"}


def test_loops_are_named_once() -> None:
    functions = [name for loop in loops.table("x86_64") for name in loop.functions]
    assert "setup_boot_APIC_clock" in functions
    assert len(functions) == len(set(functions))
    # Functions that also wait for devices, under KVM too, are never taken off.
    assert not set(functions) & {"delay_tsc", "__const_udelay", "delay_loop", "cpu_relax"}
