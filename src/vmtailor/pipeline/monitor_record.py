# SPDX-License-Identifier: Apache-2.0
"""The verdict of a verification, kept in the bundle with the monitor on which it was found."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from vmtailor.base import output
from vmtailor.base.errors import HostError, UserInputError, VmtailorError
from vmtailor.base.files.digests import sha256_of
from vmtailor.drivers.host import verdict_file
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.monitors import lab_folder, monitor_proof, monitors
from vmtailor.drivers.monitors.lab_folder import Lab
from vmtailor.model.bundle import MONITORS, RUN
from vmtailor.model.exercise import Proof
from vmtailor.model.fit_run import FitRun
from vmtailor.model.machine import LAB, USUAL_MONITOR, Accelerator, Clock
from vmtailor.model.monitor_verdicts import MonitorPlace, MonitorVerdict
from vmtailor.model.trial import Verification
from vmtailor.pipeline.monitor_choice import MonitorChoice


@dataclass(frozen=True)
class MonitorStart:
    """A monitor as it starts a bundle's machine. `monitor`: its name; `program_sha256`: of the program that the user
    gave; `lab`: the lab in which it starts, None on this host."""

    monitor: str
    accelerator: Accelerator
    clock: Clock
    program_sha256: str = ""
    lab: Lab | None = None

    @property
    def place(self) -> MonitorPlace:
        """Return the place in which it starts machines."""
        if self.lab is not None:
            return MonitorPlace.LAB
        return MonitorPlace.KVM if self.accelerator is Accelerator.KVM else MonitorPlace.EMULATED

    def version(self, architecture: str) -> str:
        """Return the version of its program; empty for the user's own, and where it is not said."""
        if self.lab is not None:
            return "" if self.program_sha256 else self.lab.monitors.get(self.monitor, "")
        with contextlib.suppress(HostError):
            return monitors.named(self.monitor).version(architecture)
        return ""


def start_of(choice: MonitorChoice | None, architecture: str, accelerator: Accelerator, clock: Clock) -> MonitorStart:
    """Return the monitor that a user chose, or else QEMU, with program and lab as they are now. Raises HostError where
    there is no lab."""
    if choice is None:
        return MonitorStart(USUAL_MONITOR, accelerator, clock)
    name = choice.monitor.removeprefix(LAB)
    program, in_lab = choice.programs.get(name), choice.monitor.startswith(LAB)
    return MonitorStart(
        monitor=name, accelerator=accelerator, clock=clock, lab=lab_folder.load(architecture)[0] if in_lab else None,
        program_sha256=sha256_of(program) if program is not None else "",
    )  # fmt: skip


def keep(files: BundleFolder, start: MonitorStart, proof: Proof, found: Verification) -> None:
    """Keep a verdict in the bundle, and say on which monitors the exercise has passed. Where it cannot be kept, that is
    said: the verdict itself counts all the same."""
    try:
        kept = verdict_file.keep(files, _verdict(files, start, proof, found))
    except VmtailorError as error:
        output.note(f"the verdict is not kept in the bundle: {error.message}")
        return
    for one in _of_the_fit(files):
        kept = monitor_proof.verdicts_of(one, kept)
    output.note(f"kept in {MONITORS}: {monitor_proof.line(kept)}")


def _verdict(files: BundleFolder, start: MonitorStart, proof: Proof, found: Verification) -> MonitorVerdict:
    return MonitorVerdict(
        monitor=start.monitor, place=start.place, clock=start.clock, proof=proof,
        version=start.version(files.bundle.architecture), program_sha256=start.program_sha256,
        lab_kernel=start.lab.kernel if start.lab is not None else "", failures=found.failures, skipped=found.skipped,
    )  # fmt: skip


def _of_the_fit(files: BundleFolder) -> Iterator[FitRun]:
    """Yield the record of the fit, unless there is none that can be read."""
    with contextlib.suppress(UserInputError):
        yield files.record(FitRun, RUN)
