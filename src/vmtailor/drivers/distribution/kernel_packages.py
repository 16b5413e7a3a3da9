# SPDX-License-Identifier: Apache-2.0
"""The baseline from the distribution's packages, without root: cloud kernel, its debug symbols, its source.

Debian packages one kernel as three: `linux-image-RELEASE-cloud-ARCH-unsigned` (the same code as the signed one),
`…-dbg`, and `linux-source-SERIES`. Only a version for which all three are there can be a baseline, because addresses
are resolved through the second and conditions are read from the third.
"""

from __future__ import annotations

import lzma
import re
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base import records
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.progress import step
from vmtailor.base.store import Store, digest
from vmtailor.drivers.distribution import apt
from vmtailor.drivers.distribution.apt import Package
from vmtailor.drivers.kernel import kernel_source
from vmtailor.model.architecture import Architecture, named, presumed
from vmtailor.model.kernel import KernelBaseline

#: Series we know well, best first; others are taken only when asked for by name.
SERIES = ("6.12", "6.1")

#: Modules whose debug information is unpacked with vmlinux: what a virtual machine's boot loads, or a container.
DEBUG_MODULES = (
    "virtio_mmio", "virtio_blk", "virtio_net", "virtio_console", "virtio_rng", "net_failover", "failover",
    "erofs", "netfs", "lz4hc_compress", "squashfs", "ext4", "jbd2", "mbcache", "crc16", "crc32c_generic", "libcrc32c",
    "overlay", "af_packet", "unix", "ipv6", "autofs4", "fuse", "tun", "veth", "bridge",
    "binfmt_misc", "dimlib", "crct10dif_common", "crct10dif_generic",
)  # fmt: skip

# Part of every key: raise it when what is unpacked changes.
_LAYOUT = "1"


def debug_modules_of(row: Architecture) -> tuple[str, ...]:
    """The same for one architecture."""
    return (*DEBUG_MODULES, *row.packages.debug_modules)


@dataclass(frozen=True)
class KernelPackages:
    """The three packages of one kernel. `series` is 6.12, `version` upstream's 6.12.117."""

    series: str
    version: str
    release: str
    image: Package
    debug: Package
    source: Package

    @property
    def origin(self) -> tuple[str, ...]:
        return (str(self.image), str(self.debug), str(self.source))


def combine(packages: Iterable[Package], row: Architecture | None = None) -> tuple[KernelPackages, ...]:
    """All kernels of an architecture whose image, debug and source packages have one version; newest first."""
    names = (row or presumed()).packages
    pattern = re.compile(
        rf"linux-image-(?P<release>(?P<series>\d+\.\d+)\S*-{re.escape(names.flavour)}){re.escape(names.suffix)}"
    )
    by_key = {(p.name, p.version): p for p in packages}
    found = []
    for (name, version), image in by_key.items():
        match = pattern.fullmatch(name)
        if match is None:
            continue
        debug = by_key.get((f"linux-image-{match['release']}-dbg", version))
        source = by_key.get((f"linux-source-{match['series']}", version))
        if debug is not None and source is not None:
            upstream = version.split("-")[0]
            found.append(KernelPackages(match["series"], upstream, match["release"], image, debug, source))
    return tuple(sorted(found, key=lambda k: apt.version_key(k.image.version), reverse=True))


def select(kernels: Iterable[KernelPackages], wanted: str | None = None) -> KernelPackages:
    """One kernel: the newest of the preferred series, or what `wanted` names: a series (6.12), a version (6.12.117), a
    release or a package version.

    Raises UserInputError when nothing fits `wanted`, HostError when nothing is packaged completely.
    """
    ordered = sorted(kernels, key=lambda k: apt.version_key(k.image.version), reverse=True)
    if wanted:
        for kernel in ordered:
            if wanted in (kernel.series, kernel.version, kernel.release, kernel.image.version):
                return kernel
        there = ", ".join(dict.fromkeys(f"{k.version}" for k in ordered)) or "none"
        raise UserInputError(
            f"no packaged cloud kernel '{wanted}' with debug symbols and source of the same version",
            hint=f"complete here: {there}; or refresh the lists as root: apt-get update",
        )
    for series in SERIES:
        for kernel in ordered:
            if kernel.series == series:
                return kernel
    raise HostError(
        "no cloud kernel is packaged with debug symbols and source of the same version",
        hint="as root, run: apt-get update; or have the baseline compiled once: --source, --baseline-config",
    )


def available(row: Architecture | None = None) -> tuple[KernelPackages, ...]:
    """What this host's package lists offer, newest first. Raises HostError when there are no lists."""
    row = row or presumed()
    flavour, suffix = re.escape(row.packages.flavour), re.escape(row.packages.suffix)
    return combine(apt.packaged(rf"^linux-(image-[0-9].*-{flavour}({suffix}|-dbg)|source-[0-9][0-9.]*)$"), row)


def provide(
    store: Store,
    wanted: str | None = None,
    *,
    debug_modules: Collection[str] | None = None,
    source: str | None = None,
    architecture: str | None = None,
) -> KernelBaseline:
    """The baseline, from the cache where it is there already. `source` replaces the packaged source (kernel_source).

    Every package is a step of its own, so that an interrupted run goes on with the next one. Raises HostError for
    lists, network and disk, UserInputError when nothing fits `wanted` or the source is of another version.
    """
    # Asking apt takes seconds; its answer holds until its lists change.
    row = presumed() if architecture is None else named(architecture)
    modules = debug_modules_of(row) if debug_modules is None else debug_modules
    key = digest(_LAYOUT, row.packages.flavour, apt.state(), wanted or "", *sorted(modules))
    memo = store.root / "baselines" / f"{key}.json"
    if source is None and memo.exists():
        known = records.load(KernelBaseline, memo)
        if all(
            Path(path).exists() for path in (known.vmlinuz, known.debug_vmlinux, known.source_dir, known.modules_dir)
        ):
            return known
    baseline = _provide(store, select(available(row), wanted), modules, source)
    if source is None:
        records.save(baseline, memo, private=True)
    return baseline


def _provide(
    store: Store, kernel: KernelPackages, debug_modules: Collection[str], source: str | None
) -> KernelBaseline:
    image = _unpack_image(kernel, store)
    debug = _unpack_debug(kernel, store)
    modules = _unpack_debug_modules(kernel, store, frozenset(debug_modules))
    tree = kernel_source.provide(store, source) if source else packaged_source(store, kernel)
    kernel_source.require_version(tree, kernel.version, f"the baseline ({kernel.image})")
    return KernelBaseline(
        version=kernel.version,
        release=kernel.release,
        vmlinuz=str(image / "vmlinuz"),
        config=str(image / "config"),
        system_map=str(debug / "System.map"),
        modules_dir=str(image / "modules"),
        debug_vmlinux=str(debug / "vmlinux"),
        debug_modules_dir=str(modules),
        source_dir=str(tree.path),
        source_digest=tree.digest,
        origin=kernel.origin if source is None else (*kernel.origin[:2], f"source {source}"),
    )


def with_debug_modules(
    baseline: KernelBaseline, store: Store, names: Iterable[str], architecture: str | None = None
) -> KernelBaseline:
    """The same baseline with debug information for these modules too (a workload loaded what nobody expected)."""
    wanted = frozenset(names)
    missing = wanted - {path.stem.replace("-", "_") for path in Path(baseline.debug_modules_dir).rglob("*.ko")}
    if not missing:
        return baseline
    row = presumed() if architecture is None else named(architecture)
    kernel = next((k for k in available(row) if k.origin[0] == baseline.origin[0]), None)
    if kernel is None:
        return baseline
    return replace(
        baseline, debug_modules_dir=str(_unpack_debug_modules(kernel, store, frozenset(debug_modules_of(row)) | wanted))
    )


def _unpack_image(kernel: KernelPackages, store: Store) -> Path:
    def fill(folder: Path) -> None:
        deb = apt.download(kernel.image, store)
        top = f"lib/modules/{kernel.release}/"

        def place(name: str) -> Path | None:
            name = name.removeprefix("usr/")
            if name == f"boot/vmlinuz-{kernel.release}":
                return folder / "vmlinuz"
            if name == f"boot/config-{kernel.release}":
                return folder / "config"
            return folder / "modules" / name.removeprefix(top) if name.startswith(top) and ".." not in name else None

        with step(f"unpacking {kernel.image.name}"):
            for path in apt.extract(deb, place):
                if path.name.endswith(".ko.xz"):
                    with lzma.open(path) as packed, path.with_suffix("").open("wb") as plain:
                        shutil.copyfileobj(packed, plain, 1 << 20)
                    path.unlink()
        _require_files(folder, ("vmlinuz", "config", "modules"), kernel.image)

    return store.get("kernel-image", digest(_LAYOUT, kernel.image.sha256), fill)


def _unpack_debug(kernel: KernelPackages, store: Store) -> Path:
    def fill(folder: Path) -> None:
        deb = apt.download(kernel.debug, store)
        with step(f"unpacking the debug symbols of {kernel.release}"):
            for base in ("vmlinux", "System.map"):
                _extract_one(deb, f"usr/lib/debug/boot/{base}-{kernel.release}", folder / base)
        _require_files(folder, ("vmlinux", "System.map"), kernel.debug)

    return store.get("kernel-debug", digest(_LAYOUT, kernel.debug.sha256), fill)


def _extract_one(deb: Path, name: str, target: Path) -> None:
    """One file; reading stops behind it, which saves most of a large package."""
    with apt.opened(deb) as archive:
        for member in archive:
            if member.isfile() and member.name.removeprefix("./") == name:
                source = archive.extractfile(member)
                assert source is not None
                with target.open("wb") as file:
                    shutil.copyfileobj(source, file, 1 << 20)
                return


def _unpack_debug_modules(kernel: KernelPackages, store: Store, names: frozenset[str]) -> Path:
    # The module virtio_blk lives in virtio_blk.ko, but dash and underscore mean the same to the kernel.
    wanted = {name.replace("-", "_") for name in names}

    def fill(folder: Path) -> None:
        deb = apt.download(kernel.debug, store)
        top = f"usr/lib/debug/lib/modules/{kernel.release}/"

        def place(name: str) -> Path | None:
            if not name.startswith(top) or not name.endswith(".ko") or ".." in name:
                return None
            return folder / name.removeprefix(top) if Path(name).stem.replace("-", "_") in wanted else None

        with step(f"unpacking debug symbols of {len(wanted)} modules") as progress:
            apt.extract(deb, place, on_bytes=lambda done: progress.update(float(done)))

    return store.get("kernel-debug-modules", digest(_LAYOUT, kernel.debug.sha256, *sorted(wanted)), fill)


def packaged_source(store: Store, kernel: KernelPackages) -> kernel_source.SourceTree:
    """The unpacked source package of a kernel. Raises HostError for network and disk."""
    key = digest(_LAYOUT, kernel.source.sha256)

    def fill(folder: Path) -> None:
        deb = apt.download(kernel.source, store)
        tarball = folder / ".source.tar.xz"
        _extract_one(deb, f"usr/src/linux-source-{kernel.series}.tar.xz", tarball)
        if not tarball.exists():
            raise HostError(f"{kernel.source} holds no source", hint="choose another with --kernel")
        kernel_source.unpack(tarball, folder, f"{kernel.source}")
        tarball.unlink()

    return kernel_source.SourceTree(store.get("kernel-source", key, fill), key)


def _require_files(folder: Path, names: Iterable[str], package: Package) -> None:
    for name in names:
        if not (folder / name).exists():
            raise HostError(
                f"{package} holds no {name}", hint="choose another kernel with --kernel, and please report this"
            )
