# SPDX-License-Identifier: Apache-2.0
"""Entries beside those of a boot loader, as text."""

from __future__ import annotations

import pytest
from tests.fakes.systems import GRUB_CFG, RELEASE

from vmtailor.analysis.systems import loader_change, loaders
from vmtailor.analysis.systems.loader_change import NewEntry
from vmtailor.base.errors import UserInputError

WORDS = ("root=PARTUUID=1-02", "ro", 'dm-mod.create="el-root,x,,rw,0 8 linear PARTUUID=1-02 2048"')
ENTRY = NewEntry("vmtailor-web", "Linux 6.12 fitted by vmtailor (web)", "6.12", "/boot/vmtailor-web", WORDS)
OLD = f"/boot/vmlinuz-{RELEASE}"


def test_a_grub_entry_is_added_like_the_old_one_and_the_old_one_stays_the_default() -> None:
    made = loader_change.with_grub_entry(GRUB_CFG, ENTRY, OLD)
    assert made.startswith(GRUB_CFG.rstrip())
    block = made.split("### BEGIN vmtailor ###")[1]
    assert "  insmod ext2\n" in block and "initrd" not in block
    assert "linux /boot/vmtailor-web 'root=PARTUUID=1-02' 'ro' 'dm-mod.create=el-root,x,,rw,0 8 linear" in block
    entries = loaders.parse_grub(made, "grub.cfg", {})
    assert [one.chosen for one in entries] == [True, False, False] and entries[0].kernel == OLD
    assert entries[2].kernel == "/boot/vmtailor-web" and entries[2].words[0] == WORDS[0]


def test_the_entry_starts_once_only_where_grub_can_note_it() -> None:
    made = loader_change.with_grub_entry(GRUB_CFG, ENTRY, OLD)
    lines = [line.strip() for line in made.splitlines()]
    at = lines.index("if save_env next_entry; then")
    assert lines[at - 1] == "set next_entry=" and lines[at + 1] == "set default='vmtailor-web'"


def test_an_entry_takes_the_place_of_an_older_one() -> None:
    once = loader_change.with_grub_entry(GRUB_CFG, ENTRY, OLD)
    assert loader_change.with_grub_entry(once, ENTRY, OLD) == once


def test_what_grub_cannot_hand_on_is_refused() -> None:
    for word in ("a='b'", "a=\\", 'a="b"'):
        with pytest.raises(UserInputError, match="cannot hand on"):
            loader_change.with_grub_entry(GRUB_CFG, NewEntry("x", "x", "1", "/k", (word,)), OLD)
    with pytest.raises(UserInputError, match="no menu entry"):
        loader_change.with_grub_entry(GRUB_CFG, ENTRY, "/boot/another")


def test_grubs_environment_keeps_its_size_and_its_variables() -> None:
    block = loader_change.with_variable(b"", "next_entry", "vmtailor-web")
    assert len(block) == 1024 and loaders.parse_grubenv(block.decode()) == {"next_entry": "vmtailor-web"}
    more = loader_change.with_variable(loader_change.with_variable(block, "saved_entry", "0"), "next_entry", "y")
    assert len(more) == 1024 and loaders.parse_grubenv(more.decode()) == {"saved_entry": "0", "next_entry": "y"}
    with pytest.raises(UserInputError, match="full"):
        loader_change.with_variable(block, "x", "y" * 1000)
    with pytest.raises(UserInputError, match="damaged"):
        loader_change.with_variable(b"something else", "x", "y")


def test_an_entry_for_systemd_boot_counts_its_boots_and_is_sorted_first() -> None:
    text = loader_change.bls_entry(ENTRY)
    (found,) = loaders.parse_bls({loader_change.bls_name(ENTRY): text}, {})
    assert found.kernel == ENTRY.kernel and loader_change.bls_name(ENTRY) == "vmtailor-web+3.conf"
    assert " ".join(found.words) == " ".join(WORDS) and "sort-key 0-vmtailor\n" in text
    assert loader_change.without_default("timeout 3\ndefault old*\n") == "timeout 3\n#default old*\n"
    for name in ("vmtailor-web.conf", "vmtailor-web+3.conf", "vmtailor-web+2-1.conf"):
        assert loader_change.is_ours(name, ["vmtailor-web"])
    assert not loader_change.is_ours("vmtailor-web2.conf", ["vmtailor-web"])
