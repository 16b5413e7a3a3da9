# SPDX-License-Identifier: Apache-2.0
"""What a system says of itself, asked of real guests: a machine that lost something fails by that alone, though every
step of the exercise passes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes import systems

from vmtailor.base.cache.store import Store
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.rootfs import boot_disk as disks
from vmtailor.model.architecture import presumed
from vmtailor.model.machine import Clock, Machine
from vmtailor.pipeline.systems import exercise_boots, subjects
from vmtailor.stages import exercise_file, system_verify
from vmtailor.stages.boot import own_kernel
from vmtailor.stages.system_verify import SystemTarget

pytestmark = pytest.mark.system

#: A program as engines are: it copes with a kernel that lacks something, and says so.
ENGINE = """#!/bin/sh
case $1 in
    run) [ -d /proc/sys/net/ipv6 ] || echo "your kernel has no IPv6: --ip6 discarded" >&2; echo "it ran as $$" ;;
    info) echo "Version: $(busybox uname -r), started at $(busybox date)"
          [ -d /proc/sys/net/ipv6 ] || echo "WARNING: No IPv6 support" >&2 ;;
esac
"""
EXERCISE = """
[ready]
kind = "http"
port = 80
[[load]]
kind = "command"
argv = ["engine", "run"]
[load.expect]
contains = "it ran"
[[says]]
name = "engine"
argv = ["engine", "info"]
"""


@pytest.mark.slow
def test_a_machine_that_newly_complains_of_itself_is_not_verified(tmp_path: Path) -> None:
    kernel, row = packaged_baseline.provide(selection.of_host(), presumed(), Store()), presumed()
    root = systems.busybox_tree(tmp_path / "root", Path(kernel.vmlinuz), Path(kernel.modules_dir), kernel.release)
    systems.put(root, "bin/engine", ENGINE)
    (root / "bin/engine").chmod(0o755)
    disk = systems.ext4(tmp_path / "disk.raw", root, size_mib=48)
    parts = guest_programs.of(row.name)
    (tmp_path / "x.toml").write_text(EXERCISE)
    exercise = exercise_file.load_system(tmp_path / "x.toml")
    with subjects.opened(f"disk:{disk}", Store()) as found:
        own = own_kernel.taken_out(found.subject, found.root, parts.small_init, tmp_path / "own")
        place = exercise_boots.root_of(found.subject, own.words)
    machine = Machine(
        board="q35", memory_bytes=256 << 20, kernel=str(own.kernel), initrd=str(own.initrd), network=True, acpi=True,
        words=(*own.words, *row.kernel.words, f"console={row.kernel.console}"), disks=(disks.disk_of(disk),),
        cpu_model=row.emulator.cpu_model, clock=Clock.INSTRUCTIONS, architecture=row.name,
    )  # fmt: skip
    target = SystemTarget(machine, place, exercise, parts)
    before = system_verify.baseline(target, tmp_path)
    assert before.report.file("says-engine").startswith(f"Version: {kernel.release}")
    assert system_verify.judge(target, before, before).passed
    lesser = replace(target, machine=replace(machine, words=(*machine.words, "ipv6.disable=1")))
    after = system_verify.run(lesser, tmp_path)
    assert not after.boot.failures  # it passes its exercise
    assert system_verify.judge(target, before, after).failures == (
        "engine says: WARNING: No IPv6 support",
        "load step 1 says on its standard error: your kernel has no IPv6: --ip6 discarded",
    )
