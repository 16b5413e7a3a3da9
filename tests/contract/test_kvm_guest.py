# SPDX-License-Identifier: Apache-2.0
"""The guest by which monitors are tried under KVM, run by QEMU, which enters it by PVH in 32 bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmtailor.base.process import require_tool, run
from vmtailor.drivers.monitors import kvm_guest

pytestmark = pytest.mark.contract


def test_the_guest_says_its_word_and_ends_the_machine(tmp_path: Path) -> None:
    kernel = tmp_path / "kernel"
    kernel.write_bytes(kvm_guest.elf())
    argv = [require_tool("qemu-system-x86_64"), "-machine", "microvm,acpi=off", "-cpu", "max", "-m", "64M"]
    argv += ["-accel", "tcg", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    ended = run([*argv, "-serial", "stdio", "-kernel", str(kernel)], timeout_s=60)
    assert ended.stdout == kvm_guest.SAID
