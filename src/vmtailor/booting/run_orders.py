# SPDX-License-Identifier: Apache-2.0
"""Orders of a supervisor (native/supervise): a machine to start, a container's streams and signals to relay, and the
program that words an end that needs words."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from vmtailor.base.natives import locate
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.monitors.supervised_start import FileHandover, ProgramBeside, SupervisedStart
from vmtailor.model.option_values import STREAMS

#: Seconds that a machine has to go once its init has said the last word.
LAST_S = 15.0
#: The name of standard error's descriptor, and of the first that is free for orders.
_NAME = "vmtailor-orders"


@dataclass(frozen=True)
class RunOrders:
    """Orders for one run. `volume`: the records of the run volume, without its key and the size of a terminal, which
    the supervisor adds. `grace_s`: seconds between the stop signal and the end of the machine, may be infinite;
    `start_s`: seconds in which init must have spoken, since a kernel that goes astray prints nothing. `once_up`: lines
    for standard error once the guest has spoken and its ports are open. `attached`: the caller's streams that the
    container has. `told`: a descriptor of ours that takes what init tells of refused calls; then the end is always
    explained, as with `explained`. `builtins`: init starts further processes. `explain`: the program that words the
    end. `variables`: of the container's environment, beside those of the image. `beside`: programs that run beside the
    monitor. `of_files`: files that the orders were made from, where they hold for another start with the same options,
    and `holds_s`: for how many seconds; empty where they do not. `flush_s`: seconds in which a guest that is killed
    may write to its disks."""

    start: SupervisedStart
    volume: tuple[tuple[str, str], ...]
    stop_signal: int
    grace_s: float
    start_s: float
    interactive: bool = False
    terminal: bool = False
    attached: tuple[str, ...] = STREAMS
    once_up: str = ""
    told: int = 0
    explained: bool = False
    builtins: bool = False
    explain: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    beside: tuple[ProgramBeside, ...] = ()
    of_files: tuple[str, ...] = ()
    holds_s: float = 0.0
    flush_s: float = 0.0

    def text(self, *, known: bool = False, variables: bool = True) -> bytes:
        """Return the orders as the supervisor reads them. `known`: it declines when a file that is only read is not as
        it is now;
        `variables`: with those of the environment. Raises UserInputError for a NUL, OSError for a file that is gone."""
        return guest_volume.records(self._pairs(known, variables))

    def _pairs(self, known: bool, variables: bool) -> Iterator[tuple[str, str]]:
        start = self.start
        yield from (("arg", word) for word in start.argv)
        yield from (("env", f"{name}={value}") for name, value in start.environment.items())
        written = {file.path for file in start.files if file.use is FileHandover.WRITE}
        for file in start.files:
            mark = fingerprint(file.path) if known and file.path not in written else "0 0 0 0 0"
            yield "open", f"{file.number} {file.use} {mark} {file.path}"
        yield from (("inherit", str(descriptor)) for descriptor in start.inherited)
        yield from (("run", f"{key} {value}") for key, value in self.volume)
        if variables:
            yield from (("run", f"env {name}={value}") for name, value in self.variables)
        yield "memory", str(start.memory)
        yield "control", str(start.control)
        yield "line", str(start.line)
        yield from ((key, value) for key, value in (("halted-cpu", start.cpu), ("halted", start.halted)) if value)
        yield "stop-signal", str(self.stop_signal)
        for name, seconds in (("grace", self.grace_s), ("start", self.start_s), ("last", LAST_S)):
            yield f"{name}-ms", str(-1 if math.isinf(seconds) else max(0, round(seconds * 1000)))
        if self.flush_s:
            yield "flush-ms", str(round(self.flush_s * 1000))
        yield "interactive", str(int(self.interactive))
        yield "terminal", str(int(self.terminal))
        yield from ((f"no-{name}", "1") for name in STREAMS if name not in self.attached)
        yield "builtins", str(int(self.builtins))
        if self.once_up:
            yield "announce", self.once_up
        if self.told:
            yield "told", str(self.told)
        if self.told or self.explained:
            yield "explain-always", "1"
        yield from (("explain", word) for word in self.explain)
        for one in self.beside:
            yield "program", "beside"
            yield from (("arg", word) for word in one.argv)
            yield from (("inherit", str(descriptor)) for descriptor in one.inherited)
        if self.beside:
            yield "program", "monitor"

    @property
    def inherited(self) -> tuple[int, ...]:
        """Return all descriptors of ours that the supervisor gets."""
        beside = (descriptor for one in self.beside for descriptor in one.inherited)
        return (*self.start.inherited, *beside, *((self.told,) if self.told else ()))


def fingerprint(path: str) -> str:
    """Return what changes when a file does: device, inode, size, and times of modification and change in ns."""
    found = Path(path).stat()
    return f"{found.st_dev} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


def program() -> Path:
    """Return the supervisor. Raises HostError when it is not there and cannot be made."""
    return locate().supervise


def in_memory(text: bytes) -> int:
    """Return a descriptor of orders, which are on no disk: the container's environment is in them."""
    descriptor = os.memfd_create(_NAME)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(text)
    os.lseek(descriptor, 0, os.SEEK_SET)
    os.set_inheritable(descriptor, True)
    return descriptor


def become(orders: RunOrders | bytes) -> NoReturn:
    """Become the supervisor with these orders."""
    argv = [str(program()), str(in_memory(orders if isinstance(orders, bytes) else orders.text()))]
    if not isinstance(orders, bytes):
        for descriptor in orders.inherited:
            os.set_inheritable(descriptor, True)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(argv[0], argv)
