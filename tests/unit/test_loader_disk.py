# SPDX-License-Identifier: Apache-2.0
"""A disk that firmware boots: its table, GRUB's sectors and configuration, the unified kernel image."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from vmtailor.base.errors import HostError
from vmtailor.drivers.targets import disk_table, loader_disk, unified_image

MIB = 1 << 20


def test_partitions_lie_behind_each_other_at_whole_mebibytes() -> None:
    parts = disk_table.layout([("root", 3 * MIB + 1), ("bios", 1), ("efi", 16 * MIB)], "seed")
    found = [(part.number, part.start // MIB, part.length // MIB) for part in parts]
    assert found == [(1, 1, 4), (3, 5, 1), (4, 6, 16)]
    assert parts[0].uuid == disk_table.uuid_of("root", "seed") != disk_table.uuid_of("root", "other")
    lines = disk_table.table(parts, "seed").splitlines()
    assert lines[0] == "label: gpt" and len(lines) == 7
    assert lines[4].startswith("1 : start=2048, size=8192, type=0FC63DAF-") and f"uuid={parts[0].uuid}" in lines[4]


def test_the_run_volume_is_the_second_partition(tmp_path: Path) -> None:
    for name in ("root", "kernel", "unified"):
        (tmp_path / name).write_bytes(b"x" * 1000)
    content = loader_disk.DiskContent(tmp_path / "root", tmp_path / "kernel", tmp_path / "unified", b"run")
    assert [one.name for one in content.parts("seed")] == ["root", "run", "bios", "efi"]
    assert [one.name for one in replace(content, run=None).parts("seed")] == ["root", "bios", "efi"]


def test_grub_gets_each_word_of_the_command_line_as_it_is() -> None:
    assert loader_disk.grub_lines(["root=PARTUUID=1", "a=$b;c", "d=(e)"]) == (
        "set gfxpayload=text\nlinux /vmlinuz 'root=PARTUUID=1' 'a=$b;c' 'd=(e)'\nboot\n"
    )


@pytest.mark.attack
@pytest.mark.parametrize("word", ["", "a b", "a'", 'a="b', "a\\", "a\nlinux", "a\x7f", "ä"])
def test_words_that_grub_would_change_are_none_for_it(word: str) -> None:
    assert not loader_disk.plain_words(["quiet", word])


def test_grub_is_told_where_its_core_lies() -> None:
    part = disk_table.layout([("root", 8 * MIB), ("bios", MIB)], "seed")[1]
    boot, core = bytes(512), bytes(3 * 512 + 7)
    first, rest = loader_disk.grub_sectors(boot, core, part)
    assert len(first) == 440 and struct.unpack_from("<Q", first, 0x5C)[0] == part.start // 512
    assert struct.unpack_from("<QH", rest, 0x1F4) == (part.start // 512 + 1, 3) and len(rest) == len(core)
    for wrong_boot, wrong_core in ((bytes(440), core), (boot, bytes(MIB + 1)), (boot, b"")):
        with pytest.raises(HostError):
            loader_disk.grub_sectors(wrong_boot, wrong_core, part)


def program(*sections: tuple[int, int], base: int = 0, align: int = 512, magic: int = 0x20B) -> bytes:
    """A PE program of sections: length and address."""
    head = b"MZ".ljust(0x3C, b"\0") + struct.pack("<I", 0x40)
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", 0x8664, len(sections), 0, 0, 0, 240, 0)
    optional = struct.pack("<H22xQI", magic, base, align).ljust(240, b"\0")
    table = b"".join(struct.pack("<8sIII20x", b".x", length, address, 0) for length, address in sections)
    return head + coff + optional + table


def test_sections_are_added_behind_those_of_the_stub() -> None:
    assert unified_image.behind_sections(program((10, 0x1000), (0x20, 0x4000), base=0x10000)) == (0x14020, 512)


@pytest.mark.attack
@pytest.mark.parametrize(
    "data", [b"", b"MZ", program((1, 1))[:200], program((1, 1), magic=0x10B), b"ELF" + program((1, 1))[3:]]
)
def test_what_is_no_stub_is_refused(data: bytes) -> None:
    with pytest.raises(HostError):
        unified_image.behind_sections(data)


def test_a_missing_stub_is_named_with_its_package(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="missing") as error:
        unified_image.require_stub(tmp_path / "stub")
    assert "systemd-boot-efi" in error.value.hint
