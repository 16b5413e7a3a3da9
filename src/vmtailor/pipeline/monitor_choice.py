# SPDX-License-Identifier: Apache-2.0
"""The monitor that a user chose for a verification, and where it is started: on this host, or in the lab."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vmtailor.base import output
from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import open_regular
from vmtailor.drivers.monitors import monitors
from vmtailor.model.architecture import named
from vmtailor.model.machine import LAB, USUAL_MONITOR, Accelerator, Clock

#: Bytes of a program's head: its kind, byte order, class and machine.
_HEAD = 20


@dataclass(frozen=True)
class MonitorChoice:
    """A monitor for machines: its name, as they have it, and the accelerator and the clock on which they run there.
    `programs`: the user's own, in place of the lab's."""

    monitor: str
    accelerator: Accelerator
    clock: Clock
    programs: Mapping[str, Path] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """Return where the machines are started, in words: `Firecracker in the lab`."""
        title = monitors.named(self.monitor).row.title
        return title if self.monitor.startswith(LAB) else f"{title} under KVM on this host"

    @property
    def warning(self) -> str:
        """Return what the user should know before an unconfined monitor starts on this host; empty where none does."""
        found = monitors.named(self.monitor)
        return "" if found.confined else f"{found.row.title} has all of your rights on this host: --lab shuts it in"


def asked(
    on: str | None, lab: bool, programs: Iterable[tuple[str, Path]], architecture: str, clock: Clock
) -> MonitorChoice | None:
    """Return the monitor that the user named; QEMU in the lab where only that was asked; None where nothing was. Raises
    UserInputError as `choose` does, and for a program without a monitor."""
    if on is None and not lab:
        if programs:
            raise UserInputError("--program is for a monitor in the lab", hint="--on MONITOR names it")
        return None
    return choose(on or USUAL_MONITOR, architecture, clock, lab=lab, programs=dict(programs))


def refuse_beside(on: str | None, lab: bool, *options: str) -> None:
    """Raise UserInputError for options, by name, that do not go with a monitor that the user named."""
    if options and (on is not None or lab):
        names = ", ".join(options)
        raise UserInputError(f"{names} with --on or --lab: these run a bundle's machine under KVM", hint="leave it out")


def say(choice: MonitorChoice) -> None:
    """Say where machines are started, before they are, and what the user should know of it."""
    output.note(f"on {choice.words}")
    if choice.warning:
        output.note(choice.warning)


def choose(name: str, architecture: str, clock: Clock, *, lab: bool, programs: Mapping[str, Path]) -> MonitorChoice:
    """Return the choice of a monitor by name. It is started on this host where KVM works with it, else in the lab,
    which `lab` and a program of the user's force. Raises UserInputError for an unknown name and an unfit program."""
    found = monitors.named(name)
    for monitor, path in programs.items():
        monitors.named(monitor)
        _require_program(path, architecture)
    if not lab and name not in programs and named(architecture).is_host and found.kvm().works:
        return MonitorChoice(name, Accelerator.KVM, Clock.WALL)
    return MonitorChoice(f"{LAB}{name}", Accelerator.TCG, clock, programs)


def _require_program(path: Path, architecture: str) -> None:
    """Raise UserInputError for a file that is no program for the lab's processor."""
    with open_regular(path, "the program") as file:
        head = file.read(_HEAD) or b""
    row = named(architecture)
    if not head.startswith(b"\x7fELF"):
        raise UserInputError(f"{path} is no program (ELF)", hint="give the monitor's own program")
    if int.from_bytes(head[18:20], "little") != row.elf[0]:
        raise UserInputError(f"{path} is a program for another processor than {row.title}")
