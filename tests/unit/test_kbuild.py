# SPDX-License-Identifier: Apache-2.0
"""The driver of the kernel's make, against a tree that only looks like a kernel."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import BuildError, HostError, UserInputError
from vmtailor.drivers.kernel import compiled_baseline, kernel_source, make
from vmtailor.drivers.kernel.kconfig_shell import KconfigShell
from vmtailor.drivers.kernel.make import HEADERS, Remaining, lost
from vmtailor.model.architecture import every, named
from vmtailor.model.change import Cause, Reason, symbol
from vmtailor.model.kernel import Configured, LostSymbol
from vmtailor.model.plan import Plan, RootFormat
from vmtailor.stages import build

TREE = Path(__file__).parent.parent / "fakes/make-tree"
TOOLCHAIN = make.Toolchain("x86_64", ccache=False)

pytestmark = pytest.mark.skipif(
    any(shutil.which(tool) is None for tool in ("make", "gcc", "flex", "bison", "bc")), reason="needs a compiler"
)


def plan(*fragment: tuple[str, str]) -> Plan:
    return Plan("6.99.3", "microvm", 1, RootFormat.EROFS, fragment, (), 0, 0)


def test_configure_tells_what_was_lost(tmp_path: Path) -> None:
    configured = make.configure(TREE, tmp_path / "o", [("NET", "y"), ("LOST", "y")], TOOLCHAIN)
    assert configured.lost == (LostSymbol("LOST", "y", "n"),)
    assert ("DEFAULT", "y") in configured.symbols
    with pytest.raises(BuildError, match="LOST=y became n"):
        make.compile_kernel(configured, ("vmlinux",), TOOLCHAIN)


def test_what_was_to_be_a_module_and_is_built_in_is_there() -> None:
    wanted = {"A": "m", "B": "y", "C": "m", "D": "n"}
    assert lost(wanted, {"A": "y", "B": "m", "D": "y"}) == (
        LostSymbol("B", "y", "m"), LostSymbol("C", "m", "n"), LostSymbol("D", "n", "y")
    )  # fmt: skip
    reason = Reason(Cause.DEMANDED, "x", "x")
    made = replace(plan(), changes=(symbol("A", "m", reason, before="m"), symbol("B", "y", reason, before="m")))
    configured = Configured("o", "s", "c", (("A", "y"), ("B", "m"), ("E", "y")), ())
    assert build.unplanned(made, configured) == ("B", "E")


def test_a_foreign_configuration_is_brought_up_to_date(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("CONFIG_NET=y\n# CONFIG_PCI is not set\n")
    configured = make.configure_file(TREE, tmp_path / "o", tmp_path / "theirs", TOOLCHAIN)
    assert dict(configured.symbols) == {"NET": "y", "DEFAULT": "y"}
    with pytest.raises(UserInputError):
        make.configure_file(TREE, tmp_path / "o", tmp_path / "none", TOOLCHAIN)


def test_a_compile_error_shows_its_lines(tmp_path: Path) -> None:
    configured = make.configure(TREE, tmp_path / "o", [("BROKEN", "y")], TOOLCHAIN)
    with pytest.raises(BuildError) as caught:
        make.compile_kernel(configured, ("vmlinux",), TOOLCHAIN)
    assert "init/main.c:1:2: error: broken as asked" in caught.value.details


def test_the_environment_of_a_build_is_fixed(tmp_path: Path) -> None:
    configured = make.configure(TREE, tmp_path / "o", [], TOOLCHAIN)
    compiled = make.compile_kernel(configured, ("vmlinux",), TOOLCHAIN)
    seen = dict(line.split("=", 1) for line in (compiled.build_dir / "environment").read_text().splitlines())
    assert {"KBUILD_BUILD_USER", "KBUILD_BUILD_HOST", "KBUILD_BUILD_VERSION", "KBUILD_BUILD_TIMESTAMP"} <= set(seen)
    assert seen["KBUILD_BUILD_VERSION"] == "1"
    assert compiled.objects == 2


def test_build_kernel_packs_records_and_caches(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    files = build.build_kernel(plan(("NET", "y")), TREE, "d1", store, toolchain=TOOLCHAIN)
    assert files.release == "6.99.3-fake"
    assert Path(files.image).stat().st_size == files.image_bytes < 100_000  # the 300 KB of zeros are left out
    assert 0 < files.packed_bytes < files.image_bytes
    assert "CONFIG_NET=y" in Path(files.config).read_text()
    shutil.rmtree(tmp_path / "cache/kernel-build")
    assert build.build_kernel(plan(("NET", "y")), TREE, "d1", store, toolchain=TOOLCHAIN) == files
    assert not (tmp_path / "cache/kernel-build").exists()
    other = build.build_kernel(plan(("NET", "y")), TREE, "d2", store, toolchain=TOOLCHAIN)
    assert other.image != files.image
    assert other.sha256 == files.sha256


def test_a_lost_symbol_is_named(tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        build.build_kernel(plan(("LOST", "y")), TREE, "d", Store(tmp_path), toolchain=TOOLCHAIN)
    assert "LOST: planned y, resolved to n" in caught.value.details


def test_an_interrupted_build_leaves_a_folder_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(make, "compile_kernel", interrupt)
        with pytest.raises(KeyboardInterrupt):
            build.build_kernel(plan(("NET", "y")), TREE, "d", store, toolchain=TOOLCHAIN)
    assert not list((tmp_path / "kernel").glob("*"))
    assert list((tmp_path / "kernel-build").iterdir())
    assert build.build_kernel(plan(("NET", "y")), TREE, "d", store, toolchain=TOOLCHAIN).image_bytes > 0


def test_the_version_of_a_source_is_held_against_the_baseline(tmp_path: Path) -> None:
    tree = kernel_source.provide(Store(tmp_path), str(TREE))
    assert tree.version == "6.99.3"
    kernel_source.require_version(tree, "6.99.3", "the baseline")
    with pytest.raises(UserInputError, match=r"is 6\.99\.3, but the baseline is 6\.12\.117"):
        kernel_source.require_version(tree, "6.12.117", "the baseline")


def test_sources_that_are_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    (tmp_path / "empty").mkdir()
    for given in ("nowhere", str(tmp_path / "empty")):
        with pytest.raises(UserInputError):
            kernel_source.provide(store, given)
    built_in = tmp_path / "built-in"
    shutil.copytree(TREE, built_in)
    (built_in / ".config").touch()
    with pytest.raises(UserInputError, match="has been built in"):
        kernel_source.provide(store, str(built_in))


def test_a_tarball_is_unpacked_once_and_its_checksum_held(tmp_path: Path) -> None:
    store = Store(tmp_path / "cache")
    tarball = Path(shutil.make_archive(str(tmp_path / "source"), "gztar", TREE.parent, TREE.name))
    tree = kernel_source.provide(store, str(tarball))
    assert tree.version == "6.99.3"
    assert kernel_source.provide(store, str(tarball)) == tree
    with pytest.raises(UserInputError, match="has SHA-256"):
        kernel_source.provide(store, f"{tarball},{'0' * 64}")
    broken = tmp_path / "broken.tar.gz"
    broken.write_bytes(tarball.read_bytes()[:200])
    with pytest.raises(UserInputError, match="cannot be unpacked"):
        kernel_source.provide(store, str(broken))


@pytest.mark.parametrize("given", [True, False])
def test_a_baseline_can_be_compiled(tmp_path: Path, given: bool) -> None:
    config = tmp_path / "config-6.99"
    config.write_text('CONFIG_FROM_THE_DISTRIBUTION=y\nCONFIG_SYSTEM_TRUSTED_KEYS="debian/certs.pem"\n')
    store = Store(tmp_path / "cache")
    baseline = compiled_baseline.provide(store, str(TREE), config if given else None)
    assert (baseline.version, baseline.release) == ("6.99.3", "6.99.3-fake")
    text = Path(baseline.config).read_text()
    assert ("CONFIG_FROM_THE_DISTRIBUTION=y" in text) == given
    assert ("CONFIG_kvm_guest_config=y" in text) == (not given)
    assert 'CONFIG_SYSTEM_TRUSTED_KEYS=""' in text and "CONFIG_DEBUG_INFO_DWARF_TOOLCHAIN_DEFAULT=y" in text
    assert [p.name for p in Path(baseline.debug_modules_dir).rglob("*.ko")] == ["virtio_blk.ko"]
    assert (Path(baseline.modules_dir) / "kernel/virtio_blk.ko").read_text() == "plain\n"
    for path in (baseline.vmlinuz, baseline.debug_vmlinux, baseline.system_map):
        assert Path(path).stat().st_size > 0
    shutil.rmtree(tmp_path / "cache/kernel-build")
    assert compiled_baseline.provide(store, str(TREE), config if given else None) == baseline


def test_what_cannot_be_a_baseline_is_said_before_the_compile(tmp_path: Path) -> None:
    config = tmp_path / "config-6.99"
    config.write_text("CONFIG_NO_FILE_SYSTEMS=y\n")
    with pytest.raises(UserInputError, match=r"does not allow .*\bEROFS_FS\b") as caught:
        compiled_baseline.provide(Store(tmp_path / "cache"), str(TREE), config)
    assert "VIRTIO_BLK" not in str(caught.value)
    assert not list((tmp_path / "cache").rglob("vmlinux"))


def test_progress_promises_no_time_once_the_guess_is_used_up() -> None:
    shown: list[tuple[float, str]] = []
    step: Any = SimpleNamespace(update=lambda done, total, text: shown.append((done / total, text)))
    progress = Remaining({}, 2)
    lines = ("  CC      init/main.o", "  UPD     include/x.h", "  CC      init/version.o", "  CC      init/more.o")
    for number, line in enumerate(lines):
        make._show(progress, line, 20.0 * number, step)
    assert [round(share, 2) for share, _ in shown] == [0.0, 0.49, 0.99]
    assert "left" in shown[1][1] and "more than the 2 expected" in shown[2][1] and "left" not in shown[2][1]


def test_objects_weigh_what_their_sources_do_unless_they_are_there(tmp_path: Path) -> None:
    source, build = tmp_path / "source", tmp_path / "build"
    for folder in (source, build):
        folder.mkdir()
    for name, size in (("there.c", 1), ("stale.c", 10), ("new.S", 300)):
        (source / name).write_text("x" * size)
    for name in ("there.o", "stale.o"):
        (build / name).touch()
    found = make._weights(source, build, ["there", "stale", "new", "only-a-header"], {"stale"})
    assert found == {"stale": HEADERS + 10, "new": HEADERS + 300}


def test_the_guess_comes_from_earlier_builds(tmp_path: Path) -> None:
    folder = tmp_path / "one"
    (folder / "init").mkdir(parents=True)
    for name in ("main.o", "main.c", ".main.o.cmd", "version.o"):
        (folder / "init" / name).touch()
    assert make._objects_in(folder) == 2
    assert make._expected_objects(folder, 500) == 1000
    make._remember_objects(folder, 500, 900)
    assert make._expected_objects(folder, 510) == 918


def test_objects_that_a_changed_symbol_makes_stale_are_counted(tmp_path: Path) -> None:
    assert make._stale(tmp_path, {"NET": "y"}) == set()  # never built
    (tmp_path / "include/config").mkdir(parents=True)
    (tmp_path / "include/config/auto.conf").write_text("CONFIG_NET=y\nCONFIG_HZ=250\n")
    for name, asked in (("one", ("NET", "SMP")), ("two", ("HZ",)), ("three", ("NETFILTER",)), ("four", ())):
        text = "".join(f"    $(wildcard include/config/{symbol}) \\\n" for symbol in asked)
        (tmp_path / f".{name}.o.cmd").write_text(f"savedcmd_{name}.o := gcc\n{text}")
    assert make._stale(tmp_path, {"NET": "y", "HZ": "250"}) == set()
    assert make._stale(tmp_path, {"NET": "y", "HZ": "250", "SMP": "n"}) == set()
    assert make._stale(tmp_path, {"NET": "y", "HZ": "250", "SMP": "y"}) == {"one"}
    assert make._stale(tmp_path, {"HZ": "1000"}) == {"one", "two"}


def test_a_packed_size_is_that_of_the_kernels_own_packing(tmp_path: Path) -> None:
    """Calls of one function from many places: with the processor's filter they become alike."""
    calls = b"".join(b"\xe8" + (100_000 - 5 * number).to_bytes(4, "little") for number in range(2_000))
    (tmp_path / "image").write_bytes(calls)
    ours, others = (build.packed_bytes(named(name), tmp_path / "image") for name in ("x86_64", "arm64"))
    assert ours < others / 2
    xz = ["xz", "--check=crc32", "--x86", "--lzma2=dict=32MiB", "-c", str(tmp_path / "image")]
    assert ours == len(subprocess.run(xz, check=True, capture_output=True).stdout)


@pytest.mark.parametrize("name", [row.name for row in every()])
@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_a_compiler_that_is_missing_names_its_own_package(
    name: str, machine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a cross compiler that is not `gcc`, wherever it is first asked for."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("vmtailor.base.process.on_path", lambda program: None)
    (tmp_path / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 7\n")
    row = named(name)
    package = "gcc" if row.is_host else row.kernel.cross_packages[0]
    program = "gcc" if row.is_host else f"{row.kernel.cross}gcc"
    for asked in (make.Toolchain.of(row).describe, lambda: KconfigShell(tmp_path, architecture=row)):
        with pytest.raises(HostError, match=f"'{program}' is not installed") as caught:
            asked()
        assert f"install {package} " in caught.value.hint
