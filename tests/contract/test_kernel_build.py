# SPDX-License-Identifier: Apache-2.0
"""What we take for granted of the distribution's packages and of the kernel's make."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from vmtailor.analysis.ksource import facts as ksource_facts
from vmtailor.analysis.ksource.expr import holds, truth
from vmtailor.analysis.ksource.kbuild import file_conditions
from vmtailor.base.cache.store import Store
from vmtailor.base.files import dot_config
from vmtailor.drivers.distribution import apt, packaged_baseline, selection
from vmtailor.drivers.kernel import elf_pack, kernel_source, make
from vmtailor.model.architecture import presumed
from vmtailor.model.kernel import KernelBaseline

pytestmark = pytest.mark.contract

#: The smallest thing that still has a PVH entry.
TINY = [
    ("64BIT", "y"), ("EXPERT", "y"), ("HYPERVISOR_GUEST", "y"), ("PVH", "y"), ("PRINTK", "y"), ("BUG", "y"),
    ("CC_OPTIMIZE_FOR_PERFORMANCE", "y"),
]  # fmt: skip


@pytest.fixture(scope="session")
def baseline() -> KernelBaseline:
    return packaged_baseline.provide(selection.of_host(), presumed(), Store())


def test_the_baseline_is_whole(baseline: KernelBaseline) -> None:
    assert kernel_source.version_of(Path(baseline.source_dir)) == baseline.version
    config = dot_config.parse(Path(baseline.config).read_text())
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
    assert packaged_baseline.provide(selection.of_host(), presumed(), Store()) == baseline


def test_allnoconfig_stays_minimal_and_losses_are_told(baseline: KernelBaseline, tmp_path: Path) -> None:
    asked = [*TINY, ("VIRTIO_NET", "y")]
    configured = make.configure(Path(baseline.source_dir), tmp_path / "o", asked, make.Toolchain("x86_64"))
    assert [(one.name, one.got) for one in configured.lost] == [("VIRTIO_NET", "n")]
    symbols = dict(configured.symbols)
    assert symbols["PVH"] == "y"
    assert not {"NET", "BLOCK", "MODULES", "PCI", "SMP"} & symbols.keys()
    assert configured.total_y < 450


@dataclass(frozen=True)
class Built:
    """One compile of TINY in a folder that held nothing: its packed kernel, and what it compiled, without `.o`."""

    image: bytes
    enabled: frozenset[str]
    objects: frozenset[str]


@pytest.fixture(scope="module")
def two_builds(baseline: KernelBaseline, tmp_path_factory: pytest.TempPathFactory) -> tuple[Built, Built]:
    """In folders with other names, one of the two through ccache, which rewrites paths when it is told to."""
    scratch = tmp_path_factory.mktemp("builds")
    has_ccache = shutil.which("ccache") is not None
    return (
        build_tiny(baseline, scratch / "one", make.Toolchain("x86_64", ccache=has_ccache)),
        build_tiny(baseline, scratch / "a/much/longer/way/to/two", make.Toolchain("x86_64", ccache=False)),
    )


def build_tiny(baseline: KernelBaseline, folder: Path, toolchain: make.Toolchain) -> Built:
    configured = make.configure(Path(baseline.source_dir), folder, TINY, toolchain)
    assert not configured.lost
    compiled = make.compile_kernel(configured, ("vmlinux",), toolchain)
    packed = folder / "packed"
    elf_pack.pack(compiled.vmlinux, packed)
    image = packed.read_bytes()
    assert str(folder).encode() not in image
    assert Path(baseline.source_dir).name.encode() not in image
    objects = frozenset(p.relative_to(folder).as_posix().removesuffix(".o") for p in folder.rglob("*.o"))
    shutil.rmtree(folder)
    return Built(image, frozenset(name for name, value in configured.symbols if value in ("y", "m")), objects)


@pytest.mark.slow
def test_two_builds_in_different_folders_give_the_same_bytes(two_builds: tuple[Built, Built]) -> None:
    one, other = two_builds
    assert one.image == other.image
    assert len(gzip.compress(one.image)) > 200_000


@pytest.mark.slow
def test_what_a_build_compiled_is_what_the_makefiles_say(
    baseline: KernelBaseline, two_builds: tuple[Built, Built]
) -> None:
    source = Path(baseline.source_dir)
    facts = ksource_facts.collect(baseline.version, ksource_facts.reader(source), ksource_facts.c_files(source))
    built = two_builds[0]
    known = built.objects & facts.files.keys()
    wrong = {stem: facts.files[stem] for stem in known if not holds(facts.file_condition(stem + ".c"), built.enabled)}
    assert wrong == {} and len(known) > 300
    read = file_conditions(ksource_facts.reader(source), "x86")
    said = {stem for stem, condition in read.items() if truth(condition, built.enabled)}
    assert said - built.objects == set() and len(said) > 300
