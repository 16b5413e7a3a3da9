# SPDX-License-Identifier: Apache-2.0
"""Programs of 32 bits on kernels of 64: told apart by their headers, with the calls that only they have."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from tests.fakes.kernel_tree import read_tree

from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.demands.demand import Demands
from vmtailor.analysis.ksource import facts as ksource_facts
from vmtailor.analysis.reach import contents
from vmtailor.analysis.reach.c_library import CLibraries
from vmtailor.analysis.reach.file_links import Links
from vmtailor.analysis.reach.file_requests import Asks, KernelNames
from vmtailor.analysis.reach.reach_symbols import of_reach
from vmtailor.drivers.image.flat_archive import FlatArchive
from vmtailor.model import architecture
from vmtailor.model.image import ImageConfig
from vmtailor.model.reach import Nearness, Reach, ReachedFile

NATIVE = Path(__file__).resolve().parents[2] / "native"


def test_programs_of_32_bits_take_what_the_family_calls_it() -> None:
    """By machine and flags of the header: x32 of x86-64, and n32 of MIPS, are kinds of their own."""
    tree = read_tree()
    for name, machine, flags, symbol in (
        ("x86_64", 3, 0, "IA32_EMULATION"), ("x86_64", 62, 0, "X86_X32_ABI"), ("arm64", 40, 0x5000400, "COMPAT"),
        ("mips64el", 8, 0x80000024, "MIPS32_N32"), ("mips64el", 8, 0x70001007, "MIPS32_O32"),
    ):  # fmt: skip
        rules = demand_rules.load(architecture=architecture.named(name))
        head = narrow_program(machine, flags)
        demands = Demands(tree.facts, rules, {symbol: "y"}, lambda path, head=head: head)  # type: ignore[misc]
        demands.program("/old", "here")
        assert {one for found in demands.result() for one in found.symbols} == {symbol}
        told = contents.read(head, architecture.named(name).code, contents.WantedNames(frozenset(), frozenset()))
        links = Links(FlatArchive(Path("/x"), {"/old": len(head)}, {}, {}), {"/old": told}, ImageConfig("amd64"))
        (ask,) = Asks(CLibraries(links), KernelNames({}, {}, frozenset(), frozenset(), frozenset()), rules).of("/old")
        reach = Reach((ReachedFile("/old", Nearness.OPENED, (ask,)),))
        assert [one.symbols for one in of_reach(reach, tree.facts, rules, {symbol})] == [(symbol,)]


def narrow_program(machine: int, flags: int) -> bytes:
    """A little-endian program of 32 bits, as far as its header goes."""
    ident = b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
    return struct.pack("<16sHHIIIIIHHHHHH", ident, 2, machine, 1, 0x10000, 52, 0, flags, 52, 32, 0, 40, 0, 0)


def test_calls_that_only_programs_of_32_bits_have_are_known_by_their_tables() -> None:
    """Beside those of 64 bits, which their names mean first."""
    row = architecture.named("mips64el")
    o32, n32 = "arch/mips/kernel/syscalls/syscall_o32.tbl", "arch/mips/kernel/syscalls/syscall_n32.tbl"
    tree = {
        row.calls[0].file: "0\tn64\tread\tsys_read\n1\tn64\tsemtimedop\tsys_semtimedop\n",
        n32: "0\tn32\tread\tsys_other\n1\tn32\tfutex_time64\tsys_futex\n2\to32\tnot_ours\tsys_not_ours\n",
        o32: "4\to32\tfcntl64\tsys_fcntl64\n5\to32\told\n",
        "kernel/futex.c": "SYSCALL_DEFINE1(futex, int, a)\n{\n}\n",
        "kernel/Makefile": "obj-$(CONFIG_FUTEX) += futex.o\n",
        "Kbuild": "obj-y += kernel/\n",
    }
    facts = ksource_facts.collect("6.1.0", tree.get, ["kernel/futex.c"], row)
    assert facts.table == {"read": "read", "semtimedop": "semtimedop"}
    assert facts.narrow == {"futex_time64": "futex", "fcntl64": "fcntl64"}
    known = facts.syscall("futex_time64")
    assert known is not None and str(known[0]) == "FUTEX" and facts.syscall("not_ours") is None


@pytest.mark.parametrize("row", architecture.every(), ids=lambda row: row.name)
def test_the_guests_init_names_the_same_symbols(row: architecture.Architecture) -> None:
    """What it says of a program that the kernel cannot execute is what the row says of it."""
    header = (NATIVE / "arch" / row.name / "arch.h").read_text()
    (macro,) = re.findall(r"#define ARCH_PROGRAMS_OF_32_BITS\(head\) (.*)", header)
    assert re.findall(r'"(\w+)"', macro) == [symbol for one in row.kernel.of_32_bits for symbol in one.symbols]
    for one in row.kernel.of_32_bits:
        assert not one.mask or f"(head)[36] & {one.mask:#x}" in macro  # in the first byte of the flags
        assert not one.machine or f"(head)[18] == {one.machine}" in macro
