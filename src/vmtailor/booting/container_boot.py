# SPDX-License-Identifier: Apache-2.0
"""A boot in which our init starts a container and drives it by its exercise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.guests import boots, kernel_complaints
from vmtailor.base.files import temporary
from vmtailor.base.natives import ADDRESSES
from vmtailor.booting import boot_counter, given_environment, host_loads
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.host_loads import HostLoad
from vmtailor.booting.machine_watcher import MachineWatcher
from vmtailor.booting.run_volume import with_run, with_tools
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.guest.guest_session import GuestSession
from vmtailor.drivers.guest.guest_volume import TRACER_OPTIONS
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import Counter, Wants
from vmtailor.drivers.monitors.running_machine import RunningMachine
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.counters import CodeOwner
from vmtailor.model.boots.ending import End, Gathered
from vmtailor.model.boots.workload import Clients, Exercised, Patience
from vmtailor.model.guest import GuestReport
from vmtailor.model.machine import Clock, Disk, DiskMode, Machine

#: Room for the tracer's log.
TRACE_BYTES = 1 << 30
_TRACE = "trace"
#: Room for what KVM's trace tells of exits.
EXITS_BYTES = 256 << 20
_EXITS = "exits"


def owners() -> tuple[CodeOwner, ...]:
    """Return the user code that is ours: init (with the baseline's first stage) and the exercise's client."""
    return tuple(CodeOwner(name, *ADDRESSES[name]) for name in ("init", "stage1", "client"))


def boot(
    machine: Machine,
    work: Exercised,
    scratch: Path,
    wanted: Counting | None,
    on_progress: Callable[[float], None] | None,
) -> tuple[Boot, Gathered]:
    """Boot, run the container, and wait for the end. `machine.disks[0]` is the root; our volumes follow the machine's
    disks."""
    if work.tools is not None or (machine.clock is not Clock.INSTRUCTIONS and work.clients is Clients.INSIDE):
        work = replace(work, run=work.run.unpaced())
    machine, work, loads = host_loads.prepared(machine, work, monitors.of(machine).slowness)
    with temporary.held_folder(scratch) as folder:
        counter = boot_counter.prepare(machine, wanted, folder, owners())
        driven = _with_volumes(machine, work, folder)
        exits = _sparse(folder / _EXITS, EXITS_BYTES) if work.exits else None
        asks = bool(work.run.sample_ms)
        wants = Wants(counter, exits=exits, control=asks, loads=tuple(load.words for load in loads))
        with monitors.of(machine).start(driven, wants) as running:
            watcher = MachineWatcher(machine, running, work.run.sample_ms)
            report, end, used = _drive(running, work, loads, on_progress, watcher)
            lasted_ns = running.lasted_ns
        temporary.require_room(folder)  # the output of a boot on a full disk is not worth reading
        gathered = given_environment.given().without(_gathered(report, end, running.started_s, folder, work, counter))
        gathered = replace(gathered, start_cpu_s=used.start_s, cpu_s=used.now_s, lasted_ns=lasted_ns)
    exercise = work.run.exercise
    if exercise is not None:
        watch = watcher.record(exercise.origin, gathered.report, exercise.guest_steps)
        gathered = replace(gathered, watch=watch)
    return boots.make_boot(gathered, exercise, wanted.table if wanted is not None else None), gathered


#: Less processor time than this, in seconds, is that of a monitor's own housekeeping.
_HOUSEKEEPING_S = 0.1


@dataclass
class Used:
    """The processor time that the monitor has used: until init first spoke, and until now. `moved_s`: the processor
    time, and the host seconds since the start, when it last did more than housekeeping. `kept_s`: seconds since then in
    which it was ready to run while a busy host ran others. `wants`: it was ready to run at the last look. `executed`:
    instructions of the guest until now, when they are counted."""

    start_s: float | None = None
    now_s: float | None = None
    moved_s: tuple[float, float] = (0.0, 0.0)
    elapsed_s: float = 0.0
    kept_s: float = 0.0
    wants: bool = False
    executed: int | None = None
    _held_up_s: float | None = None

    def look(self, running: RunningMachine, listening: bool) -> None:
        """Update the figures from a machine. `listening`: its init has spoken."""
        used, self.elapsed_s = running.cpu_s, running.elapsed_s
        self.now_s = self.now_s if used is None else used
        if listening and self.start_s is None:
            self.start_s = self.now_s
        if self.now_s is not None and self.now_s >= self.moved_s[0] + _HOUSEKEEPING_S:
            self.moved_s = (self.now_s, self.elapsed_s)
            self.kept_s, self._held_up_s, self.wants = 0.0, None, False
            return
        held_up_s = running.held_up_s
        if self._held_up_s is not None:  # a thread that ended took its share with it
            self.kept_s += max(0.0, held_up_s - self._held_up_s)
        self._held_up_s, self.wants = held_up_s, running.wants_to_run

    def beyond(self, patience: Patience) -> bool:
        """Return whether the patience is used up. Time in which a busy host keeps the machine from running does not
        count as standing still."""
        if self.now_s is None:
            return False
        still = not self.wants and self.elapsed_s - self.moved_s[1] - self.kept_s > patience.still_s
        beyond = still or self.now_s > patience.all_s or (self.start_s is None and self.now_s > patience.start_s)
        return beyond or (self.executed or 0) > patience.instructions


def _drive(
    running: RunningMachine,
    work: Exercised,
    loads: Sequence[HostLoad],
    on_progress: Callable[[float], None] | None,
    watcher: MachineWatcher,
) -> tuple[GuestReport, End, Used]:
    """Talk with our init until the machine ends or its time is over. Drives the loads that are the host's."""
    session = GuestSession(running.serial, key=work.run.key, takes=watcher.takes)
    used = Used()
    waits_for_us = work.at_load is not None or bool(loads)
    said: tuple[bytes, ...] = ()
    while session.pump(min(1.0, running.left(work.timeout_s))) and running.left(work.timeout_s) > 0:
        used.look(running, session.listening)
        if on_progress is not None:
            on_progress(running.elapsed_s)
        if used.beyond(work.patience):
            break
        if waits_for_us and any(mark.name == "load_end" for mark in session.marks):
            waits_for_us = False
            if work.at_load is not None:
                work.at_load()
            said = host_loads.driven(running, loads)
            session.go()
    end = running.wait(0.1 if used.beyond(work.patience) else max(0.1, running.left(work.timeout_s)))
    with contextlib.suppress(OSError):
        session.pump(0)
    return host_loads.told(session.report(), loads, said), replace(end, seconds=running.elapsed_s), used


def _gathered(
    report: GuestReport, end: End, started_s: float, folder: Path, work: Exercised, counter: Counter | None
) -> Gathered:
    counts, counters = boot_counter.counted(counter)
    return Gathered(
        end=end,
        started_s=started_s,
        report=report,
        console=kernel_complaints.whole(report.file("kernel-log"), report.console).encode("utf-8", "replace"),
        requests=_log(folder / _TRACE) if work.tools is not None else b"",
        counts=counts,
        counters=counters,
        exits=_log(folder / _EXITS) if work.exits else b"",
    )


def _with_volumes(machine: Machine, work: Exercised, folder: Path) -> Machine:
    volume = folder / "run"
    exercise = work.run.exercise if work.clients is Clients.INSIDE else host_loads.guests(work.run.exercise)
    env = (*work.run.env, *given_environment.given().variables)
    run = replace(work.run, exercise=exercise, env=env, tracer=TRACER_OPTIONS if work.tools is not None else ())
    guest_volume.write_run_volume(volume, run)
    machine = with_run(machine, str(volume))
    if work.tools is None:
        return machine
    out = _sparse(folder / _TRACE, TRACE_BYTES)
    machine = with_tools(machine, work.tools)
    disks = (*machine.disks, Disk(str(out), mode=DiskMode.WRITTEN))
    return replace(machine, disks=disks, words=(*machine.words, "VT_OUT=1"))


def _sparse(path: Path, size: int) -> Path:
    """Make a file of zeros that takes no room, and return it."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def _log(path: Path) -> bytes:
    """Return a log: the disk up to its first NUL, read without its empty rest."""
    parts = []
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            head, nul, _ = part.partition(b"\0")
            parts.append(head)
            if nul:
                break
    return b"".join(parts)
