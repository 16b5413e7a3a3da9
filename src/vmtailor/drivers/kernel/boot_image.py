# SPDX-License-Identifier: Apache-2.0
"""Boot code around a kernel that is there already: a bzImage whose kernel is a bundle's, byte for byte.

The kernel's make has it as the last step of a whole build. Here the tree has the kernel's configuration and headers,
and a `vmlinux` that is linked from the packed kernel file and its table of symbols. Only the boot code is compiled."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from vmtailor.base import process
from vmtailor.base.errors import BuildError, UserInputError
from vmtailor.base.files import dot_config
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.drivers.kernel import elf_pack, make
from vmtailor.drivers.kernel.kernel_forms import BootCode

#: Longest kernel in memory that is wrapped. The distribution's has 60 MB.
_MOST_BYTES = 256 << 20
#: Seconds for each step of make.
_STEP_S = 1200
_LOAD = 1
_TARGET = ".vt-boot"
_ADDRESS = re.compile(rb"([0-9a-f]{16}) [A-Za-z?] ([!-~]{1,512})")
_SCRIPT = """\
ENTRY(vt_entry)
vt_entry = {entry:#x};
{marks}
PHDRS {{ all PT_LOAD FLAGS(7); }}
SECTIONS {{ .text {virtual:#x} : AT({physical:#x}) {{ *(.data) }} :all /DISCARD/ : {{ *(*) }} }}
"""


def build(
    row: BootCode,
    compression: Mapping[str, str],
    kernel: bytes,
    symbols: bytes,
    config: Mapping[str, str],
    source: Path,
    build_dir: Path,
    toolchain: make.Toolchain,
) -> Path:
    """Compile boot code around a kernel, in an empty folder, and return the image. `kernel`: the packed ELF file;
    `symbols`: its table, as nm writes it; `config`: a configuration that the tree's make may read.

    Raises UserInputError for a kernel that is none, BuildError when something does not compile."""
    values = {**config, **row.symbols, **compression}
    write_atomic(build_dir / "wanted.config", dot_config.render(values).encode(), private=True)
    configured = make.configure_file(source, build_dir, build_dir / "wanted.config", toolchain)
    have = dict(configured.symbols)
    lacking = [name for name in (*row.needed, *compression) if have.get(name) != "y"]
    if lacking:
        raise BuildError(f"this kernel's source has no boot code with {', '.join(lacking)}")
    _make(source, build_dir, toolchain, ["prepare0"])
    link(row, kernel, symbols, build_dir, toolchain)
    there = [(file, folder) for file, folder in row.make if (source / folder).is_dir()]
    steps = " && ".join(f"$(MAKE) $(build)={folder} {file} need-builtin=1" for file, folder in there)
    # A target of our own is the one way to reach the boot code without the whole kernel before it.
    _make(source, build_dir, toolchain, [f"--eval={_TARGET}: ; {steps}", _TARGET])
    made = build_dir / row.file
    if not made.is_file():
        raise BuildError(f"make ended without {row.file}")
    return made


def link(row: BootCode, kernel: bytes, symbols: bytes, build_dir: Path, toolchain: make.Toolchain) -> None:
    """Write `vmlinux` to a folder: one segment with a packed kernel as it lies in memory, and the marks of its table
    of symbols."""
    physical, virtual, entry, content = flat(kernel)
    found = marks(symbols, row.marks)
    (build_dir / "flat").write_bytes(content)
    lines = "\n".join(f"{name} = {address:#x};" for name, address in found.items())
    script = _SCRIPT.format(entry=entry, marks=lines, virtual=virtual, physical=physical)
    (build_dir / "flat.lds").write_text(script)
    ld = process.require_tool(f"{toolchain.cross}ld", toolchain.packages[1])
    plain = [ld, "-m", row.emulation]
    process.run([*plain, "-r", "-b", "binary", "flat", "-o", "flat.o"], timeout_s=_STEP_S, cwd=build_dir)
    own = ["-z", f"max-page-size={row.align:#x}", "-z", "noexecstack", "-T", "flat.lds", "flat.o", "-o", "vmlinux"]
    process.run([*plain, *own], timeout_s=_STEP_S, cwd=build_dir)


def flat(kernel: bytes) -> tuple[int, int, int, bytes]:
    """Return physical and virtual address of a packed kernel, its entry point, and its bytes as they lie in memory,
    up to its uninitialised tail. Data of each processor (SMP) is linked at virtual address 0, and lies among the rest.
    Raises UserInputError where its segments are no kernel's."""
    _, entry, segments = elf_pack.read_segments(kernel)
    loads = [one for one in segments if one.kind == _LOAD and one.file_size]
    first = min((one.physical for one in loads), default=0)
    end = max((one.physical + one.file_size for one in loads), default=0)
    moved = {one.virtual - one.physical for one in loads if one.virtual}
    if len(moved) != 1 or not first <= entry < end or end - first > _MOST_BYTES:
        raise UserInputError("the kernel's segments are not those of a kernel", hint="fit the image again")
    content = bytearray(end - first)
    for one in loads:
        place = one.physical - first
        content[place : place + one.file_size] = kernel[one.offset : one.offset + one.file_size]
    return first, first + moved.pop(), entry, bytes(content)


def marks(symbols: bytes, names: tuple[str, ...]) -> dict[str, int]:
    """Return the addresses of some symbols of a table. Raises UserInputError where one is missing."""
    wanted, found = {name.encode() for name in names}, {}
    for line in symbols.splitlines():
        match = _ADDRESS.fullmatch(line)
        if match is not None and match[2] in wanted:
            found[match[2].decode()] = int(match[1], 16)
    if lacking := [name for name in names if name not in found]:
        raise UserInputError(f"the table of symbols has no {', '.join(lacking)}", hint="fit the image again")
    return found


def _make(source: Path, build_dir: Path, toolchain: make.Toolchain, words: list[str]) -> None:
    argv = make.make_argv(source, build_dir, toolchain, words, jobs=len(os.sched_getaffinity(0)))
    try:
        process.run(argv, timeout_s=_STEP_S, env=make.environment(), umask=make.UMASK, name="the kernel's boot code")
    except process.CommandFailed as error:
        raise BuildError("the kernel's boot code does not compile", details=error.details) from error
