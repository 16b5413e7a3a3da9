# SPDX-License-Identifier: Apache-2.0
"""A unified kernel image: systemd's stub for UEFI with kernel and command line as sections of it, in one signed or
unsigned program (uapi-group.org, UKI). objcopy adds the sections, as systemd documents."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from vmtailor.base import process
from vmtailor.base.errors import HostError

#: Where Debian's package puts it, by processor.
STUB = Path("/usr/lib/systemd/boot/efi/linuxx64.efi.stub")
PACKAGE = "systemd-boot-efi"
_TIMEOUT_S = 60
#: Sections begin at pages.
_PAGE = 4096


def require_stub(stub: Path = STUB) -> Path:
    """Return the stub. Raises HostError where it is not installed."""
    if not stub.is_file():
        raise HostError(f"{stub} is missing: UEFI firmware starts the kernel by it", hint=f"install {PACKAGE}")
    return stub


def behind_sections(program: bytes) -> tuple[int, int]:
    """Return the address behind the last section of a PE program, its base included, and the alignment of sections.
    Raises HostError for what is no such program."""
    try:
        header = struct.unpack_from("<I", program, 0x3C)[0]
        signature, sections, optional_bytes = struct.unpack_from("<4s2xH12xH", program, header)
        optional = header + 24
        magic, base, align = struct.unpack_from("<H22xQI", program, optional)
        if program[:2] != b"MZ" or signature != b"PE\0\0" or magic != 0x20B or not align:
            raise ValueError
        ends = [
            sum(struct.unpack_from("<II", program, optional + optional_bytes + 40 * index + 8))
            for index in range(sections)
        ]
    except (struct.error, ValueError) as error:
        raise HostError("the stub for UEFI is no 64-bit PE program", hint=f"install {PACKAGE} again") from error
    return base + max(ends, default=0), align


def write(kernel: Path, words: str, name: str, version: str, target: Path, stub: Path = STUB) -> None:
    """Write the image. `kernel`: a bzImage with an EFI stub; `words`: the kernel command line; `name`: of the system,
    as firmware and tools show it. Raises HostError without stub or objcopy."""
    end, align = behind_sections(require_stub(stub).read_bytes())
    align = max(align, _PAGE)
    release = f'ID=vmtailor\nNAME="{name}"\nPRETTY_NAME="{name}"\n'
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        argv = [process.require_tool("objcopy", "binutils")]
        parts = ((".osrel", release.encode()), (".cmdline", words.encode()), (".uname", version.encode()),
                 (".linux", kernel.read_bytes()))  # fmt: skip
        for section, content in parts:
            end = -(-end // align) * align
            file = Path(scratch) / section[1:]
            file.write_bytes(content)
            argv += ["--add-section", f"{section}={file}", "--change-section-vma", f"{section}={end:#x}"]
            end += len(content)
        process.run([*argv, str(stub), str(target)], timeout_s=_TIMEOUT_S)
