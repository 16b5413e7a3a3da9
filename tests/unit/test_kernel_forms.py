# SPDX-License-Identifier: Apache-2.0
"""Forms of a kernel: which there are, and a packed kernel as it lies in memory."""

from __future__ import annotations

import gzip
import lzma
import struct
from pathlib import Path

import pytest

from vmtailor.base.errors import BuildError, UserInputError
from vmtailor.drivers.kernel import boot_image, kernel_forms, symbol_names
from vmtailor.drivers.targets import targets
from vmtailor.model import architecture

SYMBOLS = b"".join(
    b"%016x %c %s\n" % (address, kind, name)
    for address, kind, name in (
        (0x200123, ord("A"), b"phys_startup_64"),
        (0xFFFFFFFF80200000, ord("T"), b"_text"),
        (0xFFFFFFFF80400000, ord("D"), b"__start_rodata"),
        (0xFFFFFFFF80600000, ord("B"), b"__bss_start"),
        (0xFFFFFFFF80700000, ord("B"), b"_end"),
    )
)


def packed(*segments: tuple[int, int, bytes], entry: int = 0x200123) -> bytes:
    """An ELF kernel of segments: physical and virtual address, content."""
    head = 64 + 56 * len(segments)
    own = (entry, 64, 0, 0, 64, 56, len(segments), 0, 0, 0)
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1".ljust(16, b"\0"), 2, 62, 1, *own)
    headers, bodies = b"", b""
    for physical, virtual, content in segments:
        headers += struct.pack(
            "<IIQQQQQQ", 1, 5, head + len(bodies), virtual, physical, len(content), len(content) + 64, 16
        )
        bodies += content
    return header + headers + bodies


TEXT = (0x200000, 0xFFFFFFFF80200000, b"\x90" * 0x200)
DATA = (0x201000, 0xFFFFFFFF80201000, b"data")


def test_a_packed_kernel_lies_in_memory_with_zeros_in_its_holes() -> None:
    physical, virtual, entry, content = boot_image.flat(packed(DATA, TEXT))
    assert (physical, virtual, entry) == (0x200000, 0xFFFFFFFF80200000, 0x200123)
    assert content == (b"\x90" * 0x200).ljust(0x1000, b"\0") + b"data"


def test_data_of_each_processor_lies_where_it_is_loaded() -> None:
    """A kernel for several processors links it at address 0."""
    of_each = (0x202000, 0, b"each")
    physical, virtual, _, content = boot_image.flat(packed(TEXT, of_each, DATA))
    assert (physical, virtual) == (0x200000, 0xFFFFFFFF80200000)
    assert content[0x1000:0x1004] == b"data" and content[0x2000:] == b"each"


@pytest.mark.attack
@pytest.mark.parametrize(
    "kernel",
    [
        packed(TEXT, (0x20200000, 0xFFFFFFFFA0200000, b"far")),
        packed(TEXT, (0x201000, 0xFFFFFFFF90201000, b"elsewhere")),
        packed(TEXT, entry=0x100),
        packed(TEXT, entry=1 << 60),
        packed((0x200000, 0, b"each" * 0x100)),
        packed(),
    ],
    ids=["far", "elsewhere", "entry before", "entry behind", "nothing but data", "empty"],
)
def test_what_is_no_kernel_is_refused_before_memory_is_taken(kernel: bytes) -> None:
    with pytest.raises((UserInputError, BuildError)):
        boot_image.flat(kernel)


def test_marks_are_read_from_a_table_of_symbols() -> None:
    row = kernel_forms.boot_code("x86_64")
    assert boot_image.marks(SYMBOLS, row.marks)["_end"] == 0xFFFFFFFF80700000
    with pytest.raises(UserInputError, match="_text"):
        boot_image.marks(SYMBOLS.replace(b" _text\n", b" _text2\n"), row.marks)


def test_variants_of_targets_take_forms_that_there_are() -> None:
    known = {one.name for one in kernel_forms.every()}
    taken = {variant.kernel for row in targets.every() for variant in row.variant if variant.kernel}
    assert taken <= known and {"bzimage", "zst"} <= taken


def test_forms_are_of_processors_and_their_boot_code_has_symbols_that_there_are() -> None:
    assert kernel_forms.form("zst", "arm64").file_name("arm64") == "Image.zst"
    assert kernel_forms.form("bzimage", "x86_64").file_name("x86_64") == "bzImage"
    with pytest.raises(UserInputError, match="bzimage") as error:
        kernel_forms.form("bzimage", "arm64")
    assert "zst" in error.value.hint
    symbols = set(symbol_names.shipped()[1])
    for one in kernel_forms.every():
        assert set(one.architectures) <= set(architecture.names()) and bool(one.program) != bool(one.boot_code)
        if one.boot_code:
            assert set(one.boot_code) <= set(kernel_forms.boot_code("x86_64").symbols) <= symbols


@pytest.mark.parametrize(("name", "unpack"), [("gz", gzip.decompress), ("xz", lzma.decompress)])
def test_a_packed_file_holds_the_kernel(name: str, unpack: object, tmp_path: Path) -> None:
    kernel = tmp_path / "-vmlinux"
    kernel.write_bytes(packed(TEXT, DATA))
    kernel_forms.pack(kernel_forms.form(name, "x86_64"), kernel, tmp_path / "out")
    assert callable(unpack) and unpack((tmp_path / "out").read_bytes()) == kernel.read_bytes()
