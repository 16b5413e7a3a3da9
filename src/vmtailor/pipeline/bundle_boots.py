# SPDX-License-Identifier: Apache-2.0
"""`boot` of a bundle: its boots, and the cost of each part of its kernel."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files import records, regular_files
from vmtailor.base.natives import Natives
from vmtailor.base.progress import step
from vmtailor.booting import bundle_booter, fitted_machine, series_run
from vmtailor.booting.bundle_booter import BundleBooter
from vmtailor.booting.fitted_machine import Chosen
from vmtailor.booting.lab_booter import LabBooter
from vmtailor.booting.series_run import OnBoot
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.model.boots.boot_cost import BootCost
from vmtailor.model.boots.counters import Counters
from vmtailor.model.boots.series import BootSeries
from vmtailor.model.boots.workload import Clients, Exercised
from vmtailor.model.exercise import Exercise
from vmtailor.model.machine import LAB, Clock, Machine
from vmtailor.pipeline import bundle_kernel
from vmtailor.stages import exercise_file
from vmtailor.stages.boot import boot_attribution


@dataclass(frozen=True)
class Booted:
    """A bundle prepared for boots. `own`: the user's choices for its machine."""

    loaded: BundleFolder
    own: Chosen
    workload: Exercised
    natives: Natives
    store: Store

    @property
    def machine(self) -> Machine:
        """Return the machine on the chosen clock."""
        return fitted_machine.machine_of(self.loaded, fitted_machine.stamped(self.own))

    def on(self, clock: Clock) -> Booted:
        """Return the bundle on another clock."""
        return replace(self, own=replace(self.own, clock=clock))

    @property
    def booter(self) -> BundleBooter:
        return BundleBooter(self.loaded, self.natives)


def prepare(
    path: Path,
    own: Chosen,
    timeout_s: float,
    natives: Natives,
    store: Store,
    *,
    exercise: Path | None = None,
    clients: Clients = Clients.INSIDE,
) -> Booted:
    """Read a bundle and prepare its boots. Its exercise defines ready, or another one in the file `exercise`. Raises
    UserInputError for loads that the bundle's client is too old for."""
    loaded = bundle_folder.load_container(path, store)
    workload = replace(bundle_booter.workload_of(exercise_of(loaded, exercise), timeout_s), clients=clients)
    return Booted(loaded=loaded, own=own, workload=workload, natives=natives, store=store)


def exercise_of(loaded: BundleFolder, file: Path | None) -> Exercise:
    """Return the exercise of a bundle, or the one in a file. Raises UserInputError for loads that the bundle's init is
    too old for."""
    asked = exercise_file.load(file, loaded.image) if file is not None else loaded.exercise
    if not guest_volume.knows_loads(loaded.init, asked):
        raise UserInputError(
            f"the init of {loaded.path} is of a version that does not know such a load",
            hint="fit the image again: vmtailor fit",
        )
    return asked


def boots(subject: Booted, times: int, out: Path, on_boot: OnBoot) -> BootSeries:
    """Boot a bundle the given number of times. In the lab, the monitor is counted, too."""
    in_lab = subject.own.monitor.startswith(LAB)
    booter = LabBooter(subject.loaded, subject.natives) if in_lab else subject.booter
    schedule = series_run.in_turn([series_run.variant("base", subject.machine)], times)
    return series_run.run(str(subject.loaded.path), schedule, subject.workload, out, booter=booter, on_boot=on_boot)


def attribute(subject: Booted, out: Path) -> BootCost:
    """Boot once on the instruction clock, and return the cost of each part of the kernel up to init. For this the
    kernel is compiled once more, with debug information; the cache keeps the result."""
    known = bundle_kernel.known(subject.loaded, subject.store)
    assert known is not None
    cost = boot_attribution.cost_of(counted(subject, out), known, subject.store)
    records.save(cost, out / boot_attribution.RECORD)
    return cost


def counted(subject: Booted, out: Path) -> Counters:
    """Boot once on the instruction clock, and return the counts up to init. Raises GuestError when the kernel does not
    get there."""
    regular_files.make_folder(out)
    machine = subject.on(Clock.INSTRUCTIONS).machine
    with step("count instructions up to init"):
        boot, gathered = subject.booter(machine, subject.workload, out)
    series_run.keep(gathered, out / "attribution", machine, "attribution")
    counters = gathered.counters
    if counters is None or boot.instructions is None:
        raise GuestError(
            f"the kernel did not reach init: {boot.problem or bundle_booter.OTHER_INIT}",
            hint=f"its console: {out}/attribution/console.log",
        )
    return counters
