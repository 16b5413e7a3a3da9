# SPDX-License-Identifier: Apache-2.0
"""A processor family as data: one row of data/architectures (docs/how-to/add-a-processor.md says how to write one).

Whatever is true of one family only stands in its file; code asks the record. A field without a default must be given.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import toml_files
from vmtailor.model.call_code import CallCode
from vmtailor.model.code_patterns import MachineCode

#: The folder of the rows; tests have folders of their own.
FOLDER: Traversable | Path = resources.files("vmtailor") / "data" / "architectures"
_NAME = re.compile(r"[a-z0-9][a-z0-9_]{0,31}")
#: Parts of Python's patterns that regcomp(3) lacks, or reads otherwise.
_PYTHONS_OWN = re.compile(r"\\[AZdD]|\(\?|[*+?}]\?")
_ENTRY = re.compile(r"(?:[0-9a-f]{2}){0,8}")
_BOARD = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Bus(StrEnum):
    """The places of a machine's virtio devices: at addresses of their own, or on PCI."""

    MMIO = "mmio"
    PCI = "pci"


class Packing(StrEnum):
    """The treatment of the kernel file that make leaves. `elf`: written again without symbols and long padding
    (drivers/kernel/elf_pack.py); `as-is`: copied."""

    ELF = "elf"
    AS_IS = "as-is"


@dataclass(frozen=True)
class Board:
    """A kind of machine that a family has. `name` is ours, and QEMU's. `modules`: what a kernel that has its drivers as
    modules loads to find the virtio devices. `first_slot`: on `mmio`, the number of the transport that the first disk
    gets, so that guests name disks in our order; the next one is `slot_step` further, up or down. `all_placed`: other
    devices are told theirs in any machine, behind the disks': QEMU would give them the disks'.

    Options for QEMU's -machine: `options` always; `with_acpi` and `without_acpi` in the machines of a fit, for the
    baseline and for the tailored kernel; `by_table` under KVM beside `without_acpi`, for a kernel that reads the
    machine's table of processors (drivers/monitors/processor_table.py); `usual` for whole systems, which expect more;
    `own_loader` where the disk's own loader starts it. `network`: options of a fit's network device. `second_port`:
    there can be a second serial port, on which a system can be watched; `port_device`: QEMU's device for it, where the
    board itself has one port; `port_console`: what kernels call the board's port beside it, where that is not the name
    that it has alone.
    `installed_mib`: what the machine has in any case, in MiB; a kernel is told of less by `memory_word` (`{kib}` in it
    is how much)."""

    name: str
    bus: Bus
    modules: tuple[str, ...]
    first_slot: int = 0
    slot_step: int = -1
    all_placed: bool = False
    options: tuple[str, ...] = ()
    with_acpi: tuple[str, ...] = ()
    without_acpi: tuple[str, ...] = ()
    by_table: tuple[str, ...] = ()
    usual: tuple[str, ...] = ()
    own_loader: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    second_port: bool = True
    installed_mib: int = 0
    memory_word: str = ""
    port_device: str = ""
    port_console: str = ""


@dataclass(frozen=True)
class KvmProbe:
    """The start of the guest that tries KVM (native/kvm-probe). `cpu`: the CPU model under emulation."""

    arguments: tuple[str, ...]
    cpu: str


@dataclass(frozen=True)
class Emulator:
    """QEMU for this family. `target`: what plugins are told that it emulates. `firmware`: files of QEMU's own that a
    machine runs before its kernel. `cpu`: pattern of a line of the monitor's `info registers -a` that tells of a CPU;
    `halted`: of one that waits for an interrupt and takes none, for ever. Both are extended regular expressions as
    regcomp(3) takes them. Empty where registers do not tell. `kvm_probe`: None where there is no such guest. `pace`: on
    the instruction clock an instruction takes 2**pace nanoseconds of virtual time. `round_ns`: how long the counter of
    the guest's marks (native/arch) takes until it begins anew; 0: it never does. `lab_cpu`: the CPU model of an
    emulated machine in which KVM works (drivers/lab); empty where there is none; `lab_options`: further options of its
    board. `guest_entry`: the bytes, in hexadecimal, of the instruction by which a hypervisor within the machine enters
    its guest, where QEMU emulates one; what follows it is executed first when the guest is left. Empty: none is
    known. `run_words`: words of the kernel of a machine that `run` starts under emulation, for mistakes of the
    emulator; machines that are measured do without."""

    program: str
    package: str
    target: str
    cpu_model: str
    lab_cpu: str = ""
    lab_options: tuple[str, ...] = ()
    firmware: tuple[str, ...] = ()
    cpu: str = ""
    halted: str = ""
    run_words: tuple[str, ...] = ()
    pace: int = 0
    round_ns: int = 0
    guest_entry: str = ""
    kvm_probe: KvmProbe | None = None


@dataclass(frozen=True)
class Header:
    """The place of the release in a packed kernel. `magic` stands at `magic_at`; the 16-bit number at `pointer_at`,
    plus `base`, is where the text begins. Without `pointer_at` the file is not packed: the release is in its banner."""

    magic_at: int
    magic: str
    pointer_at: int = 0
    base: int = 0


@dataclass(frozen=True)
class CallTable:
    """A file of the kernel's source that maps numbers of system calls to names (`*.tbl`, or a unistd.h). It has the
    ABIs in its second column that are ours."""

    file: str
    abis: tuple[str, ...] = ()


@dataclass(frozen=True)
class NarrowPrograms:
    """One kind of programs of 32 bits that a family's 64-bit kernels can execute. `symbols`: what a kernel needs for
    it. `calls`: tables of its system calls, of which a tree has one. A program is of this kind where its header has
    `machine` (0: any) and, under `mask`, the `flags`; the first kind that fits counts."""

    symbols: tuple[str, ...]
    machine: int = 0
    mask: int = 0
    flags: int = 0
    calls: tuple[CallTable, ...] = ()

    def is_of(self, machine: int, flags: int) -> bool:
        """Return whether a program with these numbers in its header (e_machine, e_flags) is of this kind."""
        return self.machine in (0, machine) and flags & self.mask == self.flags


def narrow_numbers(head: bytes) -> tuple[int, int]:
    """Return machine and flags in the header of a little-endian program of 32 bits; 0 for what `head` does not
    reach."""
    return int.from_bytes(head[18:20], "little"), int.from_bytes(head[36:40], "little")


@dataclass(frozen=True)
class Kernel:
    """The way in which a kernel is configured, made and entered.

    `arch`: make's ARCH. `source`: the folder below arch/, Kconfig's SRCARCH. `kconfig`: what Kconfig sees in its
    environment. `cross`: prefix of the compiler for a host of another family, and `cross_packages` where it is from.
    `target` is made and `file`, below the build folder, is booted, packed as `packing` says. `load_at`: where an ELF
    file is loaded whose own physical addresses begin at 0.

    `console`: the serial line's name. `words`: further words that both kernels are told, `last` ends a machine.
    `entries`: the symbols at which the kernel proper may begin, at a physical address. `after_early`: functions that
    are called behind the early initcalls and before the next level. `always`: symbols that each kernel of the family
    has. `command_line_bytes`: the longest command line. `least_memory_mib`: below it no kernel can be loaded.
    `of_32_bits`: its programs of 32 bits, kind by kind. `root`: the file system that roots have where nobody chose one
    (a RootFormat of model/plan.py). `xz_filter`: what the kernel's build has xz do with branches before it packs
    (scripts/xz_wrap.sh), by the filter's number in the format of xz; 0: nothing.

    A baseline that is compiled: `packaged_target` and `packaged_file`, the form that distributions package; `defconfig`
    are make's targets; `baseline` are symbols that the machines need of it."""

    arch: str
    source: str
    kconfig: dict[str, str]
    cross: str
    cross_packages: tuple[str, ...]
    target: str
    file: str
    packing: Packing
    packaged_target: str
    packaged_file: str
    defconfig: tuple[str, ...]
    baseline: tuple[str, ...]
    console: str
    words: tuple[str, ...]
    entries: tuple[str, ...]
    always: dict[str, str]
    command_line_bytes: int
    least_memory_mib: int
    after_early: tuple[str, ...] = ()
    of_32_bits: tuple[NarrowPrograms, ...] = ()
    root: str = "erofs"
    header: Header | None = None
    xz_filter: int = 0
    load_at: int = 0


@dataclass(frozen=True)
class Addresses:
    """`kernel_half`: addresses from here on are the kernel's. `image_map`: virtual minus physical address of the
    kernel's image before it is relocated (0: it begins at the addresses that it is linked for); with `image_at`, the
    physical address of the image's begin (`_text`), it is what the symbol table makes of it, wherever a version of the
    kernel has its image. Modules lie at `modules_first` <= address <= `modules_last`, in which range the image itself
    may lie, too. `firmware_first` <= address <= `firmware_last`: firmware that stays and that the kernel calls, where
    it lies virtually and physically; `firmware_last = 0` where there is none."""

    kernel_half: int
    image_map: int
    modules_first: int
    modules_last: int
    image_at: int | None = None
    firmware_first: int = 0
    firmware_last: int = 0


@dataclass(frozen=True)
class Opcode:
    """An instruction's byte: the one whose bits under `mask` are `value`. `kernel_half`: only in code there."""

    value: int
    mask: int = 0xFF
    kernel_half: bool = False


@dataclass(frozen=True)
class Ports:
    """The look of instructions that access I/O ports: any `prefixes`, then one of `opcodes`. Both are empty where there
    are no ports: devices are then memory-mapped, and counted as such."""

    prefixes: tuple[Opcode, ...] = ()
    opcodes: tuple[Opcode, ...] = ()


@dataclass(frozen=True)
class DeviceAccesses:
    """Facts of devices for the counting plugin. `at_once`: physical pages of devices that belong to the processor. They
    answer at once, and nothing else works for them."""

    ports: Ports = Ports()
    at_once: tuple[int, ...] = ()


@dataclass(frozen=True)
class Packages:
    """A kernel's packages: `architecture` as their distribution calls it; `flavour` ends the release of a kernel;
    `suffix` ends the name of the package with the very code of the kernel. `debug_modules`: modules of this family
    whose debug information is unpacked. `suites`: the releases of the distribution that have the family, the one to be
    preferred first; empty where it is this host's, whichever that is."""

    architecture: str
    flavour: str
    suffix: str = ""
    suites: tuple[str, ...] = ()
    debug_modules: tuple[str, ...] = ()


@dataclass(frozen=True)
class Loop:
    """Functions that wait in a loop because the machine is emulated. `condition`: when they do."""

    name: str
    functions: tuple[str, ...]
    condition: str
    reason: str


@dataclass(frozen=True)
class LeftOut:
    """Protection that a distribution's kernels of any family may have and those of this one are fitted without, and
    why: it has no effect here, the family has no such thing, or somebody else sees to it."""

    symbols: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class LogSigns:
    """The signs of the family's boot logs. `names`: what programs call it, where that is not its name; `titles`: the
    same for the title of a .config; `compilers`: patterns of the first word of its compilers' names; `signs`: how
    messages begin that only its kernels print. `bare_command_line`: the kernel prints "Command line:". `firmware_end`:
    how the last line begins that firmware prints ahead of the kernel, where it prints."""

    names: dict[str, str]
    titles: dict[str, str]
    compilers: tuple[str, ...]
    signs: tuple[str, ...]
    bare_command_line: bool = False
    firmware_end: str = ""


@dataclass(frozen=True)
class Architecture:
    """One processor family. `title` is for people. `image`: how images name it; `elf`: the numbers of machines in the
    headers of programs that it can run, that of its own first, then that of 32 bits; `hosts`: how `uname -m` calls it
    on hosts that run it. `presumed`: records that name no family are of this one: they are older than the others.

    The first of `board` is what is fitted for; `usual` names the one for systems with an init of their own.
    `platform` and `policy` are entries of the catalogue (analysis/changes/symbol_catalogue.py) for this family alone.
    `left_out`: protection that is neither, with the reasons. `warnings`: patterns of kernel messages, at the begin
    of a line, that say that something of it went wrong.
    `code`: None where programs of the family are known by their imports and strings alone. `following`: None where a
    kernel's calls cannot be followed."""

    name: str
    title: str
    image: str
    elf: tuple[int, ...]
    hosts: tuple[str, ...]
    emulator: Emulator
    kernel: Kernel
    addresses: Addresses
    calls: tuple[CallTable, ...]
    packages: Packages
    board: tuple[Board, ...]
    usual: str
    log: LogSigns
    devices: DeviceAccesses = DeviceAccesses()
    loop: tuple[Loop, ...] = ()
    platform: tuple[dict[str, Any], ...] = ()
    policy: tuple[dict[str, Any], ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
    presumed: bool = False
    code: MachineCode | None = None
    following: CallCode | None = None

    @property
    def board_names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.board)

    def board_named(self, name: str) -> Board:
        """Return one of its boards. Raises UserInputError, with those that there are."""
        found = next((one for one in self.board if one.name == name), None)
        if found is None:
            raise UserInputError(
                f"{self.title} has no machine '{name[:64]}'", hint=f"its machines: {', '.join(self.board_names)}"
            )
        return found

    def runs_whole(self, machine: int, bits: int, little: bool) -> bool:
        """Return whether a system is of the family whose init has these words in its ELF header."""
        return machine == self.elf[0] and bits == 64 and little

    @property
    def is_host(self) -> bool:
        """Return whether this host is of the family."""
        return platform.machine() in self.hosts


def names() -> tuple[str, ...]:
    """Return the names of all that have a row, in order."""
    return tuple(sorted(one.name.removesuffix(".toml") for one in FOLDER.iterdir() if one.name.endswith(".toml")))


def named(name: str) -> Architecture:
    """Return the architecture of that name. Raises UserInputError, with those that there are."""
    if name not in names():
        raise UserInputError(f"no architecture '{name[:64]}' is known", hint=f"known: {', '.join(names())}")
    return _row(FOLDER / f"{name}.toml")


def every() -> tuple[Architecture, ...]:
    return tuple(named(name) for name in names())


def presumed() -> Architecture:
    """Return the architecture of records that name none."""
    return next(one for one in every() if one.presumed)


def presumed_name() -> str:
    return presumed().name


def of_image(name: str) -> Architecture | None:
    """Return the architecture of an image, by the name that its configuration has for it."""
    return next((one for one in every() if one.image == name), None)


def image_name(name: str) -> str:
    """Return the name that images have for a processor, from any of its names (`x86_64`, `AArch64`); an unknown name as
    it is."""
    low = name.lower()
    rows = (one for one in every() if one.image != f"{low}le")  # there uname's name is that of the other byte order
    found = (one.image for one in rows if low in (one.image, one.name, one.title.lower(), *one.hosts))
    return next(found, name)


def of_host() -> Architecture:
    """Return the architecture of this host. Raises HostError when it has none."""
    found = next((one for one in every() if one.is_host), None)
    if found is None:
        raise HostError(
            f"this host's processor ({platform.machine()}) is not one that machines are fitted for",
            hint=f"name another with --arch: {', '.join(names())}",
        )
    return found


def every_board() -> tuple[str, ...]:
    """Return the names of all families' boards, each once."""
    return tuple(dict.fromkeys(name for one in every() for name in one.board_names))


def _row(path: Traversable | Path) -> Architecture:
    return _parsed(path.read_text("utf-8"), path.name)


@cache
def _parsed(text: str, origin: str) -> Architecture:
    return parse(text, origin)


def parse(text: str, origin: str) -> Architecture:
    """Read one file. Raises UserInputError that names the file and the field."""
    architecture = toml_files.read_strictly(text, Architecture, origin)
    wrong = next(_wrong(architecture, origin.removesuffix(".toml")), None)
    if wrong is not None:
        raise UserInputError(f"{origin}: {wrong}")
    return architecture


def _wrong(architecture: Architecture, file: str) -> Iterator[str]:
    if architecture.name != file or not _NAME.fullmatch(architecture.name):
        yield f"name = {architecture.name!r} is not the file's, or not of a-z, 0-9 and _"
    yield from _wrong_boards(architecture)
    for pattern in (architecture.emulator.cpu, architecture.emulator.halted):
        if _PYTHONS_OWN.search(pattern):
            yield f"{pattern!r} is no extended regular expression of POSIX"
    for pattern in (
        architecture.emulator.cpu,
        architecture.emulator.halted,
        *architecture.log.compilers,
        *architecture.warnings,
    ):
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"{pattern!r} is no pattern: {error}"
    yield from _wrong_numbers(architecture)


def _wrong_boards(architecture: Architecture) -> Iterator[str]:
    if not architecture.board:
        yield "there is no [[board]]"
    for one in architecture.board:
        if not _BOARD.fullmatch(one.name):
            yield f"name = {one.name!r} is no name of a board"
        if bool(one.installed_mib) != ("{kib}" in one.memory_word):
            yield f"{one.name}: installed_mib and memory_word (with {{kib}} in it) go together"
    if len(set(architecture.board_names)) != len(architecture.board_names):
        yield "two boards have one name"
    if architecture.usual not in architecture.board_names:
        yield f"usual = {architecture.usual!r} is no board of this file"


def _wrong_numbers(architecture: Architecture) -> Iterator[str]:
    where = architecture.addresses
    if not 0 < where.kernel_half <= where.modules_first < where.modules_last < 1 << 64:
        yield "addresses: 0 < kernel_half <= modules_first < modules_last < 2^64"
    if not 0 <= where.firmware_first <= where.firmware_last < where.kernel_half:
        yield "addresses: 0 <= firmware_first <= firmware_last < kernel_half"
    if not 0 <= architecture.emulator.pace <= 6:
        yield f"emulator.pace = {architecture.emulator.pace} is not from 0 to 6"
    if architecture.emulator.round_ns < 0:
        yield f"emulator.round_ns = {architecture.emulator.round_ns} is less than 0"
    if not _ENTRY.fullmatch(architecture.emulator.guest_entry):
        yield f"emulator.guest_entry = {architecture.emulator.guest_entry!r} is not 1 to 8 bytes in hexadecimal"
    for page in architecture.devices.at_once:
        if page & 0xFFF:
            yield f"devices.at_once: {page:#x} is not the address of a page"
    yield from _wrong_code(architecture.code)
    for code in (*architecture.devices.ports.prefixes, *architecture.devices.ports.opcodes):
        if not (0 <= code.value <= 0xFF and 0 < code.mask <= 0xFF and code.value & code.mask == code.value):
            yield f"devices.ports: value {code.value:#x} under mask {code.mask:#x} is no byte"


def _wrong_code(code: MachineCode | None) -> Iterator[str]:
    if code is None:
        return
    if not re.fullmatch(r"(?:[0-9a-f]{2}){1,8}", code.system_call):
        yield f"code.system_call = {code.system_call!r} is not 1 to 8 bytes in hex"
    if not 1 <= code.unit <= 8:
        yield f"code.unit = {code.unit} is not from 1 to 8"
    for one in (*code.direct_calls, *code.jumps, *code.references, *code.slots):
        if not (0 < one.mask < 1 << 64 and one.value & ~one.mask == 0 and 0 <= one.low <= one.low + one.bits <= 64):
            yield f"code: value {one.value:#x} under mask {one.mask:#x} is no pattern"
