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
from vmtailor.drivers.kernel import compiled_baseline
from vmtailor.model.architecture import presumed
from vmtailor.model.bundle import Bundle
from vmtailor.model.fit_run import FitRun
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.plan import Plan
from vmtailor.model.watched.system_trace import SystemTrace

pytestmark = pytest.mark.system

#: On the instruction clock no program of the host takes part.
INSIDE = EXERCISE.replace('kind = "host-command"\nargv = ["true"]', 'kind = "command"\nargv = ["sleep", "0"]')
MODULES = ("xfs", "libcrc32c", "dm_mod", "dax")


#: A kernel's configuration, beside what every baseline has.
OWN = """CONFIG_64BIT=y
CONFIG_LOCALVERSION="-7.el9.test"
CONFIG_MD=y
CONFIG_BLK_DEV_DM=m
CONFIG_XFS_FS=m
CONFIG_EFI_PARTITION=y
CONFIG_PARTITION_ADVANCED=y
# CONFIG_SMP is not set
# CONFIG_SOUND is not set
# CONFIG_DRM is not set
# CONFIG_USB_SUPPORT is not set
# CONFIG_WLAN is not set
"""


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("lvm"), packaged_baseline.provide(selection.of_host(), presumed(), Store()))


def made(folder: Path, kernel: KernelBaseline) -> Path:
    """Make a disk with this kernel. Its modules lie in no initial RAM disk."""
    packaged, modules = Path(kernel.vmlinuz), Path(kernel.modules_dir)
    root = systems.busybox_tree(folder / "tree", packaged, modules, kernel.release, more_modules=MODULES)
    systems.put(root, f"boot/config-{kernel.release}", Path(kernel.config).read_bytes())
    system = volumes.xfs(folder / "root.xfs", root)
    return volumes.enterprise_disk(folder / "disk.raw", system, None, segments=(30, 20, 25))


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


@pytest.mark.slow
def test_it_is_fitted_and_its_kernel_makes_the_volume_without_a_ram_disk(disk: Path, tmp_path: Path) -> None:
    """A kernel of its own is compiled for it."""
    fitted(disk, tmp_path)


@pytest.mark.slow
def test_a_kernel_that_no_package_has_is_compiled_from_its_source(tmp_path: Path) -> None:
    """Of another name than any package's, as its own makers built it; two kernels are compiled for the fit."""
    packaged = packaged_baseline.provide(selection.of_host(), presumed(), Store())
    source, config = packaged.source_dir, tmp_path / "config"
    config.write_text(OWN)
    own = compiled_baseline.provide(Store(), source, config)
    assert own.release == f"{own.version}-7.el9.test"
    (tmp_path / "disk").mkdir()
    disk = made(tmp_path / "disk", own)
    ended = run_program(tmp_path / "refused", "fit", f"disk:{disk}", "-x", exercise_in(tmp_path), "-o", tmp_path / "no")
    assert ended.code == 2 and "--source TARBALL" in ended.stderr
    run = fitted(disk, tmp_path, "--source", source)
    assert f"compiled from {source}" in dict(run.sources)["kernel source"]


def exercise_in(folder: Path) -> Path:
    exercise = folder / "exercise.toml"
    exercise.write_text(INSIDE)
    return exercise


def fitted(disk: Path, folder: Path, *more: str) -> FitRun:
    """Fit a disk, and hold that its kernel makes the volume itself, and that the bundle verifies."""
    bundle = folder / "bundle"
    words = ("fit", f"disk:{disk}", "-x", exercise_in(folder), "--memory", "256M", "--machine", "q35", "--repeat", "1")
    ended = run_program(folder / "fit", *words, *more, "-o", bundle, "--json", timeout_s=3600)
    assert ended.code == 0, ended.stderr
    found = records.load(Bundle, bundle / "bundle.json")
    assert "root=/dev/dm-0" in found.words
    assert any(word.startswith('dm-mod.create="el--test-root,') for word in found.words)
    run = records.load(FitRun, bundle / "run.json")
    kept = {one.id for one in run.plan.symbols if one.is_kept}
    assert {"XFS_FS", "BLK_DEV_DM", "DM_INIT"} <= kept and not {"EXT4_FS", "BLK_DEV_INITRD"} & kept
    ended = run_program(folder / "verify", "verify", bundle, timeout_s=900)
    assert ended.code == 0 and "the system works" in ended.stdout, ended.stderr
    return run
