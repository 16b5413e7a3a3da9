# SPDX-License-Identifier: Apache-2.0
"""Kernels: the baseline that we start from, a configuration as it resolved, the files that a build gives, and the
images that they serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from vmtailor.base.files.portable import FileName
from vmtailor.model.margin import Margin


@dataclass(frozen=True)
class KernelBaseline:
    """The kernel that is traced, with all that attribution needs. Paths are absolute, files in the cache.

    `version` is upstream's (6.12.117), `release` what `uname -r` says. `modules_dir` holds the `kernel/` tree of the
    release, modules uncompressed; `debug_modules_dir` the same with debug information, where it was asked for.
    `origin` names packages with their versions, or the source tree it was compiled from.
    """

    SCHEMA: ClassVar[str] = "vmtailor/kernel-baseline/1"

    version: str
    release: str
    vmlinuz: FileName
    config: FileName
    system_map: FileName
    modules_dir: FileName
    debug_vmlinux: FileName
    debug_modules_dir: FileName
    source_dir: FileName
    source_digest: str
    origin: tuple[str, ...]


@dataclass(frozen=True)
class LostSymbol:
    """A symbol that did not resolve as requested. Values as in .config, `n` for not set."""

    name: str
    wanted: str
    got: str


@dataclass(frozen=True)
class Configured:
    """A build folder with its resolved .config. `symbols` holds all that is not `n`; `lost` must be empty to build."""

    SCHEMA: ClassVar[str] = "vmtailor/configured/1"

    build_dir: str
    source_dir: str
    config: str
    symbols: tuple[tuple[str, str], ...]
    lost: tuple[LostSymbol, ...]

    @property
    def total_y(self) -> int:
        return sum(1 for _, value in self.symbols if value == "y")


# vmtailor/kernel-files/1: the size packed with xz was that of xz without options.
@dataclass(frozen=True)
class KernelFiles:
    """A built kernel. `image` is the very file that is booted; the compressed sizes are of this file, for comparison:
    `packed_bytes` as the kernel's own build packs with xz.

    `system_map` has the addresses of all symbols. `sha256` is of `image`. `seconds` is the time of this compile.
    `unplanned` lists symbols that resolved to y or m without the plan saying so; `zstd_bytes` is None where no zstd is.
    """

    SCHEMA: ClassVar[str] = "vmtailor/kernel-files/2"

    release: str
    image: FileName
    image_bytes: int
    zstd_bytes: int | None
    packed_bytes: int
    config: FileName
    system_map: FileName
    sha256: str
    compiler: str
    objects_compiled: int
    seconds: float
    unplanned: tuple[str, ...] = ()


@dataclass(frozen=True)
class KernelInputs:
    """All that a kernel was compiled from, beside the compiler: enough to compile it again. `source_digest`: names the
    content of its source. `fragment`: symbol and value. `patches`: id and digest."""

    SCHEMA: ClassVar[str] = "vmtailor/kernel-inputs/1"

    architecture: str
    kernel_version: str
    source_digest: str
    fragment: tuple[tuple[str, str], ...]
    flags: tuple[str, ...] = ()
    patches: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class KernelUse:
    """An image that a kernel serves, and the margins it was fitted with."""

    reference: str
    digest: str
    margins: tuple[Margin, ...]


@dataclass(frozen=True)
class KernelUses:
    """The note beside a kernel in the cache: its identity, and the images that it serves, the one it was made for
    first. If there are many, only the first and the last are named; `more` are not."""

    SCHEMA: ClassVar[str] = "vmtailor/kernel-uses/1"

    version: str
    architecture: str
    symbols_prompted: int
    symbols_y: int
    kernel_bytes: int
    images: tuple[KernelUse, ...] = ()
    more: int = 0


@dataclass(frozen=True)
class FoundKernel:
    """The origin of a fit's kernel: compiled for it, or found in the cache. `made_for` is the image that it was made
    for, empty where that is not known. `serves` counts the images that it serves, this one included."""

    cached: bool
    made_for: str
    serves: int
    digest: str
