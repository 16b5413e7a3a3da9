# SPDX-License-Identifier: Apache-2.0
"""Forms of a kernel: its own file packed, or boot code around it (bzImage). The kernel itself stays as it was."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from vmtailor.base import process
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import toml_files
from vmtailor.model.architecture import named

#: Seconds that packing may take; 12 MB take zstd 4 s on a busy CPU.
_PACK_S = 600


@dataclass(frozen=True)
class KernelForm:
    """A row of data/kernel_forms.toml. `file`: the form's file name; else the kernel's own with `suffix`.
    `architectures`: by name, empty for all. `boot_code`: symbols of the boot code that compresses it so; empty where
    `program`, followed by a file's name, writes the form to its output. `package`: that program's."""

    name: str
    file: str = ""
    suffix: str = ""
    architectures: tuple[str, ...] = ()
    boot_code: dict[str, str] = field(default_factory=dict)
    program: tuple[str, ...] = ()
    package: str = ""

    def file_name(self, architecture: str) -> str:
        """Return the name of the form's file for a processor."""
        return self.file or Path(named(architecture).kernel.file).name + self.suffix


@dataclass(frozen=True)
class BootCode:
    """The boot code of a processor's kernels. `symbols`: values that its tree has in place of the kernel's;
    `needed`: those that must resolve to y. `marks`: symbols of the kernel whose addresses it has to know. `align`: of
    the kernel in memory, bytes. `emulation`: the linker's name of the ELF format. `make`: pairs of a file and its
    folder, in the order in which they are made, where the source has the folder; `file` is the result."""

    architecture: str
    symbols: dict[str, str]
    needed: tuple[str, ...]
    marks: tuple[str, ...]
    align: int
    emulation: str
    make: tuple[tuple[str, str], ...]
    file: str


@dataclass(frozen=True)
class _Rows:
    boot_code: tuple[BootCode, ...]
    form: tuple[KernelForm, ...]


@cache
def _rows() -> _Rows:
    file = resources.files("vmtailor") / "data" / "kernel_forms.toml"
    found: Any = toml_files.read_strictly(file.read_text("utf-8"), _Rows, file.name)
    rows: _Rows = found
    return rows


def every(architecture: str = "") -> tuple[KernelForm, ...]:
    """Return all forms, or those of a processor."""
    return tuple(
        one for one in _rows().form if not (architecture and one.architectures) or architecture in one.architectures
    )


def form(name: str, architecture: str) -> KernelForm:
    """Return a form by its name. Raises UserInputError where a processor's kernels do not have it."""
    for one in every(architecture):
        if one.name == name:
            return one
    raise UserInputError(
        f"vmtailor makes no {name} of a kernel for {architecture}",
        hint=f"these it makes: {', '.join(one.name for one in every(architecture))}",
    )


def boot_code(architecture: str) -> BootCode:
    """Return the boot code of a processor for which there is such a form."""
    return next(one for one in _rows().boot_code if one.architecture == architecture)


def pack(one: KernelForm, kernel: Path, target: Path) -> None:
    """Write a kernel file in a form that a program makes. Raises HostError without the program."""
    program, *options = one.program
    argv = [process.require_tool(program, one.package), *options, str(kernel)]
    target.write_bytes(process.run(argv, timeout_s=_PACK_S).stdout)
