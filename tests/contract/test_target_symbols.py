# SPDX-License-Identifier: Apache-2.0
"""Symbols that targets of exports need: the kernel's own make takes them all at once, on top of nearly nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from vmtailor.base.cache.store import Store
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.kernel import make
from vmtailor.drivers.targets import targets
from vmtailor.model.architecture import presumed

pytestmark = pytest.mark.contract

#: What every fitted kernel has of these: the menus in which the symbols are.
MENUS = [
    "64BIT",
    "EXPERT",
    "HYPERVISOR_GUEST",
    "PARAVIRT",
    "PVH",
    "PRINTK",
    "BUG",
    "CC_OPTIMIZE_FOR_PERFORMANCE",
    "BLOCK",
    "BLK_DEV",
    "TTY",
    "VIRTIO_MENU",
    "NET",
    "INET",
    "NETDEVICES",
    "NET_CORE",
    "SCSI_LOWLEVEL",
    "SHMEM",
    "MISC_FILESYSTEMS",
    "EROFS_FS",
    "SERIAL_8250",
    "PERF_EVENTS",
]


@pytest.mark.parametrize("name", [one.name for one in targets.every() if one.need])
def test_a_kernel_can_have_all_that_a_target_needs(name: str, tmp_path: Path) -> None:
    baseline = packaged_baseline.provide(selection.of_host(), presumed(), Store())
    row = next(one for one in targets.every() if one.name == name)
    for variant in row.variants or ("",):
        needed = [pair for need in row.needed("x86_64", variant) for pair in need.symbols.items()]
        configured = make.configure(
            Path(baseline.source_dir),
            tmp_path / f"of-{variant}",
            [*((menu, "y") for menu in MENUS), *needed],
            make.Toolchain("x86_64"),
        )
        assert [(one.name, one.got) for one in configured.lost if one.name in dict(needed)] == []
