# SPDX-License-Identifier: Apache-2.0
"""What is true of one processor family only stands in its file of data/architectures: a family that nobody makes gets
its plan, its kernel's make and its machine from tests/data/architecture/made_up.toml alone."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.fakes.kernel_tree import read_tree
from tests.fakes.source_words import using

import vmtailor
from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.analysis.changes.symbol_catalogue import Situation
from vmtailor.analysis.cost import loops, plugin_counts
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.demands.demand import Demands
from vmtailor.analysis.guests import machine_variants
from vmtailor.analysis.ksource import uapi
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.drivers.kernel import make
from vmtailor.drivers.kernel.kconfig_shell import KconfigShell
from vmtailor.drivers.qemu import plugin, qemu_command
from vmtailor.drivers.rootfs import initramfs
from vmtailor.model import architecture
from vmtailor.model.architecture import Architecture, CallTable
from vmtailor.model.boots.counters import CodeMark, CountingConfig
from vmtailor.model.change import Cause
from vmtailor.model.image import Image, ImageConfig
from vmtailor.model.kernel import Configured
from vmtailor.model.machine import Disk, Machine
from vmtailor.model.plan import RootFormat
from vmtailor.pipeline.image_subject import require_tools, settled
from vmtailor.pipeline.options import FitOptions
from vmtailor.stages import build
from vmtailor.stages.kernel_plan import Wishes, make_plan

PACKAGE = Path(vmtailor.__file__).parent
MADE_UP = Path(__file__).parent.parent / "data" / "architecture" / "made_up.toml"
TEXT = MADE_UP.read_text()


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Architecture]:
    """The rows of the program, and one more."""
    folder = tmp_path / "architectures"
    shutil.copytree(PACKAGE / "data" / "architectures", folder)
    shutil.copy(MADE_UP, folder)
    monkeypatch.setattr(architecture, "FOLDER", folder)
    yield architecture.named("made_up")


# ---- the plan, the kernel, the machine


def test_its_plan_has_its_own_entries_and_no_others(made_up: Architecture) -> None:
    situation = Situation("plain", RootFormat.EROFS, "6.12.7", architecture="made_up")
    chosen = {entry.reference for entry in symbol_catalogue.load(architecture="made_up").chosen(situation)}
    assert {"platform:mu-serial", "policy:mu-protection", "platform:virtio-mmio", "platform:console"} <= chosen
    assert not {"platform:uart", "platform:direct-boot", "policy:umip", "platform:virtio-pci"} & chosen
    assert chosen == {entry.reference for entry in symbol_catalogue.load().chosen(situation)}
    other = Situation("microvm", RootFormat.EROFS, "6.12.7")
    assert not {"platform:mu-serial"} & {entry.reference for entry in symbol_catalogue.load().chosen(other)}


def test_its_symbols_and_words_are_in_a_plan_with_their_reasons(made_up: Architecture) -> None:
    tree = read_tree()
    book = symbol_catalogue.Catalogue(
        tuple(
            symbol_catalogue.of_architecture(made_up, Cause.PLATFORM)
            + symbol_catalogue.of_architecture(made_up, Cause.POLICY)
        )
    )
    known = replace(book, entries=tuple(e for e in book.entries if tree.kconfig.known(e.symbols[0][0])))
    plan = make_plan(
        ImageConfig("madeup"), Demands(tree.facts, demand_rules.load(), {}, lambda path: b""), tree, {},
        Wishes(architecture="made_up", machine="plain", network=False), catalogue=known,
    )  # fmt: skip
    assert plan.architecture == "made_up" and plan.machine == "plain"
    futex = plan.symbol("FUTEX")
    assert futex is not None and [reason.reference for reason in futex.reasons] == ["platform:mu-serial"]
    kernel, root = Path("/k/Image"), Path("/d/root")
    machine = machine_variants.tailored_machine(
        made_up, plan.machine, kernel, root, RootFormat.EROFS, [word.id for word in plan.words],
        memory_bytes=64 << 20, cpu_model=made_up.emulator.cpu_model,
    )  # fmt: skip
    assert machine.words[-4:] == ("console=ttyMU0", "quiet", "panic=-1", "nokaslr")
    assert machine.architecture == "made_up"


def test_its_kernel_is_made_with_its_words(made_up: Architecture) -> None:
    toolchain = replace(make.Toolchain.of(made_up), ccache=False)
    assert make.make_argv(Path("/s"), Path("/b"), toolchain, [made_up.kernel.target]) == [
        "make", "-C", "/s", "O=/b", "-j1", "ARCH=mu", "CC=mu64-linux-gnu-gcc", "HOSTCC=gcc",
        "CROSS_COMPILE=mu64-linux-gnu-", "Image",
    ]  # fmt: skip


def test_its_kernel_file_is_taken_as_it_is(made_up: Architecture, tmp_path: Path) -> None:
    work, folder = tmp_path / "work", tmp_path / "out"
    (work / "arch/mu/boot").mkdir(parents=True)
    (work / "include/config").mkdir(parents=True)
    folder.mkdir()
    for name in ("arch/mu/boot/Image", ".config", "System.map"):
        (work / name).write_text(name)
    (work / "include/config/kernel.release").write_text("6.99.3\n")
    configured = Configured(str(work), str(work), str(work / ".config"), (), ())
    files = build.collect(made_up, configured, make.CompiledKernel(work, 1, 1.0, "mucc"), folder)
    assert Path(files.image) == folder / "Image" and Path(files.image).read_text() == "arch/mu/boot/Image"
    assert build.located(files, tmp_path / "moved").image == str(tmp_path / "moved" / "Image")


def test_its_machines_are_started_with_its_words(made_up: Architecture) -> None:
    machine = Machine("plain", 64 << 20, "/k/Image", network=True, cpu_model="abacus", architecture="made_up")
    argv = qemu_command.command(machine)
    assert argv[:5] == ["qemu-system-mu", "-machine", "plain,gic=3", "-cpu", "abacus"]
    assert argv[-1] == "virtio-net-device,netdev=net,mac=52:54:00:12:34:56,bus=virtio-mmio-bus.31"
    assert "plain,gic=3,firmware-tables=on" in qemu_command.command(replace(machine, acpi=True))
    grand = qemu_command.command(replace(machine, board="grand"))
    assert "grand" in grand and grand[-1] == "virtio-net-pci,netdev=net,mac=52:54:00:12:34:56,romfile="
    assert machine_variants.usual(made_up).board == "grand"
    with pytest.raises(UserInputError, match="Made-Up has no machine 'microvm'"):
        qemu_command.command(replace(machine, board="microvm"))


def test_a_machine_that_takes_no_less_memory_tells_its_kernel_of_less(
    made_up: Architecture, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, grand = made_up.board
    roomy = replace(grand, installed_mib=512, memory_word="mem={kib}K")
    monkeypatch.setattr(qemu_command, "named", lambda _: made_up)
    monkeypatch.setattr(Machine, "hardware", property(lambda machine: roomy if machine.board == "grand" else plain))
    machine = Machine("grand", 24 << 20, "/k/Image", ("quiet",), architecture="made_up")
    argv = qemu_command.command(machine)
    assert argv[argv.index("-m") + 1] == "524288K" and argv[argv.index("-append") + 1] == "quiet mem=24576K"
    argv = qemu_command.command(replace(machine, memory_bytes=1 << 30))
    assert argv[argv.index("-m") + 1] == "1048576K" and argv[argv.index("-append") + 1] == "quiet"
    argv = qemu_command.command(replace(machine, board="plain"))
    assert argv[argv.index("-m") + 1] == "24576K" and argv[argv.index("-append") + 1] == "quiet"


def test_its_instructions_take_the_time_that_its_row_says(
    made_up: Architecture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine's own pace, with which least memory is searched, comes on top of it."""
    unhurried = replace(made_up, emulator=replace(made_up.emulator, pace=2))
    monkeypatch.setattr(qemu_command, "named", lambda _: unhurried)
    machine = Machine("plain", 24 << 20, "/k/Image", architecture="made_up")
    for own, shift in ((0, 2), (3, 5)):
        argv = qemu_command.command(replace(machine, pace=own))
        assert argv[argv.index("-icount") + 1] == f"shift={shift},sleep=off"


def test_its_baseline_loads_what_its_machine_needs(made_up: Architecture) -> None:
    found = initramfs.wanted_by(made_up.board_named("grand"), RootFormat.EROFS)
    assert found == ("virtio_pci", "mu_bridge", "virtio_blk", "erofs", "overlay")


# ---- what is counted


def test_the_plugin_is_told_how_it_divides_addresses(made_up: Architecture) -> None:
    lines = plugin.text_of(CountingConfig(architecture="made_up")).splitlines()
    assert lines[:4] == ["architecture made_up", "target mu", "half ffff000000000000", "at-once 8000000"]
    assert not [line for line in lines if line.startswith(("port ", "prefix "))]  # it has no ports


def test_the_plugin_is_told_of_firmware_that_stays() -> None:
    where = "modules_last = 0xffff80007fffffff\n"
    text = TEXT.replace(where, f"{where}firmware_first = 0x1000\nfirmware_last = 0x2fff\n")
    assert "firmware 1000 3000" in plugin.processor(architecture.parse(text, "made_up.toml"))
    assert not [line for line in plugin.processor(architecture.named("x86_64")) if line.startswith("firmware ")]


def test_its_kernel_begins_where_it_says(made_up: Architecture) -> None:
    table = SymbolTable.parse("ffff800080000000 T mu_start\nffff800080001000 T start_kernel\n", "made_up")
    begin = 0xFFFF800080000000 - made_up.addresses.image_map
    marks = plugin_counts.kernel_marks(table)
    assert marks == (CodeMark("kernel", begin), CodeMark("start_kernel", 0xFFFF800080001000))
    assert table.image_map == made_up.addresses.image_map  # this table does not say where the image begins
    assert table.in_modules(np.array([0xFFFF800078001000, 0xFFFF800080001000], np.uint64)).tolist() == [True, False]
    assert [loop.functions for loop in loops.table("made_up")] == [("mu_calibrate",)]


def test_an_image_that_moves_between_versions_is_found_by_its_symbols() -> None:
    """The kernel's image lies where the version has it, at one physical address; and is no module where ranges meet."""
    for begin in (0xFFFF800008000000, 0xFFFF800080000000):
        text = f"{begin:x} T _text\n{begin + 0x4000:x} T primary_entry\n{begin + 0x900000:x} B _end\n"
        table = SymbolTable.parse(text, "arm64")
        assert plugin_counts.kernel_marks(table) == (CodeMark("kernel", 0x40204000),)
        assert table.in_modules(np.array([begin + 0x4000, begin - 0x100000], np.uint64)).tolist() == [False, True]


def test_disks_are_named_in_their_order(made_up: Architecture) -> None:
    """Guests name disks by the order in which they find transports: from below, or from above."""
    disks = (Disk("/a"), Disk("/b"))
    found = []
    for name in ("made_up", "arm64", "x86_64", "riscv64"):
        kind = architecture.named(name).board_names[0]
        argv = qemu_command.command(Machine(kind, 1 << 30, kernel="/k", disks=disks, architecture=name))
        found.append([word.partition(",bus=")[2] for word in argv if word.startswith("virtio-blk")])
    assert found == [[f"virtio-mmio-bus.{n}" for n in pair] for pair in ((31, 30), (0, 1), (7, 6), (7, 6))]


def test_no_device_takes_a_disks_place() -> None:
    """QEMU gives a device that names none the highest transport that is free."""
    row = architecture.named("riscv64")
    machine = replace(machine_variants.usual(row), kernel="/k", disks=(Disk("/a"), Disk("/b")))
    places = [word.partition(",bus=")[2] for word in qemu_command.command(machine) if word.startswith("virtio-")]
    assert places == [f"virtio-mmio-bus.{number}" for number in (5, 4, 7, 6)]


# ---- its source


def test_kconfig_is_asked_as_its_make_would(
    made_up: Architecture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Makefile").write_text("VERSION = 6\nPATCHLEVEL = 99\n")
    monkeypatch.setattr("vmtailor.drivers.kernel.kconfig_shell.require_tool", lambda program, package="": program)
    shell = KconfigShell(tmp_path, architecture=made_up)
    assert (shell.env["ARCH"], shell.env["SRCARCH"], shell.env["UTS_MACHINE"]) == ("mu", "mu", "mu64")
    assert (shell.env["CC"], shell.env["LD"], shell.env["HOSTCC"]) == ("mu64-linux-gnu-gcc", "mu64-linux-gnu-ld", "gcc")


TBL = "# number abi name entry\n0\tcommon\tread\tsys_read\n1\t32\told\tsys_old\n2\t64\tstat\tsys_newstat\n3\t64\tgone\n"
HEADER = """
#define __NR_io_setup 0
__SC_COMP(__NR_io_setup, sys_io_setup, compat_sys_io_setup)
#define __NR3264_lseek 62
__SC_3264(__NR3264_lseek, sys_llseek, sys_lseek)
#define __NR_read 63 /* bytes */
__SYSCALL(__NR_read, sys_read)
#define __NR_syscalls 463
"""


def test_system_calls_have_their_numbers_from_either_form_of_table() -> None:
    tables = (CallTable("scripts/syscall.tbl", ("common", "64")), CallTable("asm-generic/unistd.h"))
    newer = uapi.read_table({"scripts/syscall.tbl": TBL}.get, tables)
    assert [(c.number, c.name, c.entry) for c in newer] == [
        (0, "read", "read"),
        (2, "stat", "newstat"),
        (3, "gone", ""),
    ]
    older = uapi.read_table({"asm-generic/unistd.h": HEADER}.get, tables)
    assert [(c.number, c.name, c.entry) for c in older] == [
        (0, "io_setup", "io_setup"), (62, "lseek", "llseek"), (63, "read", "read"), (463, "syscalls", ""),
    ]  # fmt: skip
    assert uapi.read_table(lambda path: None, tables) == ()


@pytest.mark.parametrize("name", architecture.names())
def test_what_is_left_out_is_neither_policy_nor_platform(name: str) -> None:
    """A symbol stands in one place: kept for a reason, or left out for one."""
    row = architecture.named(name)
    left = [symbol for one in row.left_out for symbol in one.symbols]
    assert len(set(left)) == len(left) and all(one.reason for one in row.left_out)
    for entry in (*row.platform, *row.policy):
        assert not set(left) & entry["symbols"].keys() if "symbols" in entry else True, entry["id"]


# ---- which architecture a fit is for


def image(name: str) -> Image:
    return Image("oci:x", "", ImageConfig(name), "", "", 0, 0)


def test_the_image_says_what_it_is_fitted_for(made_up: Architecture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "mu64")
    chosen = settled(FitOptions("oci:x", Path()), image("madeup"))
    assert (chosen.architecture, chosen.machine, chosen.cpu_model) == ("made_up", "plain", "abacus")
    chosen = settled(FitOptions("oci:x", Path(), machine="grand", cpu_model="sandtable"), image("madeup"))
    assert (chosen.machine, chosen.cpu_model) == ("grand", "sandtable")
    assert chosen.root_format is RootFormat.SQUASHFS
    assert settled(FitOptions("oci:x", Path(), root=RootFormat.EXT4), image("madeup")).root_format is RootFormat.EXT4
    assert settled(FitOptions("oci:x", Path(), architecture="x86_64"), image("madeup")).root_format is RootFormat.EROFS
    with pytest.raises(UserInputError, match="Made-Up has no machine 'q35'"):
        settled(FitOptions("oci:x", Path(), machine="q35"), image("madeup"))


def test_a_host_of_another_family_says_what_it_lacks(made_up: Architecture, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image of a family whose emulator, or whose compiler, is not there: what to install, and nothing is begun."""
    assert settled(FitOptions("oci:x", Path()), image("madeup")).architecture == "made_up"
    with pytest.raises(HostError, match="'qemu-system-mu' and 'mu64-linux-gnu-gcc'") as caught:
        require_tools(made_up)
    assert "qemu-system-mu gcc-mu64-linux-gnu" in caught.value.hint  # all at once
    with monkeypatch.context() as only, pytest.raises(HostError, match="qemu-system-mu") as caught:
        only.setattr("vmtailor.pipeline.image_subject.on_path", lambda name: f"/usr/bin/{name}")
        require_tools(made_up)
    assert "qemu-system-mu" in caught.value.hint and "gcc" not in caught.value.hint
    monkeypatch.setattr("vmtailor.drivers.qemu.qemu_program.plugin_api", lambda architecture: 1)
    with pytest.raises(HostError, match="mu64-linux-gnu-gcc") as caught:
        require_tools(made_up)
    assert "gcc-mu64-linux-gnu" in caught.value.hint


def test_a_host_without_a_row_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "pdp11")
    with pytest.raises(HostError, match=r"pdp11") as caught:
        architecture.of_host()
    assert "--arch" in caught.value.hint


# ---- the file


@pytest.mark.parametrize(
    ("was", "now", "words"),
    [
        ('target = "Image"\n', "", "missing required field `target`.*kernel"),
        ('title = "Made-Up"\n', "", "missing required field `title`"),
        ('title = "Made-Up"\n', 'title = "Made-Up"\ncolour = "blue"\n', "unknown field colour"),
        ('packing = "as-is"\n', 'packing = "as-is"\npaking = "elf"\n', r"unknown field kernel\.paking"),
        ('packing = "as-is"', 'packing = "squeezed"', "squeezed"),
        ('name = "plain"\n', 'name = "plain"\nwheels = 4\n', r"unknown field board\.wheels"),
        ('name = "plain"\n', 'name = "plain,accel=kvm"\n', "is no name of a board"),
        ('name = "grand"\n', 'name = "plain"\n', "two boards have one name"),
        ('usual = "grand"', 'usual = "grandest"', "is no board of this file"),
        ('name = "made_up"', 'name = "made_down"', "is not the file's"),
        ('name = "plain"\n', 'name = "plain"\ninstalled_mib = 512\n', "installed_mib and memory_word"),
        ('name = "plain"\n', 'name = "plain"\nmemory_word = "mem={kib}K"\n', "installed_mib and memory_word"),
        ("halted = 'PS=0000 WAIT'", "halted = 'PS=0000 (WAIT'", "is no pattern"),
        ("halted = 'PS=0000 WAIT'", r"halted = 'PS=\d+ WAIT'", "no extended regular expression"),
        ("halted = 'PS=0000 WAIT'", "halted = 'PS=.*? WAIT'", "no extended regular expression"),
        ('target = "mu"\n', 'target = "mu"\npace = 7\n', "pace = 7 is not from 0 to 6"),
        ('target = "mu"\n', 'target = "mu"\nguest_entry = "0f0"\n', "guest_entry = '0f0' is not"),
        ("at_once = [0x08000000]", "at_once = [0x08000001]", "not the address of a page"),
        ("modules_first = 0xffff800078000000", "modules_first = 1", "kernel_half <= modules_first"),
        ("[addresses]\n", "[addresses]\nfirmware_first = 2\nfirmware_last = 1\n", "firmware_first <= firmware_last"),
        ("[addresses]\n", "[addresses]\nfirmware_last = 0xffff800000000000\n", "firmware_last < kernel_half"),
        ("[addresses]", "[addresses", "is not TOML"),
    ],
)
def test_a_file_that_lacks_a_field_or_has_another_is_refused(was: str, now: str, words: str) -> None:
    assert was in TEXT
    with pytest.raises(UserInputError, match=words) as caught:
        architecture.parse(TEXT.replace(was, now, 1), "made_up.toml")
    assert caught.value.message.startswith("made_up.toml")


@pytest.mark.parametrize("name", architecture.names())
def test_every_row_is_right_and_its_entries_are_entries(name: str) -> None:
    row = architecture.named(name)
    assert symbol_catalogue.of_architecture(row, Cause.PLATFORM) and symbol_catalogue.of_architecture(row, Cause.POLICY)
    assert architecture.of_image(row.image) is row
    assert RootFormat(row.kernel.root) in RootFormat


def test_records_that_name_none_are_of_one_row() -> None:
    assert [row.name for row in architecture.every() if row.presumed] == [architecture.presumed_name()]


NAMES = re.compile(
    r"x86|amd64|\bi[3-6]86|i\[3-6\]86|bzImage|ttyS\d|microvm|\bq35\b|startup_64|pvh|isa-|8250|hpet|\bpit\b|\bsvm\b|\bacpi_|"
    r"kvm-clock|\bapic\b|0xffffffff[8a]0000000|\bHdrS\b|\bEFL|pclmul|crc32c-intel",
    re.IGNORECASE,
)


OTHERS = re.compile(r"aarch64|\barm64\b|ttyAMA|pl011|\bgicv|\bmips|riscv|loongson", re.IGNORECASE)


@pytest.mark.lengthy
def test_nothing_but_its_file_names_the_first_processor() -> None:
    assert using(NAMES, outside="data") == []


def test_nothing_but_their_files_names_another_one() -> None:
    """What reads logs knows processors that machines are not fitted for, too."""
    assert using(OTHERS, outside="analysis/bootlog") == []
