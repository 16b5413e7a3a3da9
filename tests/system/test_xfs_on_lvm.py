# SPDX-License-Identifier: Apache-2.0
"""A system whose root is an XFS on an LVM volume in several pieces: driven, traced and planned from its disk as it is.
Nothing is mounted or activated on the host."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.fakes import systems, volumes
from tests.fakes.program import run_program
from tests.system.conftest import Fitted
from tests.system.test_attended_boot import EXERCISE, boot

from vmtailor.base.cache.store import Store
from vmtailor.base.files import records
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.model.architecture import presumed
from vmtailor.model.plan import Plan
from vmtailor.model.watched.system_trace import SystemTrace

pytestmark = pytest.mark.system

#: On the instruction clock no program of the host takes part.
INSIDE = EXERCISE.replace('kind = "host-command"\nargv = ["true"]', 'kind = "command"\nargv = ["sleep", "0"]')
MODULES = ("xfs", "libcrc32c", "dm_mod", "dax")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lvm")
    kernel = packaged_baseline.provide(selection.of_host(), presumed(), Store())
    packaged, modules = Path(kernel.vmlinuz), Path(kernel.modules_dir)
    root = systems.busybox_tree(folder / "tree", packaged, modules, kernel.release, more_modules=MODULES)
    systems.put(root, f"boot/config-{kernel.release}", Path(kernel.config).read_bytes())
    made = volumes.xfs(folder / "root.xfs", root)
    return volumes.enterprise_disk(folder / "disk.raw", made, None, segments=(30, 20, 25))


def test_it_is_driven_and_its_disk_stays_as_it_is(disk: Path, tmp_path: Path) -> None:
    before = disk.read_bytes()
    ended, found = boot(tmp_path, disk, INSIDE, "--memory", "256M", "--clock", "instructions")
    assert ended.code == 0, ended.stderr
    assert found["outcome"] == "ready" and not found["failures"] and found["container"]["requests"] == 6
    assert disk.read_bytes() == before and not ended.left_over and not ended.left_files
    console = (tmp_path / "out" / "base-1" / "console.log").read_text(errors="replace")
    assert "XFS (dm-0): Ending clean mount" in console


def test_its_trace_is_whole_and_its_plan_makes_the_volume(disk: Path, tmp_path: Path, lighttpd: Fitted) -> None:
    """By the verb that traces a boot: the packaged kernel does not make volumes itself, and our small init does. The
    fit of another subject has fetched that kernel's source, without which there is no plan."""
    words = ("boot", disk, "--requests", tmp_path / "seen", "--ready", "log:tiny: up", "--memory", "256M")
    ended = run_program(tmp_path, *words, timeout_s=400)
    assert ended.code == 0, ended.stderr
    record = records.load(SystemTrace, tmp_path / "seen" / "system-trace.json")
    assert record.figures.whole and record.figures.calls > 50
    plan = records.load(Plan, tmp_path / "seen" / "plan.json")
    chosen = {change.id: change.setting.value for change in plan.symbols}
    assert all(chosen.get(name) == "y" for name in ("XFS_FS", "BLK_DEV_DM", "DM_INIT", "EFI_PARTITION"))
    assert chosen.get("EXT4_FS", "n") == "n"
