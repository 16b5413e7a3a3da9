# SPDX-License-Identifier: Apache-2.0
"""The subsystem of each function of a kernel that no fit has traced, from the packaged kernel's debug information and
source. A bundle's kernel is of the same source, so its functions are found by name."""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.cost.waterfall import OTHER, folder_of
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.progress import step
from vmtailor.drivers.kernel.symbolizer import symbolize
from vmtailor.model.boots.counters import SourceFrames
from vmtailor.model.kernel import KernelBaseline

#: The file in its folder of the cache: a JSON object, function → subsystem.
NAME = "subsystems.json"


def known(kernel: KernelBaseline, architecture: str, store: Store) -> Path:
    """Return the file of a kernel's functions, made once. Raises HostError when there is no symbolizer."""

    def fill(folder: Path) -> None:
        with step("find the subsystem of each of the kernel's functions"):
            table = SymbolTable.parse(Path(kernel.system_map).read_text("ascii", "replace"), architecture)
            frames = symbolize(Path(kernel.debug_vmlinux), map(int, table.starts))
            is_there = functools.cache(lambda path: (Path(kernel.source_dir) / path).is_file())
            (folder / NAME).write_bytes(msgspec.json.encode(subsystems(table, frames, is_there)))

    key = digest("kernel-subsystems/1", kernel.release, kernel.source_digest, Path(kernel.system_map))
    return store.get("kernel-subsystems", key, fill) / NAME


def subsystems(table: SymbolTable, frames: Mapping[int, SourceFrames], there: Callable[[str], bool]) -> dict[str, str]:
    """Return function → subsystem, where both are known; for several functions of one name, that of the first.
    `frames`: for the address where each function begins; `there`: whether a path is in the source tree."""
    path = functools.cache(lambda noted: path_of(noted, there))
    found: dict[str, str] = {}
    for start, name in zip(table.starts, table.names, strict=False):
        stack = frames.get(int(start))
        folder = folder_of(path(stack[-1].file)) if stack else OTHER
        if name and folder != OTHER:
            found.setdefault(name, folder)
    return found


def path_of(noted: str, there: Callable[[str], bool]) -> str:
    """Return the path in the tree of a file as the compiler noted it: its longest ending that is there; empty where
    none is."""
    parts = posixpath.normpath(noted).strip("/").split("/")
    return next((end for end in ("/".join(parts[at:]) for at in range(len(parts))) if there(end)), "")


def read(file: str) -> dict[str, str]:
    """Return function → subsystem from a file; empty where no file is named."""
    return msgspec.json.decode(Path(file).read_bytes(), type=dict[str, str]) if file else {}
