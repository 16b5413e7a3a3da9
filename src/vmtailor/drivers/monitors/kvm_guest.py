# SPDX-License-Identifier: Apache-2.0
"""The guest that tries a monitor under KVM: an ELF kernel of some hundred bytes, which says a word and ends the machine
by a triple fault. It runs wherever a monitor enters kernels: in 32 bits, by a note, or by Linux's protocol in 64."""

from __future__ import annotations

import struct

from vmtailor.model.architecture import presumed_name

#: The words that it says on the first serial port.
SAID = b"VTKVM ok\n"
#: The architecture that it is for.
ARCHITECTURE = presumed_name()
_AT, _HEAD, _PHDR = 0x100000, 64, 56
_LOAD, _NOTE = 1, 4
#: The note by which a kernel tells its 32-bit entry (Linux's include/xen/interface/elfnote.h).
_PHYS32_ENTRY = 18


def elf() -> bytes:
    """Return the kernel. All of its instructions mean the same in 32 and in 64 bits."""
    at = _HEAD + 2 * _PHDR
    note = struct.pack("<III4sI", 4, 4, _PHYS32_ENTRY, b"Xen\0", _AT + at + 20)
    at += len(note)
    code = b"".join(
        (
            b"\xfc",  # cld
            b"\x66\xba\xf8\x03",  # mov dx, the serial port
            b"\xb9" + struct.pack("<I", len(SAID)),  # mov ecx, length
            b"\xbe" + struct.pack("<I", _AT + at + 28),  # mov esi, the words
            b"\xac\xee\xff\xc9\x75\xfa",  # lodsb; out dx, al; dec ecx; jnz
            b"\x0f\x01\x1e",  # lidt [esi]: no interrupt table, for which the zeros stand behind the words
            b"\xcc\xf4\xeb\xfd",  # int3, which nothing handles; hlt
        )
    )
    assert len(code) == 28
    body = note + code + SAID + bytes(16)
    size = _HEAD + 2 * _PHDR + len(body)
    head = b"\x7fELF" + bytes((2, 1, 1)) + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, _AT + at, _HEAD, 0, 0, _HEAD, _PHDR, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", _LOAD, 7, 0, _AT, _AT, size, size, 0x1000)
    where = _HEAD + 2 * _PHDR
    noted = struct.pack("<IIQQQQQQ", _NOTE, 4, where, _AT + where, _AT + where, len(note), len(note), 4)
    return head + load + noted + body
