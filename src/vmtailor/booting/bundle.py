# SPDX-License-Identifier: Apache-2.0
"""A bundle booted with its own exercise: ready is what the exercise says, and its answers are judged."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from vmtailor.analysis.cost.counters import SymbolTable, initcall_spans
from vmtailor.analysis.guests import boots, kernel_log
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import dot_config, plain_files
from vmtailor.base.natives import Natives, mark_addresses
from vmtailor.booting.boot import OnProgress, boot
from vmtailor.booting.counting import Counting, counting
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.qemu.plugin import PluginConfig
from vmtailor.model.architecture import named
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.gathered import Gathered
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, Run, Workload
from vmtailor.model.bundle import EXERCISE, INIT, Bundle
from vmtailor.model.exercise import Exercise
from vmtailor.model.machine import Accelerator, Clock, Disk, Machine

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
        return dot_config.parse_strictly(self.files.data(name, MOST_TABLE_BYTES), str(self.folder / name))

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
    """What the user chose of a bundle's machine. `append`: further words of its command line. `memory_bytes`: None for
    what it was fitted with, an empty CPU model for the architecture's."""

    cpu_model: str = ""
    accelerator: Accelerator = Accelerator.TCG
    clock: Clock = Clock.WALL
    append: tuple[str, ...] = ()
    memory_bytes: int | None = None


def machine_of(loaded: Loaded, chosen: Chosen) -> Machine:
    """The bundle's machine, with the accelerator, clock and words that the user chose.

    On the wall clock its log has time stamps; where instructions are counted, no word is added that would cost any."""
    bundle = loaded.bundle
    stamped = any(word.startswith("printk.time=") for word in chosen.append)
    stamps = STAMPS if chosen.clock is Clock.WALL and not stamped else ()
    model = chosen.cpu_model or named(bundle.architecture).emulator.cpu_model
    return Machine(
        architecture=bundle.architecture, board=bundle.machine,
        memory_bytes=chosen.memory_bytes or bundle.memory_bytes, cpus=bundle.cpus,
        kernel=str(loaded.kernel), words=(*bundle.words, *stamps, *chosen.append), disks=(Disk(str(loaded.root)),),
        network=bundle.network, cpu_model=model, accelerator=chosen.accelerator, clock=chosen.clock,
    )  # fmt: skip


class BundleBooter:
    """Boots variants of a bundle's machine with its exercise. A variant with another kernel has that kernel's table of
    symbols beside it."""

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
        self, machine: Machine, workload: Workload, scratch: Path, *, on_progress: OnProgress | None = None
    ) -> tuple[Boot, Gathered]:
        """Boot once; on the instruction clock everything is counted. The console has the names of initcalls."""
        table = self.table(kernel_of(machine))
        exact = machine.clock is Clock.INSTRUCTIONS
        found, gathered = boot(
            machine, workload, scratch, counting=self._counting(table) if exact else None, on_progress=on_progress
        )
        console = kernel_log.named(gathered.console.decode("utf-8", "replace"), table).encode("utf-8", "replace")
        if gathered.counters is not None and gathered.counters.at("init") is None:
            found = replace(found, kernel_warnings=(*found.kernel_warnings, OTHER_INIT))
        return found, replace(gathered, console=console)

    def _counting(self, table: SymbolTable) -> Counting:
        # The bundle's own init tells where its marks are: another version of this program has another one.
        own_marks = self._loaded.init_marks
        marks = boots.marks_at(table, self._natives.marks() if own_marks is None else own_marks)
        return counting(
            self._natives,
            PluginConfig(marks=marks, spans=initcall_spans(table), architecture=table.architecture),
            table,
        )


def workload_of(loaded: Loaded, timeout_s: float) -> Exercised:
    """How a bundle is driven: by its own exercise, told the same bytes in every boot."""
    return Exercised(Run(exercise=loaded.exercise, key=FIXED_KEY), timeout_s)


def kernel_of(machine: Machine) -> str:
    """The kernel of a bundle's machine. Raises UserInputError for what such a machine cannot have."""
    if machine.kernel is None:
        raise UserInputError("a bundle's machine has a kernel of its own")
    if machine.extras or machine.firmware:
        raise UserInputError("a bundle's machine takes no further options of its monitor")
    return machine.kernel
