# SPDX-License-Identifier: Apache-2.0
"""What we take for granted of the distribution's packages and of the kernel's make."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import pytest

from vmtailor.base.store import Store
from vmtailor.drivers import apt, elf_pack, kbuild, kconfig_file, kernel_packages, kernel_source
from vmtailor.model.kernel import KernelBaseline

pytestmark = pytest.mark.contract

#: The smallest thing that still has a PVH entry.
TINY = [
    ("64BIT", "y"), ("EXPERT", "y"), ("HYPERVISOR_GUEST", "y"), ("PVH", "y"), ("PRINTK", "y"), ("BUG", "y"),
    ("CC_OPTIMIZE_FOR_PERFORMANCE", "y"),
]  # fmt: skip


@pytest.fixture(scope="session")
def baseline() -> KernelBaseline:
    return kernel_packages.provide(Store())


def test_the_baseline_is_whole(baseline: KernelBaseline) -> None:
    assert kernel_source.version_of(Path(baseline.source_dir)) == baseline.version
    config = kconfig_file.parse(Path(baseline.config).read_text())
    assert config["VIRTIO_BLK"] == "m" and config["DEBUG_INFO"] == "y"
    assert " T start_kernel\n" in Path(baseline.system_map).read_text()
    assert Path(baseline.debug_vmlinux).read_bytes()[:4] == b"\x7fELF"
    assert Path(baseline.vmlinuz).read_bytes()[0x202:0x206] == b"HdrS"
    for folder in (baseline.modules_dir, baseline.debug_modules_dir):
        assert {"virtio_blk.ko", "virtio_mmio.ko", "erofs.ko", "overlay.ko"} <= {
            p.name for p in Path(folder).rglob("*.ko")
        }
    module = next(Path(baseline.modules_dir).rglob("virtio_blk.ko")).read_bytes()
    assert module[:4] == b"\x7fELF" and not list(Path(baseline.modules_dir).rglob("*.ko.xz"))


def test_a_second_question_is_answered_at_once(baseline: KernelBaseline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apt, "packaged", lambda pattern: pytest.fail("apt was asked again"))
    assert kernel_packages.provide(Store()) == baseline


def test_allnoconfig_stays_minimal_and_losses_are_told(baseline: KernelBaseline, tmp_path: Path) -> None:
    asked = [*TINY, ("VIRTIO_NET", "y")]
    configured = kbuild.configure(Path(baseline.source_dir), tmp_path / "o", asked)
    assert [(one.name, one.got) for one in configured.lost] == [("VIRTIO_NET", "n")]
    symbols = dict(configured.symbols)
    assert symbols["PVH"] == "y"
    assert not {"NET", "BLOCK", "MODULES", "PCI", "SMP"} & symbols.keys()
    assert configured.total_y < 450


@pytest.mark.slow
def test_two_builds_in_different_folders_give_the_same_bytes(baseline: KernelBaseline, tmp_path: Path) -> None:
    images = []
    # One of the two through ccache, which rewrites paths when it is told to.
    for folder, cached in ((tmp_path / "one", True), (tmp_path / "a/much/longer/way/to/two", False)):
        toolchain = kbuild.Toolchain(ccache=cached and shutil.which("ccache") is not None)
        configured = kbuild.configure(Path(baseline.source_dir), folder, TINY, toolchain)
        assert not configured.lost
        compiled = kbuild.compile_kernel(configured, ("vmlinux",), toolchain)
        elf_pack.pack(compiled.vmlinux, tmp_path / "packed")
        images.append((tmp_path / "packed").read_bytes())
        assert str(folder).encode() not in images[-1]
        assert Path(baseline.source_dir).name.encode() not in images[-1]
        shutil.rmtree(folder)
    assert images[0] == images[1]
    assert len(gzip.compress(images[0])) > 200_000
