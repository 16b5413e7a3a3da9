# SPDX-License-Identifier: Apache-2.0
"""The timeline of one boot: what a log says about where the time went, and what it cannot say.

All times are whole microseconds. The clock's zero is the zero of the kernel's own clock (the `[    0.000000]` of its
log); firmware and loader lie before it and are negative. A figure that the log does not support is None, never 0.

Rows are msgspec structures, not dataclasses: a long log makes a million of them, and these take a third of the time
and memory.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

import msgspec


class PhaseName(StrEnum):
    """The stretches of a boot as a log shows them, in their order."""

    FIRMWARE = "firmware"
    LOADER = "loader"
    KERNEL = "kernel"
    INITRD = "initrd"
    USERSPACE = "userspace"
    READY = "ready"


class DurationSource(StrEnum):
    """The sources of a duration."""

    REPORTED = "reported"  # the program that did the work printed it
    CORRECTED = "corrected"  # what it printed, less an error that is known: its unit, or where it counted from
    TIME_STAMPS = "time-stamps"  # the difference of two lines' stamps
    SAMPLES = "samples"  # first and last time that a sampling collector saw it
    DRAWING = "drawing"  # measured from a drawing, as exact as that is


class Path(StrEnum):
    """The ways of an item: the next step of the boot had to wait for it, or not."""

    CRITICAL = "critical"
    BESIDE = "beside"
    UNKNOWN = "unknown"


class WarningCode(StrEnum):
    """Why a figure is missing, corrected or weak (docs/reference/boot-formats.md)."""

    FIRST_LINES_LOST = "first-lines-lost"
    CLOCK_STARTS_LATE = "clock-starts-late"
    TICK_QUANTISED = "tick-quantised"
    TICK_STAMPS = "tick-stamps"
    CONSOLE_INFLATED = "console-inflated"
    NO_TIME_STAMPS = "no-time-stamps"
    COARSE_CLOCK = "coarse-clock"
    ARRIVAL_TIMES = "arrival-times"
    CLOCK_RESET = "clock-reset"
    CLOCK_BACKWARDS = "clock-backwards"
    CLOCK_JUMPS = "clock-jumps"
    DAMAGED_LINES = "damaged-lines"
    ESCAPES_REMOVED = "escapes-removed"
    MESSAGES_DROPPED = "messages-dropped"
    CRASHED = "crashed"
    UNFINISHED = "unfinished"
    UNMATCHED_RETURN = "unmatched-return"
    PROBE_BEFORE_CLOCKSOURCE = "probe-before-clocksource"
    OVERLAPPING_PROBES = "overlapping-probes"
    UNITS_OVERLAP = "units-overlap"
    PROBES_DEFERRED = "probes-deferred"
    SEVERAL_BOOTS = "several-boots"
    NO_SUCH_BOOT = "no-such-boot"
    PHASE_OPEN = "phase-open"
    KERNEL_END_UNKNOWN = "kernel-end-unknown"
    SUM_DIFFERS = "sum-differs"
    CONTRADICTION = "contradiction"
    IDENTITY_UNCLEAR = "identity-unclear"
    CLOCK_RELATIVE = "clock-relative"
    DIFFERENT_BOOTS = "different-boots"
    COLLECTOR_LATE = "collector-late"
    FILE_CUT = "file-cut"
    INPUT_CUT = "input-cut"
    NOTHING_FOUND = "nothing-found"


class Warn(msgspec.Struct, frozen=True):
    """`code` is one of WarningCode."""

    code: str
    text: str


class KernelInfo(msgspec.Struct, frozen=True):
    """The kernel, as far as it is known. `hypervisor` is the interface that the kernel found, or systemd's word for it;
    another hypervisor may offer it: MachineInfo has the one that all signs agree on. `tick_us` is the timer tick its
    early figures are rounded to, where they are."""

    version: str | None = None
    arch: str | None = None
    command_line: str | None = None
    hypervisor: str | None = None
    clocksource: str | None = None
    clocksource_switch_us: int | None = None
    tick_us: int | None = None


class MachineKind(StrEnum):
    """The kinds of machines that a log can be of."""

    VIRTUAL = "virtual"
    BOARD = "board"  # a device tree describes it
    PHONE = "phone"
    LAPTOP = "laptop"
    DESKTOP = "desktop"
    SERVER = "server"


class MachineInfo(msgspec.Struct, frozen=True):
    """The machine at hand, as its log tells it (data/boot_facts.toml). None: the log does not tell, or its signs
    contradict each other. `hypervisor` and `cloud` are names of the file's; `model` is DMI's or the device tree's.
    `has` names what else was seen, `seen` the lines that all of it rests on, and those that say otherwise."""

    kind: str | None = None
    hypervisor: str | None = None
    model: str | None = None
    processor: str | None = None
    cpus: int | None = None
    has: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    cloud: str | None = None


class GapSpan(msgspec.Struct, frozen=True):
    """A stretch in which the log is silent, or (`silent` False) in which it says what it waits for. `before` and
    `after` are the messages around it; `before` is empty where that line was left out of the log. `phase` is where it
    begins. `kind` and `title` are of data/boot_gaps.toml, ""
    where no message of a known kind explains it. `own_us` is its length less what initcalls and probes in it account
    for, and less what a stretch has of silences of other kinds."""

    start_us: int
    end_us: int
    before: str
    after: str
    phase: str = ""
    kind: str = ""
    title: str = ""
    path: str = Path.UNKNOWN
    silent: bool = True
    own_us: int = 0

    @property
    def name(self) -> str:
        """Return its title, or the message that it follows; where that was left out, the one that ends it."""
        plain = f"after: {self.before}" if self.before or not self.after else f"before: {self.after}"
        return self.title or plain


class PhaseSpan(msgspec.Struct, frozen=True):
    """`source` says how start and end were found. `ready` is a moment: its end is its start."""

    name: str
    start_us: int | None
    end_us: int | None
    source: str


class Initcall(msgspec.Struct, frozen=True, gc=False):
    """One run of one initcall. `occurrence` counts runs of the same name and module from 1.

    `start_us` is the stamp of its `calling` line, `end_us` that of its `initcall … returned` line. `duration_us` is
    `reported_us` (as printed), that with a known error taken out, or `stamps_us` (difference of stamps), as
    `duration_source` says; `exclusive_us` is less what ran inside it. `returned` is None when it never did. `task` is
    the process that ran it."""

    name: str
    module: str | None
    occurrence: int
    start_us: int | None
    duration_us: int | None
    exclusive_us: int | None
    duration_source: str | None
    reported_us: int | None
    returned: int | None
    end_us: int | None = None
    stamps_us: int | None = None
    level: str | None = None
    task: int | None = None
    path: str = Path.UNKNOWN
    asynchronous: bool = False

    @property
    def bar_us(self) -> tuple[int, int] | None:
        """Return where it is drawn: start and duration, so that it ends where its line says; printing its `calling`
        line is not its own time."""
        if self.start_us is None or self.duration_us is None:
            return None
        return (self.end_us - self.duration_us if self.end_us is not None else self.start_us), self.duration_us


class Probe(msgspec.Struct, frozen=True, gc=False):
    """One attempt to bind a driver to `device`, which is also its `name`: the log does not say the driver's.
    `start_us` is the stamp less the time reported. `deferred`: it returned 517, to be tried again."""

    name: str
    device: str
    module: str | None
    occurrence: int
    start_us: int | None
    duration_us: int | None
    exclusive_us: int | None
    duration_source: str | None
    reported_us: int | None
    returned: int | None
    end_us: int | None = None
    path: str = Path.UNKNOWN
    deferred: bool = False


class Deferral(msgspec.Struct, frozen=True):
    """A device whose probe was put off `times` times, costing `spent_us` in vain, of which `beside_us` beside the boot;
    `bound_us` is when one succeeded."""

    device: str
    times: int
    spent_us: int
    first_us: int | None
    bound_us: int | None
    beside_us: int = 0


#: Prefix of cloud-init's stages among units: they run within its services.
STAGES = "cloud-init:"


class UnitSpan(msgspec.Struct, frozen=True):
    """A unit of the service manager, or a stage of cloud-init (`cloud-init:…`). `critical`: on the critical path,
    where known; `path_us` is how long the path waited for it. `exclusive_us` is the time in which no other was
    starting."""

    name: str
    start_us: int | None
    end_us: int | None
    duration_us: int | None
    exclusive_us: int | None
    duration_source: str | None
    critical: bool | None = None
    path_us: int | None = None


class Process(msgspec.Struct, frozen=True, gc=False):
    """A process. `exclusive_us` is the processor time it used itself, where it was sampled; `waiting_us` what it waited
    for disks: by the kernel's own accounts, else the samples that saw it wait. `observer`: it is part of the
    collector."""

    name: str
    pid: int | None
    ppid: int | None
    start_us: int | None
    end_us: int | None
    duration_us: int | None
    exclusive_us: int | None
    duration_source: str | None
    observer: bool = False
    waiting_us: int | None = None


class Module(msgspec.Struct, frozen=True):
    """A module that was loaded, with the time its initcalls took."""

    name: str
    start_us: int | None
    duration_us: int | None


class UseSample(msgspec.Struct, frozen=True, gc=False):
    """Use of the machine up to `at_us` since the sample before. Shares are 0 … 1 of all processors; disk in bytes a
    second."""

    at_us: int
    user: float | None = None
    system: float | None = None
    waiting: float | None = None
    disk_read_bps: float | None = None
    disk_write_bps: float | None = None
    disk_busy: float | None = None


class ConsoleCost(msgspec.Struct, frozen=True):
    """The cost of printing itself, up to the end of the boot; `kernel_us`: of it, up to the kernel's end. `lines`,
    `characters`: of all that the kernel logged. `us_per_char` is measured from the log, or from the speed of the
    console (`source` says)."""

    lines: int
    characters: int
    us_per_char: float | None
    cost_us: int | None
    source: str
    kernel_us: int | None = None


class Hotspot(msgspec.Struct, frozen=True):
    """`exclusive_us` is its own time, `duration_us` all of it; of several silences of one kind (`times`) both are the
    sum. `share_*` are 0 … 1 of the kernel phase and of the boot up to the end of its last phase; None where that is not
    known or it is not part of it. `advice` lists ids of the catalogue. `options` names the kernel option, or the
    alternatives, that it comes from, and `source` the file; empty where that is not certain, or every kernel has it."""

    kind: str
    name: str
    exclusive_us: int
    share_kernel: float | None
    share_total: float | None
    advice: tuple[str, ...] = ()
    start_us: int | None = None
    occurrence: int | None = None
    path: str = Path.UNKNOWN
    duration_us: int | None = None
    times: int = 1
    options: tuple[str, ...] = ()
    source: str = ""


class PrintedLine(msgspec.Struct, frozen=True, gc=False):
    """A line of the kernel whose origin is certain. `options`: the option that printed it, or the alternatives; empty
    where every kernel has the file `source`."""

    at_us: int | None
    text: str
    options: tuple[str, ...]
    source: str


class UnusedOption(msgspec.Struct, frozen=True):
    """An option that is built in, and that nothing in the log uses: `text` only says that it was set up. `command`
    tries the kernel without it. `held_by`: options of this kernel that select it, as far as the files name them."""

    option: str
    at_us: int | None
    text: str
    source: str
    command: str
    held_by: tuple[str, ...] = ()


class Remedy(msgspec.Struct, frozen=True):
    """A change of the catalogue that fits this boot. `applies` False: it would have, but this kernel has it already
    or cannot.
    `saving_us` is the most to expect (None: not to be had from this log); `confidence` low, medium, high. `published`
    are figures of others, each with who measured it."""

    id: str
    title: str
    applies: bool
    saving_us: int | None
    confidence: str
    why: str
    change: tuple[str, ...]
    risk: str
    seen: tuple[str, ...] = ()
    published: tuple[str, ...] = ()


class SourceFile(msgspec.Struct, frozen=True):
    """A file that was read, and what it was recognised as."""

    path: str
    format: str


class Timeline(msgspec.Struct, frozen=True):
    """One boot. `shown_us` is how much of it the files show: from its first phase's start to the end of its last one,
    or, where that is open, to the last event before a silence that is none of the boot's; there is `shown_end_us`,
    and `last_us` is the last event of all.

    History of the format: /1 first; /2: machine, gaps, shown_us, shown_end_us, last_us; units' path_us; hot spots'
    duration_us and times; remedies' published; processes' waiting_us. /3: lines, unused; hot
    spots' options and source."""

    SCHEMA: ClassVar[str] = "vmtailor/timeline/3"
    #: Schemas that are read, the fields that came later being empty.
    READ: ClassVar[tuple[str, ...]] = ("vmtailor/timeline/2", SCHEMA)

    kernel: KernelInfo
    phases: tuple[PhaseSpan, ...] = ()
    initcalls: list[Initcall] = []
    probes: list[Probe] = []
    units: list[UnitSpan] = []
    processes: list[Process] = []
    hotspots: tuple[Hotspot, ...] = ()
    warnings: tuple[Warn, ...] = ()
    kernel_us: int | None = None
    total_us: int | None = None
    deferrals: tuple[Deferral, ...] = ()
    modules: tuple[Module, ...] = ()
    console: ConsoleCost | None = None
    advice: tuple[Remedy, ...] = ()
    samples: tuple[UseSample, ...] = ()
    files: tuple[SourceFile, ...] = ()
    config: dict[str, str] = {}
    machine: MachineInfo = MachineInfo()
    gaps: tuple[GapSpan, ...] = ()
    shown_us: int | None = None
    shown_end_us: int | None = None
    last_us: int | None = None
    lines: tuple[PrintedLine, ...] = ()
    unused: tuple[UnusedOption, ...] = ()

    def phase(self, name: str) -> PhaseSpan | None:
        """Return the phase of that name, or None."""
        return next((p for p in self.phases if p.name == name), None)
