# SPDX-License-Identifier: Apache-2.0
"""A bundle booted with its own exercise: ready is what the exercise says, and its answers are judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.analysis import boots, kernel_log
from vmtailor.analysis.counters import KERNEL_MARK, SymbolTable, initcall_spans
from vmtailor.base import records
from vmtailor.base.errors import UserInputError
from vmtailor.base.natives import Natives
from vmtailor.drivers import plugin_file, rig
from vmtailor.drivers.guest_volume import Run
from vmtailor.drivers.plugin import PluginConfig
from vmtailor.drivers.qemu import Ending
from vmtailor.model.boot import Boot
from vmtailor.model.bundle import INIT, RECORD, Bundle
from vmtailor.model.counters import Counters
from vmtailor.model.exercise import Exercise
from vmtailor.model.machine import Clock, Disk, Machine
from vmtailor.model.vm import Outcome, Vm, VmBoot, VmDisk, VmMilestone
from vmtailor.stages.boot.once import Plan

EXERCISE = "exercise.json"
STAMPS = ("printk.time=1",)
OTHER_INIT = "its init was not met where it marks the milestones: the bundle is of another version; fit the image again"


@dataclass(frozen=True)
class Loaded:
    """A bundle's folder, read."""

    folder: Path
    bundle: Bundle
    exercise: Exercise

    @property
    def kernel(self) -> Path:
        return self.folder / self.bundle.kernel

    @property
    def system_map(self) -> Path:
        return self.folder / self.bundle.system_map

    @property
    def config(self) -> Path:
        return self.folder / self.bundle.kernel_config


def is_bundle(path: Path) -> bool:
    """Whether a path is a bundle's folder."""
    return (path / RECORD).is_file()


def load(path: Path) -> Loaded:
    """Read a bundle. Raises UserInputError when it is damaged or not whole."""
    bundle = records.load(Bundle, path / RECORD)
    for name in (bundle.kernel, bundle.root, bundle.system_map, bundle.kernel_config, EXERCISE):
        if not (path / name).is_file():
            raise UserInputError(f"the bundle {path} lacks {name}", hint="make it again with vmtailor fit")
    return Loaded(path.absolute(), bundle, records.load(Exercise, path / EXERCISE))


def vm_of(loaded: Loaded, vm: Vm) -> Vm:
    """The bundle's machine, with the accelerator, clock and words that the user chose.

    On the wall clock its log has time stamps; where instructions are counted, no word is added that would cost any."""
    bundle = loaded.bundle
    stamps = STAMPS if vm.clock is Clock.WALL and not any(w.startswith("printk.time=") for w in vm.append) else ()
    return Vm(
        kind=bundle.machine, memory_bytes=bundle.memory_bytes, cpus=bundle.cpus,
        kernel=str(loaded.kernel), append=(*bundle.words, *stamps, *vm.append),
        disks=(VmDisk(str(loaded.folder / bundle.root)),), network=bundle.network, entropy=False,
        cpu_model=vm.cpu_model, accelerator=vm.accelerator, clock=vm.clock,
    )  # fmt: skip


class BundleBooter:
    """Boots variants of a bundle's machine; takes the place of `boot_once` in a series. A variant with another kernel
    has that kernel's table of symbols beside it."""

    def __init__(self, loaded: Loaded, natives: Natives) -> None:
        self._loaded = loaded
        self._natives = natives
        # The bundle's own init tells where its marks are: another version of this program has another one.
        self._marked = Natives(loaded.folder) if (loaded.folder / INIT).is_file() else natives
        self._tables: dict[str, SymbolTable] = {}

    def table(self, kernel: str) -> SymbolTable:
        """The symbols of a kernel that lies in a folder with its table."""
        if kernel not in self._tables:
            text = Path(kernel).with_name(self._loaded.bundle.system_map).read_text("ascii", "replace")
            self._tables[kernel] = SymbolTable.parse(text)
        return self._tables[kernel]

    def __call__(
        self, vm: Vm, plan: Plan, folder: Path, *, number: int, variant: str, header: Sequence[tuple[str, str]] = (),
        on_progress: Callable[[float], None] | None = None,
    ) -> VmBoot:  # fmt: skip
        return self.counted(vm, plan, folder, number=number, variant=variant)[0]

    def counted(self, vm: Vm, plan: Plan, folder: Path, *, number: int, variant: str) -> tuple[VmBoot, Counters | None]:
        """Boot once; on the instruction clock with everything that was counted."""
        folder.mkdir(parents=True, exist_ok=True)
        exercise, machine = self._loaded.exercise, machine_of(vm)
        table = self.table(machine.kernel)
        counting = vm.clock is Clock.INSTRUCTIONS
        marks = boots.marks(table, self._marked)
        config = PluginConfig(marks=marks, spans=initcall_spans(table)) if counting else None
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
            seconds=outcome.seconds,
            folder=folder.name,
            problem="; ".join(problems),
            instructions=_to_init(boot),
            kernel_warnings=(OTHER_INIT,) if counters is not None and counters.at("init") is None else (),
        )
        return result, counters


def machine_of(vm: Vm) -> Machine:
    """The machine as the rig starts it. Raises UserInputError for what a bundle's machine cannot have."""
    if vm.kernel is None:
        raise UserInputError("a bundle's machine has a kernel of its own")
    if vm.options or vm.machine_options:
        raise UserInputError("a bundle's machine takes no further options of QEMU")
    return Machine(
        kind=vm.kind, memory_bytes=vm.memory_bytes, kernel=vm.kernel, append=vm.append, initrd=vm.initrd,
        disks=tuple(Disk(disk.path) for disk in vm.disks), network=vm.network, cpus=vm.cpus, cpu_model=vm.cpu_model,
        clock=vm.clock, accelerator=vm.accelerator,
    )  # fmt: skip


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
