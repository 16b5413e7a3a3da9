# SPDX-License-Identifier: Apache-2.0
"""A system's own kernel, copied so that a machine can be started with it from outside, as its loader would."""

from __future__ import annotations

import lzma
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import zstandard

from vmtailor.analysis.systems.kernels import module_paths
from vmtailor.analysis.systems.root import RootTree
from vmtailor.base.errors import UserInputError
from vmtailor.base.notation import module_name
from vmtailor.drivers.rootfs.initramfs import archive
from vmtailor.drivers.rootfs.small_initrd import DEVICE_MAPPER, FILE_SYSTEMS, TRANSPORTS
from vmtailor.model.systems.system import System

#: Longest kernel, initial RAM disk and module that are taken out.
_MOST_KERNEL, _MOST_INITRD, _MOST_MODULE = 256 << 20, 512 << 20, 64 << 20
#: Modules that depend on each other lie no deeper.
_MOST_DEPTH = 64
#: Found in the bytes as they are: no table of a stranger's file is followed.
_DEPENDS = re.compile(rb"\0depends=([^\0]{1,4096})\0")


@dataclass(frozen=True)
class OwnKernel:
    """A system's own kernel, on the host. `initrd`: ours if the system has none of its own."""

    kernel: Path
    initrd: Path
    words: tuple[str, ...]


def taken_out(subject: System, root: RootTree, small_init: Path, out: Path) -> OwnKernel:
    """Copy the kernel that starts by default, and its initial RAM disk, into the folder `out`. A system without one
    gets a small one of ours, with its own modules. Raises UserInputError when the kernel or its modules are missing."""
    own = subject.installed
    if own is None or not own.image:
        raise UserInputError(
            f"{subject.reference} has no kernel of its own", hint="give one: --kernel, --initrd, --append"
        )
    out.mkdir(parents=True, exist_ok=True)
    kernel, initrd = out / "kernel", out / "initrd"
    kernel.write_bytes(root.read(own.image, _MOST_KERNEL))
    words = subject.entry.words if subject.entry is not None else (subject.root_word,)
    wanted = subject.entry.initrd if subject.entry is not None and subject.entry.initrd else (own.initrd,)
    parts = [root.read(path, _MOST_INITRD) for path in wanted if path]
    if any(parts):
        initrd.write_bytes(b"".join(part + bytes(-len(part) % 4) for part in parts))
        return OwnKernel(kernel, initrd, words)
    initrd.write_bytes(archive(_modules(root, own.release, way_in(subject)), small_init.read_bytes()))
    return OwnKernel(kernel, initrd, words)


def way_in(subject: System) -> tuple[str, ...]:
    """Return the names of modules that lead to a system's root, where a kernel has them as modules."""
    disk = subject.disk
    mapper = (DEVICE_MAPPER,) if disk is not None and disk.root_volume else ()
    return (*TRANSPORTS, *mapper, *FILE_SYSTEMS.get(disk.root_type if disk is not None else "", FILE_SYSTEMS["ext4"]))


def _modules(root: RootTree, release: str, wanted: Iterable[str]) -> list[tuple[str, bytes]]:
    """Return the wanted modules of a release, as (name, ELF content), each after its dependencies.
    Code that is built into the kernel is no module, and left out."""
    paths = module_paths(root, release)
    order: dict[str, bytes] = {}
    visiting: set[str] = set()

    def visit(name: str, depth: int) -> None:
        if name in order or name in visiting or name not in paths or depth > _MOST_DEPTH:
            return
        visiting.add(name)
        content = _unpacked(root.read(paths[name], _MOST_MODULE), paths[name])
        for needed in _DEPENDS.findall(content):
            for one in needed.decode("ascii", "replace").split(","):
                visit(module_name(one), depth + 1)
        order[name] = content

    for name in wanted:
        visit(name, 0)
    return list(order.items())


def _unpacked(data: bytes, path: str) -> bytes:
    """Return a module's ELF file. It is a stranger's: no more than a module may have is unpacked."""
    try:
        if path.endswith(".xz"):
            content = lzma.LZMADecompressor().decompress(data, _MOST_MODULE)
        elif path.endswith(".gz"):
            content = zlib.decompressobj(31).decompress(data, _MOST_MODULE)
        elif path.endswith(".zst"):
            content = zstandard.ZstdDecompressor().decompress(data, _MOST_MODULE)
        else:
            content = data
    except (lzma.LZMAError, zlib.error, zstandard.ZstdError, EOFError) as error:
        raise UserInputError(f"the system's module {path} is damaged", hint="install its kernel again") from error
    if not content.startswith(b"\x7fELF"):
        raise UserInputError(f"the system's module {path} is damaged", hint="install its kernel again")
    return content
