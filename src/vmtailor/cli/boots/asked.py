# SPDX-License-Identifier: Apache-2.0
"""What was asked of `vmtailor boot`: every option in one record, and which of them a way of booting has a use for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.cli.options.sizes import parse_memory
from vmtailor.drivers.guest.ready import parse_signal
from vmtailor.model.boots.series import JudgedBy
from vmtailor.model.boots.workload import Nothing, OwnInit, ReadyBy, ReadySignal
from vmtailor.model.machine import Accelerator, Clock

#: What is booted where nothing else is said.
READY, TIMES, TIMEOUT_S, OUT, MEMORY = "login", 5, 300.0, Path("build/boots"), "2G"


@dataclass(frozen=True)
class Asked:
    """The options of `vmtailor boot` as they were given; None, empty or the default above where nothing was said."""

    subject: Path | None = None
    exercise: Path | None = None
    kernel: Path | None = None
    initrd: Path | None = None
    append: str = ""
    disks: tuple[Path, ...] = ()
    ready: str = READY
    also: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    times: int = TIMES
    timeout_s: float = TIMEOUT_S
    clock: Clock = Clock.WALL
    machine: str | None = None
    memory: str | None = None
    cpus: int | None = None
    arch: str | None = None
    cpu: str | None = None
    accelerator: Accelerator = Accelerator.TCG
    sample: bool = False
    debug_initcalls: bool = False
    changes: tuple[str, ...] = ()
    attribute: bool = False
    judged_by: JudgedBy = JudgedBy.READY
    requests: Path | None = None
    qemu: tuple[str, ...] = ()
    out: Path = OUT
    json: bool = False

    def given(self) -> tuple[str, ...]:
        """The options that differ from what holds without them, by name. Where records go and how they are printed
        means the same to all ways, and is left out."""
        values: dict[str, object] = {
            "--exercise": self.exercise,
            "--kernel": self.kernel,
            "--initrd": self.initrd,
            "--append": self.append,
            "--disk": self.disks,
            "--ready": self.ready != READY,
            "--also": self.also,
            "--mark": self.marks,
            "--times": self.times != TIMES,
            "--timeout": self.timeout_s != TIMEOUT_S,
            f"--clock {self.clock.value}": self.clock is not Clock.WALL,
            "--machine": self.machine,
            "--memory": self.memory,
            "--cpus": self.cpus,
            "--arch": self.arch,
            "--cpu": self.cpu,
            f"--accel {self.accelerator.value}": self.accelerator is not Accelerator.TCG,
            "--sample": self.sample,
            "--debug-initcalls": self.debug_initcalls,
            "--try": self.changes,
            "--attribute": self.attribute,
            f"--judge {self.judged_by.value}": self.judged_by is not JudgedBy.READY,
            "--requests": self.requests,
            "--qemu": self.qemu,
        }
        return tuple(name for name, value in values.items() if value)

    def refuse_but(self, meant: Iterable[str], why: str, hint: str) -> None:
        """Raise UserInputError for options that this way of booting has no use for, rather than to do without them
        silently. `meant`: those that it has."""
        known = frozenset(meant)
        if others := [name for name in self.given() if name.split()[0] not in known]:
            raise UserInputError(f"{', '.join(others)}: {why}", hint=hint)

    def memory_bytes(self) -> int:
        """Memory of a guest that has none of its own."""
        return parse_memory(self.memory or MEMORY, least=16 << 20, most=1 << 44)

    def own_words(self) -> tuple[str, ...]:
        """The command line that was given, word by word."""
        return tuple(self.append.split())

    def signals(self) -> tuple[ReadySignal, ...]:
        """The signal that counts, and those that must come besides."""
        return tuple(parse_signal(text) for text in (self.ready, *self.also))

    def workload(self) -> OwnInit | Nothing:
        """How a guest that nobody drives is waited for. Raises UserInputError for signals that do not go together."""
        ready, *also = self.signals()
        if ReadyBy.NOTHING not in {signal.by for signal in (ready, *also)}:
            return OwnInit(ready, self.timeout_s, tuple(also), tuple(_mark(text) for text in self.marks))
        if ready.by is not ReadyBy.NOTHING or also or self.marks:
            raise UserInputError("nothing:SECONDS goes without --also and --mark", hint="nobody is asked anything")
        return Nothing(ready.seconds)


def existing(path: Path | None) -> str | None:
    """A file's absolute path. Raises UserInputError where it is none, or empty: a machine would start without it."""
    if path is None:
        return None
    if not path.is_file():
        raise UserInputError(f"{path} does not exist or is no file")
    if path.stat().st_size == 0:
        raise UserInputError(f"{path} is empty", hint="what made it has failed")
    return str(path.absolute())


def _mark(text: str) -> tuple[str, re.Pattern[str]]:
    name, found, pattern = text.partition("=")
    try:
        if not found or not name or not pattern:
            raise UserInputError(f"--mark {text!r} is not NAME=REGEX")
        return name, re.compile(pattern)
    except re.error as error:
        raise UserInputError(f"--mark {text!r}: {error}") from error
