# SPDX-License-Identifier: Apache-2.0
"""Any distribution will do that answers as drivers/distribution/distribution.py says: a made-up one is put through
everything that asks for packaged kernels, and nothing else knows of a package manager."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.fakes.bundle_data import SOURCE_DIGEST, write_bundle
from tests.fakes.distribution import MadeUp, MadeUpKernel, made_up
from tests.fakes.source_words import using

from vmtailor.base import package_manager
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.distribution.debian import Debian
from vmtailor.drivers.distribution.distribution import Distribution
from vmtailor.drivers.distribution.selection import Unpackaged
from vmtailor.drivers.host import bundle_folder, host
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import presumed
from vmtailor.model.checks import State
from vmtailor.pipeline import bundle_kernel, image_subject
from vmtailor.pipeline.options import FitOptions
from vmtailor.stages.boot import boot_attribution


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


@pytest.fixture
def distribution(tmp_path: Path) -> MadeUp:
    return made_up(tmp_path / "packages")


def test_a_fit_takes_its_baseline_from_it(tmp_path: Path, store: Store, distribution: MadeUp) -> None:
    options = FitOptions("oci:x", tmp_path / "out", store=store, distribution=distribution)
    kernel = image_subject.kernel_of(options, presumed())
    assert (kernel.version, kernel.release) == ("6.19.7", "6.19.7-virt"), "newest in the distribution's own order"
    assert kernel.origin == ("kernel-virt 6.19.7-r10", "kernel-virt-symbols 6.19.7-r10", "kernel-source 6.19.7-r10")
    assert Path(kernel.config).read_text() == "CONFIG_NET=y\n" and Path(kernel.modules_dir, "kernel/a.ko").exists()
    assert image_subject.source_of(options, kernel).version == "6.19.7"
    older = image_subject.kernel_of(
        FitOptions("oci:x", tmp_path, store=store, distribution=distribution, kernel="6.20"), presumed()
    )
    assert older.version == "6.20.1"


def test_it_is_asked_once_until_its_lists_change(store: Store, distribution: MadeUp) -> None:
    first = packaged_baseline.provide(distribution, presumed(), store)
    asked = distribution.offered[1].asked
    assert packaged_baseline.provide(distribution, presumed(), store) == first and asked == [
        "image",
        "debug",
        "modules",
        "source",
    ]
    distribution.lists = "of tomorrow"
    assert packaged_baseline.provide(distribution, presumed(), store) == first and len(asked) == 8
    other = MadeUp(distribution.offered, name="another", lists="of tomorrow")
    assert packaged_baseline.provide(other, presumed(), store) == first and len(asked) == 12, (
        "one's answer is not another's"
    )


def test_modules_that_nobody_expected(store: Store, distribution: MadeUp) -> None:
    kernel = packaged_baseline.provide(distribution, presumed(), store, debug_modules=("ext4",))
    more = packaged_baseline.with_debug_modules(distribution, presumed(), kernel, store, ["xt_nat"])
    assert (Path(more.debug_modules_dir) / "xt_nat.ko").exists()
    assert packaged_baseline.with_debug_modules(MadeUp([]), presumed(), kernel, store, ["xt_other"]) == kernel


def test_a_boot_is_attributed_with_its_packages(tmp_path: Path, store: Store, distribution: MadeUp) -> None:
    image = bytearray(4096)
    image[0x202:0x206], image[0x20E:0x210] = b"HdrS", (0x400).to_bytes(2, "little")
    image[0x600:0x60D] = b"6.20.1-virt (a"
    (tmp_path / "vmlinuz").write_bytes(image)
    assert boot_attribution.of_package(tmp_path / "vmlinuz", store, None, distribution).version == "6.20.1"
    with pytest.raises(UserInputError, match=r"6\.20\.1-virt: no package"):
        boot_attribution.of_package(tmp_path / "vmlinuz", store, None, MadeUp([]))


def test_a_bundles_source_is_fetched_from_it(tmp_path: Path, store: Store) -> None:
    loaded = bundle_folder.load_container(write_bundle(tmp_path / "b"), store)
    kernel = MadeUpKernel(tmp_path / "packages", loaded.bundle.kernel_version, "1-r1")
    with pytest.raises(UserInputError, match="is not at hand"):  # the same version, but another source
        bundle_kernel.source_of(loaded, store, MadeUp([kernel]))
    kernel.source = lambda store: SourceTree(tmp_path, SOURCE_DIGEST)  # type: ignore[method-assign]
    (tmp_path / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 7\n")
    assert bundle_kernel.source_of(loaded, store, MadeUp([kernel], lists="new")).path == tmp_path


def test_doctor_asks_it(distribution: MadeUp) -> None:
    found = host.check_packages(distribution)
    assert found.state is State.OK and found.found == "6.19.7 (also 6.20.1)"
    nothing = host.check_packages(MadeUp([]))
    assert nothing.state is State.MISSING and "fetch --lists" in nothing.fix
    without = host.check_packages(MadeUp([], why_not="no packages on Sundays"))
    assert (without.state, without.found) == (State.LIMITED, "no packages on Sundays")
    assert "--baseline-config" in without.fix


def test_a_host_that_cannot_ask_is_told_the_other_way(store: Store) -> None:
    for distribution in (MadeUp([], why_not="no packages on Sundays"), Unpackaged("strange")):
        with pytest.raises(HostError) as caught:
            packaged_baseline.provide(distribution, presumed(), store)
        assert "--baseline-config" in caught.value.hint
    with pytest.raises(HostError, match="no cloud kernel") as caught:
        packaged_baseline.provide(MadeUp([]), presumed(), store)
    assert "fetch --lists" in caught.value.hint


@pytest.mark.parametrize(
    ("ids", "name", "kind"),
    [(("debian",), "debian", Debian), (("ubuntu", "debian"), "debian", Debian), (("fedora",), "fedora", Unpackaged),
     ((), "", Unpackaged)],
)  # fmt: skip
def test_the_hosts_own_is_chosen_in_one_place(ids: tuple[str, ...], name: str, kind: type) -> None:
    found: Distribution = selection.of_host(ids)
    assert found.name == name and isinstance(found, kind)
    assert bool(found.lacking()) or name == "debian"


def test_one_can_be_named() -> None:
    assert selection.by_name("debian").name == "debian"
    with pytest.raises(UserInputError, match="fedora"):
        selection.by_name("fedora")


def test_hints_have_the_hosts_own_command() -> None:
    assert package_manager.install_command("gcc", "make", ids=("ubuntu", "debian")) == "apt-get install gcc make"
    assert package_manager.install_command("gcc", ids=("debian",), sure=True) == "apt-get install -y gcc"
    assert (
        package_manager.install_command("gcc", ids=("fedora",))
        == "install gcc (Debian's names) with this host's package manager"
    )


#: Words of Debian's package tools and of its kernels' packages.
WORDS = re.compile(r"\b(apt|apt-get|apt-cache|dpkg|dpkg-deb|linux-(image|source|headers)-\w*)\b|\.deb\b", re.I)
#: Images have package databases of their own, which are formats of images.
OF_IMAGES = "drivers/image/image_packages.py:"


def test_no_other_file_knows_a_package_manager() -> None:
    found = using(WORDS, outside="drivers/distribution")
    assert [one for one in found if not one.startswith(OF_IMAGES)] == []
