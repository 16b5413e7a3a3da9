# SPDX-License-Identifier: Apache-2.0
"""A boot of a system with an init of its own, from the start of its monitor to its shutdown. Our attendant drives it
through its exercise."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.guests import attended_boots as judging
from vmtailor.analysis.timeline import bootmarks
from vmtailor.base.files import temporary
from vmtailor.base.natives import ADDRESSES
from vmtailor.booting import boot_counter
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.container_boot import Used
from vmtailor.booting.listener import Listener, listening
from vmtailor.booting.machine_watcher import MachineWatcher
from vmtailor.drivers.guest.attendant_volume import PROGRAM
from vmtailor.drivers.guest.guest_session import GuestSession
from vmtailor.drivers.guest.ready import ConsoleWatcher
from vmtailor.drivers.host import host_client
from vmtailor.drivers.monitors.monitor import Counter, Wants
from vmtailor.drivers.rootfs import small_initrd
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.counters import CodeOwner
from vmtailor.model.boots.ending import End, Gathered
from vmtailor.model.boots.system_exercise import SystemReadyKind
from vmtailor.model.boots.workload import Attended, Until
from vmtailor.model.machine import Clock, Disk, Machine
from vmtailor.model.machine_watch import MachineWatch

#: Seconds between two looks at the attendant's line and the console.
_LOOK_S = 0.1
#: Seconds that a guest may go on printing after a line that says it is lost; that a machine has to end, with a counter.
_LAST_WORDS_S, _END_S, _END_COUNTED_S = 2.0, 3.0, 60.0
#: Words by which a kernel mounts its root itself; the attendant's disk takes their place.
_ROOT_WORDS = ("root", "rootfstype", "rootflags", "init", "ro", "rw", "resume")


def owners() -> tuple[CodeOwner, ...]:
    """Return the user code that is ours: the attendant, and what it starts."""
    return tuple(CodeOwner(name, *ADDRESSES[name]) for name in ("attendant", "client", "sampler"))


def with_attendant(machine: Machine, volume: Path, file_system: str = "ext4") -> Machine:
    """Return the machine with the attendant's disk behind its own, so that the kernel starts the attendant."""
    device = f"/dev/vd{chr(ord('a') + len(machine.disks))}"
    words = tuple(word for word in machine.words if word.partition("=")[0] not in _ROOT_WORDS)
    own = (f"root={device}", f"rootfstype={file_system}", "ro", f"init={PROGRAM}")
    return replace(machine, disks=(*machine.disks, Disk(str(volume))), words=(*own, *words))


def boot(
    machine: Machine,
    work: Attended,
    scratch: Path,
    wanted: Counting | None,
    on_progress: Callable[[float], None] | None,
) -> tuple[Boot, Gathered]:
    """Boot the system, drive it and shut it down. `machine.disks[0]` has the system."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(temporary.held_folder(scratch)) if wanted is not None else scratch
        counter = boot_counter.prepare(machine, wanted, folder, owners())
        driven = with_attendant(machine, work.volume, small_initrd.file_system(Disk(str(work.volume))))
        listener = stack.enter_context(listening(driven, Wants(counter, attendant=True)))
        conversation = _Conversation(machine, listener, work)
        lost = conversation.run(on_progress)
        if machine.clock is Clock.INSTRUCTIONS:
            conversation.count()
        end, conversation.used.now_s = listener.end(), listener.machine.cpu_s
        listener.quit(_END_COUNTED_S if counter is not None else _END_S)
        conversation.session.pump(0)
        gathered = _gathered(listener, conversation, end, counter)
    table = wanted.table if wanted is not None else None
    found = judging.boot_of(
        gathered, work.exercise, lost, conversation.outside, shut_down=work.until is Until.SHUTDOWN, table=table
    )
    return found, gathered


class _Conversation:
    """With the attendant and the console, until the machine ends or cannot go on."""

    def __init__(self, machine: Machine, listener: Listener, work: Attended) -> None:
        assert listener.machine.attendant is not None
        self.watcher = MachineWatcher(machine, listener.machine, work.sample_ms)
        self.session = GuestSession(listener.machine.attendant, key=work.key, takes=self.watcher.takes)
        self._listener = listener
        self._work = work
        ready = work.exercise.ready
        self._line = ConsoleWatcher(re.compile(ready.pattern)) if ready.kind is SystemReadyKind.LOG else None
        # After its own load the attendant waits for a word, as it is told (attendant_volume.config_bytes).
        self._waits = bool(work.exercise.host_steps) or self._line is not None
        self.outside: list[str] = []
        self.used = Used()
        self._seen = 0
        self._lost, self._lost_at = "", 0.0

    def run(self, on_progress: Callable[[float], None] | None) -> str:
        """Drive the guest. Return the reason why it was given up, or "" when it ended by itself."""
        while not self._listener.ended:
            self.session.pump(_LOOK_S)
            if self._has_come():
                return ""
            text = self._listener.pump(0.0)
            now = self._listener.now
            self.used.look(self._listener.machine, self.session.listening)
            if math.isfinite(self._work.patience.instructions):
                self.count()
            if self._line is not None and text and self._line.console(text):
                self._line = None
                self.session.go()
            self._drive_from_outside()
            if on_progress is not None:
                on_progress(now)
            if self._is_lost(now):
                return self._lost
            if now > self._work.timeout_s:
                return f"it was not done after {self._work.timeout_s:.0f} s"
            if self.used.beyond(self._work.patience):
                executed = "" if self.used.executed is None else f", {self.used.executed / 1e6:.0f} M instructions"
                return f"it was not done after {self.used.now_s:.0f} s of processor time{executed}"
        self._listener.drain()
        return self._lost

    def watched(self) -> MachineWatch | None:
        """Return the machine's figures over time; None where no samples were taken."""
        steps = self._work.exercise.inside().guest_steps
        return self.watcher.record(self._work.exercise.origin, self.session.report(), steps)

    def count(self) -> None:
        """Read the number of executed instructions, unless the machine has ended."""
        if not self._listener.ended:
            self.used.executed = self._listener.machine.executed() or self.used.executed

    def _has_come(self) -> bool:
        """Return whether the system has reached the wanted point."""
        if self._work.until is Until.SHUTDOWN:
            return False
        seen = {mark.name for mark in self.session.marks}
        if self._work.until is Until.READY:
            return "ready" in seen
        return "load_end" in seen and bool(self.session.report().file("memory"))  # which follows that mark

    def _drive_from_outside(self) -> None:
        if self._waits and any(mark.name == "load_end" for mark in self.session.marks):
            self._waits = False
            asked = replace(self._work.exercise.inside(), load=self._work.exercise.host_steps)
            self.outside = host_client.wrong_answers(asked, self._listener.forwards)
            self.session.go()

    def _is_lost(self, now: float) -> bool:
        for _, line in self._listener.console.lines[self._seen :]:
            self._lost = self._lost or bootmarks.dead_end(line)
        self._seen = len(self._listener.console.lines)
        if self._lost:
            self._lost_at = self._lost_at or now
        return bool(self._lost) and now - self._lost_at > _LAST_WORDS_S


def _gathered(listener: Listener, said: _Conversation, end: End, counter: Counter | None) -> Gathered:
    counts, counters = boot_counter.counted(counter)
    return Gathered(
        end=end,
        started_s=listener.machine.started_s,
        report=said.session.report(),
        console=bytes(listener.console.raw),
        lines=tuple(listener.console.timed()),
        start_cpu_s=said.used.start_s,
        cpu_s=said.used.now_s,
        executed=said.used.executed,
        counts=counts,
        counters=counters,
        watch=said.watched(),
    )
