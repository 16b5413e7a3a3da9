# SPDX-License-Identifier: Apache-2.0
"""A bundle booted with its own exercise: ready is what the exercise says, and its answers are judged."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vmtailor.analysis.cost.counters import KERNEL_MARK, SymbolTable, initcall_spans
from vmtailor.analysis.guests import boots, kernel_log
from vmtailor.base import plain_files
from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import Natives, mark_addresses
from vmtailor.base.store import Store
from vmtailor.drivers.guest import rig
from vmtailor.drivers.guest.guest_volume import Run
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.kernel import kconfig_file
from vmtailor.drivers.qemu import plugin_file
from vmtailor.drivers.qemu.plugin import PluginConfig
from vmtailor.model.boot import Boot
from vmtailor.model.bundle import EXERCISE, INIT, Bundle
from vmtailor.model.counters import Counters
from vmtailor.model.ending import Ending
from vmtailor.model.exercise import Exercise
from vmtailor.model.machine import Accelerator, Clock, Disk, Machine
from vmtailor.model.series import Outcome, VmBoot, VmMilestone
from vmtailor.stages.boot.once import Plan

#: The table of symbols beside a kernel that was compiled here.
SYSTEM_MAP = "System.map"
#: Longest table of symbols and configuration that are read, and longest init. Tables of large kernels have 10 MiB.
MOST_TABLE_BYTES, MOST_INIT_BYTES = 64 << 20, 4 << 20
#: Lines as nm writes them; what of them becomes a span goes into the plugin's configuration.
_TABLE = re.compile(rb"(?:[0-9a-f]{16} [A-Za-z?] [!-~]{1,512}\n)*")
STAMPS = ("printk.time=1",)
OTHER_INIT = "its init was not met where it marks the milestones: the bundle is of another version; fit the image again"


@dataclass(frozen=True, eq=False)
class Loaded:
    """A bundle, read. Its files are checked when they are first asked for, and are the same ones from then on."""

    files: BundleFolder
    exercise: Exercise

    @property
    def folder(self) -> Path:
        return self.files.path

    @property
    def bundle(self) -> Bundle:
        return self.files.bundle

    @cached_property
    def kernel(self) -> Path:
        return self.files.file(self.bundle.kernel)

    @cached_property
    def root(self) -> Path:
        return self.files.file(self.bundle.root)

    @cached_property
    def symbols(self) -> bytes:
        """The kernel's table of symbols. Raises UserInputError when it is none."""
        found = self.files.data(self.bundle.system_map, MOST_TABLE_BYTES)
        if not _TABLE.fullmatch(found):
            raise UserInputError(
                f"{self.folder / self.bundle.system_map} is no table of symbols", hint="fit the image again"
            )
        return found

    @cached_property
    def config(self) -> dict[str, str]:
        """The kernel's configuration, name → value. Raises UserInputError for a file that kconfig would not write."""
        name = self.bundle.kernel_config
        return kconfig_file.parse_strictly(self.files.data(name, MOST_TABLE_BYTES), str(self.folder / name))

    @cached_property
    def init_marks(self) -> dict[str, int] | None:
        """Where the init in the root file system marks the milestones; None when the bundle does not say."""
        return mark_addresses(self.files.data(INIT, MOST_INIT_BYTES)) if self.files.lists(INIT) else None


def load(path: Path, store: Store | None = None) -> Loaded:
    """Read a bundle. Raises UserInputError when it is damaged, not whole, or says what no fit says."""
    files = bundle_folder.load(path, store)
    for name in (files.bundle.system_map, files.bundle.kernel_config, EXERCISE):
        with plain_files.opened(path, name):
            files.listed(name)
    return Loaded(files, files.exercise())


@dataclass(frozen=True)
class Chosen:
    """What the user chose of a bundle's machine. `append`: further words of its command line."""

    cpu_model: str = "max"
    accelerator: Accelerator = Accelerator.TCG
    clock: Clock = Clock.WALL
    append: tuple[str, ...] = ()


def machine_of(loaded: Loaded, chosen: Chosen) -> Machine:
    """The bundle's machine, with the accelerator, clock and words that the user chose.

    On the wall clock its log has time stamps; where instructions are counted, no word is added that would cost any."""
    bundle = loaded.bundle
    stamped = any(word.startswith("printk.time=") for word in chosen.append)
    stamps = STAMPS if chosen.clock is Clock.WALL and not stamped else ()
    return Machine(
        architecture=bundle.architecture, kind=bundle.machine, memory_bytes=bundle.memory_bytes, cpus=bundle.cpus,
        kernel=str(loaded.kernel), append=(*bundle.words, *stamps, *chosen.append), disks=(Disk(str(loaded.root)),),
        network=bundle.network, cpu_model=chosen.cpu_model, accelerator=chosen.accelerator, clock=chosen.clock,
    )  # fmt: skip


class BundleBooter:
    """Boots variants of a bundle's machine; takes the place of `boot_once` in a series. A variant with another kernel
    has that kernel's table of symbols beside it."""

    def __init__(self, loaded: Loaded, natives: Natives) -> None:
        self._loaded = loaded
        self._natives = natives
        self._tables: dict[str, SymbolTable] = {}

    def table(self, kernel: str) -> SymbolTable:
        """The symbols of the bundle's kernel, or of one that was compiled from it and has its table beside it."""
        if kernel not in self._tables:
            own = kernel == str(self._loaded.kernel)
            data = self._loaded.symbols if own else Path(kernel).with_name(SYSTEM_MAP).read_bytes()
            self._tables[kernel] = SymbolTable.parse(data.decode("ascii", "replace"), self._loaded.bundle.architecture)
        return self._tables[kernel]

    def __call__(
        self, machine: Machine, plan: Plan, folder: Path, *, number: int, variant: str,
        header: Sequence[tuple[str, str]] = (), on_progress: Callable[[float], None] | None = None,
    ) -> VmBoot:  # fmt: skip
        return self.counted(machine, plan, folder, number=number, variant=variant)[0]

    def counted(
        self, machine: Machine, plan: Plan, folder: Path, *, number: int, variant: str
    ) -> tuple[VmBoot, Counters | None]:
        """Boot once; on the instruction clock with everything that was counted."""
        folder.mkdir(parents=True, exist_ok=True)
        exercise = self._loaded.exercise
        require_own(machine)
        assert machine.kernel is not None
        table = self.table(machine.kernel)
        counting = machine.clock is Clock.INSTRUCTIONS
        # The bundle's own init tells where its marks are: another version of this program has another one.
        own_marks = self._loaded.init_marks
        marks = boots.marks_at(table, self._natives.marks() if own_marks is None else own_marks)
        asked = PluginConfig(marks=marks, spans=initcall_spans(table), architecture=machine.architecture)
        config = asked if counting else None
        setup = rig.Setup(
            machine, Run(exercise=exercise, key=rig.FIXED_KEY), self._natives, plan.timeout_s, plugin=config
        )
        outcome = rig.drive(setup, folder)
        log = kernel_log.whole(outcome.report.file("kernel-log"), outcome.report.console)
        (folder / "console.log").write_text(kernel_log.named(log, table), "utf-8", "replace")
        counters = plugin_file.parse(outcome.counts, "the plugin's counts") if counting and outcome.counts else None
        boot = boots.make_boot(outcome, exercise, counters, table)
        problems = boots.failures(outcome, exercise)
        result = VmBoot(
            number=number,
            variant=variant,
            outcome=_outcome(outcome.end.ending, boot, bool(problems)),
            milestones=_milestones(boot),
            seconds=outcome.end.seconds,
            folder=folder.name,
            problem="; ".join(problems),
            instructions=_to_init(boot),
            kernel_warnings=(OTHER_INIT,) if counters is not None and counters.at("init") is None else (),
        )
        return result, counters


def require_own(machine: Machine) -> None:
    """Raise UserInputError for what a bundle's machine cannot have."""
    if machine.kernel is None:
        raise UserInputError("a bundle's machine has a kernel of its own")
    if machine.options or machine.machine_options:
        raise UserInputError("a bundle's machine takes no further options of QEMU")


def _outcome(ending: Ending, boot: Boot, wrong: bool) -> Outcome:
    if not wrong:
        return Outcome.READY
    if ending is Ending.PANIC:
        return Outcome.PANIC
    if boot.milestone("ready") is not None:
        return Outcome.WRONG
    return Outcome.TIMEOUT if ending is Ending.DEADLINE else Outcome.STOPPED


def _milestones(boot: Boot) -> tuple[VmMilestone, ...]:
    found = [
        VmMilestone(
            m.name, m.wall_s, m.virtual_ns / 1e9 if m.virtual_ns is not None else None, m.executed, "mark of our init"
        )
        for m in boot.milestones
    ]
    return tuple(sorted(found, key=lambda m: (m.wall_s or 0.0, m.executed or 0)))


def _to_init(boot: Boot) -> int | None:
    begin, end = boot.milestone(KERNEL_MARK), boot.milestone("init")
    if begin is None or end is None or begin.executed is None or end.executed is None:
        return None
    return end.executed - begin.executed
