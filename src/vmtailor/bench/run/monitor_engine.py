# SPDX-License-Identifier: Apache-2.0
"""A monitor within a virtual machine: the system around it boots on the instruction clock, and the monitor starts one
machine in it, whose init runs one command."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from vmtailor.analysis.guests import boots
from vmtailor.base.errors import GuestError
from vmtailor.base.text import plain
from vmtailor.bench.analysis.boot_counts import PROGRAM, started, to_program
from vmtailor.bench.model.instance import Limits
from vmtailor.bench.model.job import BenchMonitor
from vmtailor.bench.model.results import BenchFigure, RuntimeIdentity
from vmtailor.bench.run.guest_engine import OURS_DISK, TREE_DISK, GuestEngine
from vmtailor.bench.run.image_machine import work_of
from vmtailor.bench.run.machine_monitors import ORDERS, PLACE
from vmtailor.bench.runtimes.description import Commands, DescribedFile, Description, RootForm
from vmtailor.bench.runtimes.guest_runtime import ABSENT, InGuest, in_guest
from vmtailor.bench.suites.bench_run import TAG
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.guest.guest_session import heard
from vmtailor.model.boots.counters import CodeSpan
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.system_exercise import Saying
from vmtailor.model.boots.workload import FIXED_KEY
from vmtailor.model.guest import GuestReport

#: In the monitor's folder: a copy of init's orders, out of which init takes the key; what the machine says on its
#: serial line, and what the monitor says itself.
_COPY, _LINE, _WORDS = f"{PLACE}/copy", f"{PLACE}/line", f"{PLACE}/words"
#: Starts the monitor; its serial line goes to a file, since it holds more than text.
_START = f'cd {PLACE} && exec "$0" "$@" >{_LINE} 2>{_WORDS} </dev/null'
#: Said of a failed start with a kernel that was fitted to another image.
_LENT = "its kernel was fitted to another image, and may lack what this one needs: `make bench-bundle` fits this one"
#: Files of what came of the command: the serial line in base64, the monitor's words.
_SERIAL, _MONITOR = "bench-serial", "bench-monitor"
_SAYINGS = (Saying(_SERIAL, ("base64", _LINE)), Saying(_MONITOR, ("tail", "-c", "4000", _WORDS)))


@dataclass(frozen=True)
class MonitorEngine(GuestEngine):
    """One monitor in the machine, which starts a machine for each command. `monitor`: the row."""

    monitor: BenchMonitor = field(kw_only=True)
    guests: ClassVar = True
    says: ClassVar = _SAYINGS

    def asked(self, command: Sequence[str], limits: Limits | None = None) -> InGuest:
        """Return how the command is run. Limits are left out: the machine's size is one."""
        return in_guest(described(self.monitor, command), command, TAG, TREE_DISK, OURS_DISK)

    def identity(self, expected: str) -> RuntimeIdentity:
        """Return what the row is, as for an engine. Where the disk lacks the monitor, its problem names a command that
        builds a disk with it; where its machine's kernel was fitted to another image, a problem of its report says
        so."""
        found = super().identity(expected)
        if found.problem and found.kernel:
            return replace(found, problem=self._with_origin(found.problem))
        if ABSENT not in found.problem:
            return found
        return replace(found, problem=f"{found.problem} (`make bench-lab` builds a disk with QEMU and libkrun)")

    def beside(self, here: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return nothing: a report that comes in frames of our init is of another machine, whose kernel may be of the
        same release."""
        return {}

    def _with_origin(self, problem: str) -> str:
        """Return a problem with a remark on the kernel where it was fitted to another image."""
        return f"{problem}; {_LENT}" if self.monitor.lent and _LENT not in problem else problem

    def start(self, command: Sequence[str]) -> tuple[BenchFigure, ...]:
        """Return the cost of one start of the command, also up to the moment when init executes it."""
        found, gathered = self.ran(command)
        figures = started(found, self.subsystems, self.starts)
        return figures if gathered.counters is None else (*figures, *to_program(gathered.counters))

    def spans(self) -> tuple[CodeSpan, ...]:
        """Return the place where init executes the program."""
        return (CodeSpan(PROGRAM, self.monitor.entry, in_guest=True),) if self.monitor.entry else ()

    def output(self, gathered: Gathered) -> bytes:
        """Return what the command printed. Raises GuestError where it did not end with 0."""
        return self._said(gathered).stdout.encode()

    def _said(self, gathered: Gathered) -> GuestReport:
        """Return what the machine in the machine said. Raises GuestError where its command did not end with 0."""
        data = b""
        with contextlib.suppress(ValueError):
            data = base64.b64decode("".join(gathered.report.file(_SERIAL).split()), validate=True)
        report = heard(data, FIXED_KEY)
        if report.exit_code == 0 and report.fatal is None:
            return report
        words = plain(gathered.report.file(_MONITOR).strip())[-1000:]
        if report.fatal is not None:
            why = f"init gave up: {report.fatal.text}"
        elif report.exit_code is not None:
            why = report.exit_reason or f"its command ended with {report.exit_code}"
        else:
            why = "its command did not come to its end"
        reason = plain(why)[:300]
        for line in report.stderr.strip().splitlines()[-1:]:
            reason += f": {plain(line)[:200]}"
        reason = self._with_origin(reason)
        tail = report.console.strip().splitlines()[-boots.TAIL_LINES :]
        raise GuestError(
            f"in the machine that {self.monitor.title} started: {reason}",
            details="\n".join(filter(None, (report.stderr[-1000:], *map(plain, tail), words))),
        )


def described(monitor: BenchMonitor, command: Sequence[str]) -> Description:
    """Return the monitor as a runtime that runs this one command: its machine's init has it on a disk of its own."""
    volume = base64.b64encode(guest_volume.run_bytes(work_of(command).run)).decode()
    return Description(
        name=monitor.name,
        title=monitor.title,
        programs=("modprobe", "base64", *(() if "/" in monitor.argv[0] else monitor.argv[:1])),
        packages=(),
        root=RootForm.IMAGE,
        commands=Commands(
            load=(
                ("modprobe", "kvm_amd"),
                ("test", "-e", "/dev/kvm"),
                ("sh", "-c", f"echo {volume} | base64 -d >{ORDERS}"),
                ("cp", ORDERS, _COPY),
                ("touch", f"{PLACE}/monitor.log"),
            ),
            run=("sh", "-c", _START, *monitor.argv),
            start=(),
            remove=(("cp", _COPY, ORDERS),),
        ),
        file=(DescribedFile(f"{PLACE}/.keep", ""), *(DescribedFile(path, text) for path, text in monitor.files)),
        version=monitor.version,
        own_kernel=True,
    )
