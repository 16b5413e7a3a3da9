# SPDX-License-Identifier: Apache-2.0
"""Machines of the image's own. Outside the scope, where packages can be fetched, they are made ready; within it, each
boots to run one command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.guests import boots, machine_variants
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files.records import to_bytes
from vmtailor.base.natives import Natives
from vmtailor.base.progress import step
from vmtailor.bench.analysis.boot_counts import OWN_STARTS, OWN_WORK
from vmtailor.bench.model.job import STOCK, VM, BenchMachine
from vmtailor.bench.run import kernel_subsystems
from vmtailor.booting import fitted_machine
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.booter import boot
from vmtailor.booting.bundle_booter import BundleBooter
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.counters import CodeSpan, CountingConfig, CountingMode
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, Run
from vmtailor.model.bundle import Bundle
from vmtailor.model.exercise import Exercise, Ready, ReadyKind
from vmtailor.model.machine import Accelerator, Clock
from vmtailor.pipeline import image_subject
from vmtailor.pipeline.options import FitOptions

#: Seconds of processor time that one command may take under emulation, boot included.
BOOT_S = 600.0


def is_machine(name: str) -> bool:
    """Return whether a runtime's name is that of a machine."""
    return name.startswith(VM)


def check(names: Sequence[str]) -> None:
    """Check that the named bundles are there. Raises UserInputError."""
    for name in names:
        if is_machine(name) and name != STOCK:
            if not Path(name.removeprefix(VM)).is_dir():
                raise UserInputError(
                    f"{name}: no such bundle", hint="vm:stock, or vm:FOLDER of a bundle of the benchmarks' image"
                )
            bundle_folder.load_container(Path(name.removeprefix(VM)))


def ready(names: Sequence[str], image: str, store: Store) -> tuple[BenchMachine, ...]:
    """Return the named machines, with the image as their root. Raises HostError, UserInputError."""
    found, subsystems = [], ""
    for name in dict.fromkeys(name for name in names if is_machine(name)):
        if name == STOCK:
            with step("make the stock machine ready"):
                known = image_subject.prepare(FitOptions(image, Path(), store=store))
            subsystems = str(kernel_subsystems.known(known.kernel, known.baseline.architecture, store))
            kernel = known.kernel
            found.append(BenchMachine(STOCK, known.baseline, kernel.release, system_map=kernel.system_map))
            continue
        folder = Path(name.removeprefix(VM)).absolute()
        one = bundle_folder.load_container(folder, store)
        found.append(
            BenchMachine(
                name=VM + folder.name,
                machine=fitted_machine.machine_of(one, fitted_machine.Chosen(clock=Clock.INSTRUCTIONS)),
                kernel=one.bundle.kernel_version,
                folder=str(folder),
                digest=machine_digest(one.bundle),
            )
        )
    found = [replace(one, subsystems=subsystems) for one in found]
    names_ = [one.name for one in found]
    if len(set(names_)) < len(names_):
        raise UserInputError("two bundles' folders have one name", hint="rename one: it names the row")
    return tuple(found)


def machine_digest(bundle: Bundle) -> str:
    """Return twelve digits that tell the machines of bundles apart. Another fit with the same kernel and root gives the
    same ones, though its record of boots differs."""
    started = tuple(one for one in bundle.files if one.name in (bundle.kernel, bundle.root))
    return digest(to_bytes(replace(bundle, name="", image_reference="", sources=(), files=started)))[:12]


@dataclass(frozen=True)
class ImageMachine:
    """A machine that runs commands on the instruction clock, each in a boot of its own. `scratch`: for its files."""

    known: BenchMachine
    scratch: Path
    starts: ClassVar = OWN_STARTS
    work: ClassVar = OWN_WORK

    @property
    def name(self) -> str:
        return self.known.name

    @cached_property
    def subsystems(self) -> dict[str, str]:
        """Return function of its kernel → subsystem; empty where that is not known."""
        return kernel_subsystems.read(self.known.subsystems)

    def timed(self, words: Sequence[str], accelerator: Accelerator = Accelerator.KVM) -> Boot:
        """Boot, and run one command on the wall clock. Its time means something where the processor runs the guest
        itself."""
        machine = replace(self.known.machine, clock=Clock.WALL, accelerator=accelerator)
        return _right(*boot(machine, work_of(words), self._folder()))

    def run(self, words: Sequence[str]) -> Boot:
        """Boot on the instruction clock, and run one command of the image as the container, to its end. Raises
        GuestError when it fails."""
        work = work_of(words)
        machine = machine_variants.counted(replace(self.known.machine, clock=Clock.INSTRUCTIONS))
        work = work.unhurried(machine.clock)
        parts = guest_programs.of(machine.architecture)
        if self.known.folder:
            loaded = bundle_folder.load_container(Path(self.known.folder))
            return _right(*BundleBooter(loaded, parts)(machine, work, self._folder()))
        return _right(*boot(machine, work, self._folder(), counting=counting(self.known, parts, parts.marks())))

    def _folder(self) -> Path:
        self.scratch.mkdir(parents=True, exist_ok=True)
        return self.scratch


def work_of(words: Sequence[str]) -> Exercised:
    """Return the work of an init of ours that runs one command of the image as the container, to its end."""
    exercise = Exercise("bench", Ready(ReadyKind.EXIT, timeout_s=BOOT_S))
    return Exercised(Run(argv=tuple(words), exercise=exercise, key=FIXED_KEY), BOOT_S)


def _right(found: Boot, gathered: Gathered) -> Boot:
    if found.failures or found.container is None or found.container.exit_code != 0:
        said = found.container.stderr if found.container is not None else ""
        why = found.problem or f"it ended with {found.container.exit_code if found.container else None}"
        raise GuestError(why, details=f"{said[-1000:]}\n{boots.evidence(gathered, found.failures)[-1000:]}".strip())
    return found


def counting(
    known: BenchMachine,
    parts: Natives,
    init_marks: Mapping[str, int],
    spans: tuple[CodeSpan, ...] = (),
    *,
    guests: bool = False,
) -> Counting:
    """Return how a machine's boot is counted. `init_marks`: the addresses of its init's marks; `guests`: it is a host
    itself, and its own guests are counted apart."""
    table = SymbolTable.parse(Path(known.system_map).read_text("ascii", "replace"), known.machine.architecture)
    config = CountingConfig(
        mode=CountingMode.COUNTS, marks=boots.marks_at(table, init_marks), spans=spans,
        architecture=table.architecture, guests=guests,
    )  # fmt: skip
    return Counting(parts, config, table)
