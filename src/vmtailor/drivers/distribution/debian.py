# SPDX-License-Identifier: Apache-2.0
"""Debian's kernels for virtual machines.

One kernel is three packages: `linux-image-RELEASE-cloud-ARCH-unsigned` (the same code as the signed one), `…-dbg`, and
`linux-source-SERIES`. The package lists say which series exist."""

from __future__ import annotations

import lzma
import re
import shutil
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import HostError
from vmtailor.base.notation import module_name
from vmtailor.base.process import on_path
from vmtailor.base.progress import step
from vmtailor.drivers.distribution import apt, apt_lists, debian_packages
from vmtailor.drivers.distribution.apt_lists import HOST, Lists
from vmtailor.drivers.distribution.debian_packages import Package
from vmtailor.drivers.kernel import kernel_source
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import Architecture

# Part of every key: raise it when what is unpacked changes.
_LAYOUT = "1"


@dataclass(frozen=True)
class DebianKernel:
    """The three packages of one kernel (a PackagedKernel), and the lists that they are in."""

    series: str
    version: str
    release: str
    image_package: Package
    debug_package: Package
    whole_source: Package
    lists: Lists = HOST

    @property
    def package_version(self) -> str:
        """Return Debian's version: 6.12.117-1~deb12u1."""
        return self.image_package.version

    @property
    def prerelease(self) -> bool:
        """Return whether upstream had not released it: 6.18~rc1-1."""
        return "~rc" in self.package_version

    @property
    def packages(self) -> tuple[str, ...]:
        """Image and debug symbols."""
        return (str(self.image_package), str(self.debug_package))

    @property
    def source_package(self) -> str:
        """Return the package of the source."""
        return str(self.whole_source)

    def image(self, store: Store) -> Path:
        """Return kernel, configuration and modules."""

        def fill(folder: Path) -> None:
            deb = apt.download(self.image_package, store, self.lists)
            top = f"lib/modules/{self.release}/"

            def place(name: str) -> Path | None:
                name = name.removeprefix("usr/")
                # The package gives this name to a kernel that is not packed.
                if name in (f"boot/vmlinuz-{self.release}", f"boot/vmlinux-{self.release}"):
                    return folder / "vmlinuz"
                if name == f"boot/config-{self.release}":
                    return folder / "config"
                inside = name.startswith(top) and ".." not in name
                return folder / "modules" / name.removeprefix(top) if inside else None

            with step(f"unpacking {self.image_package.name}"):
                for path in debian_packages.extract(deb, place):
                    if path.name.endswith(".ko.xz"):
                        _unpack_module(path)
            _require_files(folder, ("vmlinuz", "config", "modules"), self.image_package)

        return store.get("kernel-image", digest(_LAYOUT, self.image_package.sha256), fill)

    def debug(self, store: Store) -> Path:
        """Return the kernel with debug information, and its symbols."""

        def fill(folder: Path) -> None:
            deb = apt.download(self.debug_package, store, self.lists)
            with step(f"unpacking the debug symbols of {self.release}"):
                for base in ("vmlinux", "System.map"):
                    debian_packages.extract_one(deb, f"usr/lib/debug/boot/{base}-{self.release}", folder / base)
            _require_files(folder, ("vmlinux", "System.map"), self.debug_package)

        return store.get("kernel-debug", digest(_LAYOUT, self.debug_package.sha256), fill)

    def debug_modules(self, store: Store, names: Collection[str]) -> Path:
        """Return these modules with debug information."""
        wanted = set(map(module_name, names))

        def fill(folder: Path) -> None:
            deb = apt.download(self.debug_package, store, self.lists)
            top = f"usr/lib/debug/lib/modules/{self.release}/"

            def place(name: str) -> Path | None:
                if not name.startswith(top) or not name.endswith(".ko") or ".." in name:
                    return None
                return folder / name.removeprefix(top) if module_name(Path(name).stem) in wanted else None

            with step(f"unpacking debug symbols of {len(wanted)} modules") as progress:
                debian_packages.extract(deb, place, on_bytes=lambda done: progress.update(float(done)))

        return store.get("kernel-debug-modules", digest(_LAYOUT, self.debug_package.sha256, *sorted(wanted)), fill)

    def source(self, store: Store) -> SourceTree:
        """Return the unpacked source package."""
        key = digest(_LAYOUT, self.whole_source.sha256)

        def fill(folder: Path) -> None:
            deb = apt.download(self.whole_source, store, self.lists)
            tarball = folder / ".source.tar.xz"
            debian_packages.extract_one(deb, f"usr/src/linux-source-{self.series}.tar.xz", tarball)
            if not tarball.exists():
                raise HostError(f"{self.whole_source} does not contain the source", hint="choose another with --kernel")
            kernel_source.unpack(tarball, folder, f"{self.whole_source}")
            tarball.unlink()

        return SourceTree(store.get("kernel-source", key, fill), key)


class Debian:
    """Debian's packages, by apt's lists (a Distribution)."""

    name = "debian"
    refresh = apt_lists.REFRESH

    def lacking(self) -> str:
        """Return why there is no apt to ask; empty where there is one."""
        return "" if on_path("apt-cache") else "this host has no apt"

    def state(self, architecture: Architecture) -> str:
        """Return the lists' names, sizes and times."""
        return apt_lists.known(architecture).state()

    def kernels(self, architecture: Architecture) -> Sequence[DebianKernel]:
        """Return all kernels of the architecture's flavour whose three packages exist in the configured sources. If
        these have none, the architecture's own lists are used, and fetched if needed."""
        flavour, suffix = re.escape(architecture.packages.flavour), re.escape(architecture.packages.suffix)
        pattern = rf"^linux-(image-[0-9].*-{flavour}({suffix}|-dbg)|source-[0-9][0-9.]*)$"
        lists = apt_lists.of(architecture)
        return combine(apt.packaged(pattern, lists), architecture, lists)

    def program(self, architecture: Architecture, package: str, name: str, store: Store) -> Path:
        """Return one program with the libraries of its packages, unpacked."""
        lists = apt_lists.of(architecture)
        packages = apt.with_what_it_needs(package, lists)

        def fill(folder: Path) -> None:
            def place(path: str) -> Path | None:
                base = path.rpartition("/")[2]
                if path == f"usr/bin/{name}":
                    return folder / name
                is_library = path.removeprefix("usr/").startswith("lib/") and ".so" in base and "/gconv/" not in path
                return folder / "lib" / base if is_library else None

            for one in packages:
                debian_packages.extract(apt.download(one, store, lists), place)
            _require_files(folder, (name,), next(one for one in packages if one.name == package))

        return store.get("programs", digest(_LAYOUT, name, *sorted(one.sha256 for one in packages)), fill)

    def version_key(self, version: str) -> Any:
        """Return the key that sorts versions as dpkg does."""
        return debian_packages.version_key(version)


def combine(packages: Iterable[Package], architecture: Architecture, lists: Lists = HOST) -> tuple[DebianKernel, ...]:
    """Return all kernels of an architecture whose image, debug and source packages have one version."""
    flavour, suffix = re.escape(architecture.packages.flavour), re.escape(architecture.packages.suffix)
    pattern = re.compile(rf"linux-image-(?P<release>(?P<series>\d+\.\d+)\S*-{flavour}){suffix}")
    by_key = {(p.name, p.version): p for p in packages}
    found = []
    for (name, version), image in by_key.items():
        match = pattern.fullmatch(name)
        if match is None:
            continue
        debug = by_key.get((f"linux-image-{match['release']}-dbg", version))
        source = by_key.get((f"linux-source-{match['series']}", version))
        if debug is not None and source is not None:
            upstream = debian_packages.upstream_version(version)
            found.append(
                DebianKernel(
                    series=match["series"],
                    version=upstream,
                    release=match["release"],
                    image_package=image,
                    debug_package=debug,
                    whole_source=source,
                    lists=lists,
                )
            )
    return tuple(found)


def _unpack_module(packed_path: Path) -> None:
    with lzma.open(packed_path) as packed, packed_path.with_suffix("").open("wb") as plain:
        shutil.copyfileobj(packed, plain, 1 << 20)
    packed_path.unlink()


def _require_files(folder: Path, names: Iterable[str], package: Package) -> None:
    for name in names:
        if not (folder / name).exists():
            raise HostError(
                f"{package} does not contain {name}", hint="choose another kernel with --kernel, and please report this"
            )
