# SPDX-License-Identifier: Apache-2.0
"""Initial RAM disks: an archive in the kernel's cpio format, and the one that boots a packaged kernel.

The writer is our own (docs/decisions/0010-initramfs-writer.md). The cpio program archives files of the host's disk with
their inode numbers, times and owners. It cannot make device nodes without root."""

from __future__ import annotations

import fnmatch
import gzip
import lzma
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import zstandard

from vmtailor.base.errors import HostError
from vmtailor.base.files import elf
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.base.notation import module_name
from vmtailor.model.architecture import Board
from vmtailor.model.plan import RootFormat
from vmtailor.model.trace import ModuleRequest

#: As much as a module may be once it is unpacked.
_MOST_MODULE = 64 << 20
#: Modules that the machines need of a kernel. One that is built in, or that a kernel does not have, is
#: passed over; what cannot be done without is missed when the root disk does not appear.
WANTED = (
    "virtio_mmio", "virtio_pci", "virtio_blk", "virtio_net", "virtio_rng",
    "erofs", "squashfs", "ext4", "overlay",
)  # fmt: skip


def wanted_by(machine: Board, root: RootFormat, *, network: bool = False) -> tuple[str, ...]:
    """Return the modules that one machine with such a root needs, and no more: those that a fair baseline loads."""
    return (*machine.modules, "virtio_blk", *(("virtio_net",) if network else ()), root.value, "overlay")


_REGULAR, _DIRECTORY, _CHARACTER = 0o100000, 0o040000, 0o020000


@dataclass(frozen=True)
class ArchiveEntry:
    """One member. `path` has no leading slash; `mode` includes the file type; `device` for nodes (major, minor)."""

    path: str
    mode: int
    data: bytes = b""
    device: tuple[int, int] = (0, 0)


def directory(path: str, permissions: int = 0o755) -> ArchiveEntry:
    return ArchiveEntry(path, _DIRECTORY | permissions)


def file(path: str, data: bytes, permissions: int = 0o644) -> ArchiveEntry:
    return ArchiveEntry(path, _REGULAR | permissions, data)


def node(path: str, major: int, minor: int, permissions: int = 0o600) -> ArchiveEntry:
    return ArchiveEntry(path, _CHARACTER | permissions, b"", (major, minor))


def cpio(entries: Iterable[ArchiveEntry]) -> bytes:
    """Return a `newc` archive. Every entry belongs to root, at time 0, and entries are numbered in order, so equal
    entries give equal bytes. A folder must come before its content."""
    out = bytearray()
    for number, entry in enumerate([*entries, ArchiveEntry("TRAILER!!!", 0)], start=1):
        name = entry.path.encode() + b"\0"
        links = 2 if entry.mode & 0o170000 == _DIRECTORY else 1
        fields = (
            number if entry.mode else 0, entry.mode, 0, 0, links, 0, len(entry.data),
            0, 0, *entry.device, len(name), 0,
        )  # fmt: skip
        out += b"070701" + b"".join(b"%08X" % value for value in fields) + name
        out += bytes(-len(out) % 4)
        out += entry.data
        out += bytes(-len(out) % 4)
    return bytes(out + bytes(-len(out) % 512))


# --- modules ---


def _module_files(modules: Path) -> dict[str, Path]:
    """Module name → file, below lib/modules/VERSION."""
    found = sorted(path for path in (modules / "kernel").rglob("*.ko*") if path.is_file())
    return {module_name(path.name.split(".ko")[0]): path for path in found}


def _content(path: Path) -> bytes:
    """Return a module's ELF file; compressed ones are unpacked (the guest's kernel may not know how)."""
    data = path.read_bytes()
    try:
        if path.suffix == ".xz":
            return lzma.decompress(data)
        if path.suffix == ".gz":
            return gzip.decompress(data)
        if path.suffix == ".zst":
            return zstandard.ZstdDecompressor().decompress(data, _MOST_MODULE)
    except (lzma.LZMAError, OSError, EOFError, zstandard.ZstdError) as error:
        raise HostError(f"the kernel module {path} is damaged", hint="fetch the kernel package again") from error
    if path.suffix != ".ko":
        raise HostError(f"the kernel module {path} has an unknown compression", hint="unpack it to .ko")
    return data


def module_info(module: bytes, key: str) -> list[str]:
    """Return the values of one key in a module's `.modinfo` section."""
    info = elf.section(module, ".modinfo")
    return [value.decode("utf-8", "replace") for value in re.findall(rb"(?:^|\0)%s=([^\0]*)" % key.encode(), info)]


def _built_in(modules: Path) -> frozenset[str] | None:
    """The aliases of what is built into the kernel; None where its package does not say."""
    try:
        info = (modules / "modules.builtin.modinfo").read_bytes()
    except OSError:
        return None
    return frozenset(module_name(alias.decode("utf-8", "replace")) for alias in re.findall(rb"\.alias=([^\0]*)", info))


def _soft(modules: Path, module: bytes) -> list[str]:
    """Return the modules that a module asks for by an alias once it runs (`softdep=pre: crc32c`). Aliases that the
    kernel has built in are left out."""
    asked = [word for soft in module_info(module, "softdep") for word in soft.partition("post:")[0].split()]
    built_in = _built_in(modules) if asked else None
    if built_in is None:
        return []
    missing = [word for word in asked if word != "pre:" and module_name(word) not in built_in]
    return [found.module for found in providers(modules, missing)]


def load_order(modules: Path, wanted: Sequence[str]) -> list[tuple[str, bytes]]:
    """Return the wanted modules and all that they depend on, as (name, ELF content), each after what it needs."""
    files = _module_files(modules)
    order: dict[str, bytes] = {}
    visiting: set[str] = set()

    def visit(name: str) -> None:
        if name in order or name in visiting or name not in files:
            return
        visiting.add(name)
        content = _content(files[name])
        depends = [word for line in module_info(content, "depends") for word in line.split(",") if word]
        for needed in (*_soft(modules, content), *depends):
            visit(module_name(needed))
        order[name] = content

    for name in wanted:
        visit(module_name(name))
    return list(order.items())


_REQUEST = re.compile(r"vmtailor: module requested: (\S+)")


def requested(kernel_log: str) -> tuple[str, ...]:
    """Return the modules that the kernel asked for while the container ran, as it names them (`net-pf-17`, `fs-xfs`).
    Nothing is loaded once the container runs, so each such request failed."""
    return tuple(dict.fromkeys(_REQUEST.findall(kernel_log)))


def providers(modules: Path, requests: Iterable[str]) -> tuple[ModuleRequest, ...]:
    """Return the modules that answer to such requests, by name or alias: to be wanted in the next initial RAM disk."""
    names = {request: module_name(request) for request in requests}
    if not names:
        return ()
    found: list[ModuleRequest] = []
    for module, path in _module_files(modules).items():
        aliases = [module, *(module_name(alias) for alias in module_info(_content(path), "alias"))]
        where = str(path.relative_to(modules / "kernel")).partition(".ko")[0]
        found += [
            ModuleRequest(request, module, where)
            for request, name in names.items()
            if any(fnmatch.fnmatchcase(name, alias) for alias in aliases)
        ]
    return tuple(found)


def baseline_initramfs(out: Path, *, stage1: Path, modules: Path, wanted: Sequence[str] = WANTED) -> tuple[str, ...]:
    """Write the initial RAM disk that boots a packaged kernel: stage 1 as /init, and the modules, in the order in which
    it loads them. `modules` is lib/modules/VERSION. Returns the names of the modules in it."""
    order = load_order(modules, wanted)
    write_atomic(out, archive(order, stage1.read_bytes()))
    return tuple(name for name, _ in order)


def archive(order: Sequence[tuple[str, bytes]], init: bytes) -> bytes:
    """Return an initial RAM disk: `init`, a console for it, and modules (name, content) with the list by which it loads
    them."""
    return cpio(
        [
            directory("dev"),
            node("dev/console", 5, 1),
            directory("modules"),
            file("modules/list", "".join(f"{name}.ko\n" for name, _ in order).encode()),
            *(file(f"modules/{name}.ko", content) for name, content in order),
            file("init", init, 0o755),
        ]
    )
