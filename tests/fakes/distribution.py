# SPDX-License-Identifier: Apache-2.0
"""A made-up distribution: kernels as they lie in a folder, versions that are ordered by their last number."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.architecture import Architecture

MAKEFILE = "VERSION = {}\nPATCHLEVEL = {}\nSUBLEVEL = {}\n"


@dataclass
class MadeUpKernel:
    """A PackagedKernel whose parts are written when they are asked for. `asked`: which were, in order."""

    folder: Path
    version: str
    package_version: str
    prerelease: bool = False
    asked: list[str] = field(default_factory=list)

    @property
    def series(self) -> str:
        return ".".join(self.version.split(".")[:2])

    @property
    def release(self) -> str:
        return f"{self.version}-virt"

    @property
    def packages(self) -> tuple[str, ...]:
        return (f"kernel-virt {self.package_version}", f"kernel-virt-symbols {self.package_version}")

    @property
    def source_package(self) -> str:
        return f"kernel-source {self.package_version}"

    def image(self, store: Store) -> Path:
        return self._written("image", {"vmlinuz": "", "config": "CONFIG_NET=y\n", "modules/kernel/a.ko": ""})

    def debug(self, store: Store) -> Path:
        return self._written("debug", {"vmlinux": "", "System.map": "ffffffff81000000 T startup_64\n"})

    def debug_modules(self, store: Store, names: Collection[str]) -> Path:
        return self._written("modules", {f"{name.replace('-', '_')}.ko": "" for name in names})

    def source(self, store: Store) -> SourceTree:
        return SourceTree(self._written("source", {"Makefile": MAKEFILE.format(*self.version.split("."))}), "5" * 64)

    def _written(self, part: str, files: dict[str, str]) -> Path:
        self.asked.append(part)
        place = self.folder / self.version / part
        for name, text in files.items():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text(text)
        return place


@dataclass
class MadeUp:
    """A Distribution. `why_not`: what it lacks."""

    offered: list[MadeUpKernel]
    name: str = "made-up"
    refresh: str = "fetch --lists"
    why_not: str = ""
    lists: str = "of today"

    def lacking(self) -> str:
        return self.why_not

    def state(self, row: Architecture) -> str:
        return self.lists

    def kernels(self, row: Architecture) -> Sequence[MadeUpKernel]:
        return self.offered

    def program(self, row: Architecture, package: str, name: str, store: Store) -> Path:
        raise NotImplementedError

    def version_key(self, version: str) -> int:
        return int(version.rpartition("r")[2])


def made_up(folder: Path) -> MadeUp:
    """Two kernels; the higher number is the older package, as the distribution orders them."""
    return MadeUp([MadeUpKernel(folder, "6.20.1", "6.20.1-r3"), MadeUpKernel(folder, "6.19.7", "6.19.7-r10")])
