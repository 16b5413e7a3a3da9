# SPDX-License-Identifier: Apache-2.0
"""A boot that is watched from outside, from the start of its monitor to the ready signal, or to the reason why it never
came. It boots a system with an init of its own, or a machine that is left alone."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.analysis.timeline import bootmarks
from vmtailor.base.bounded_patterns import bounded
from vmtailor.base.files import temporary
from vmtailor.booting import boot_counter
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.listener import Listener, listening
from vmtailor.drivers.guest.ready import POLL_S, ConsoleWatcher, PortWatcher, Watcher, watcher_for
from vmtailor.drivers.monitors.monitor import Wants
from vmtailor.model.architecture import named
from vmtailor.model.boots.boot import Boot, Milestone, Outcome
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.workload import Nothing, OwnInit, ReadySignal
from vmtailor.model.machine import Clock, Machine

#: Seconds that a guest may go on printing after a line that says it is lost.
LAST_WORDS_S = 2.0
#: Seconds that a machine has to end; with a counter, which writes its counts then.
END_S, END_COUNTED_S = 3.0, 60.0
#: Messages that make a boot doubtful; architectures have more of them.
_WARNINGS = ("WARNING: CPU", "BUG: ", "Oops", "INFO: task .* blocked", "rcu: INFO: .*stall")
_PANICKED, _NOT_SEEN = "the kernel panicked", "not seen within"


@dataclass
class _Waiting:
    """A signal that is waited for. `at`: host seconds since the start when it came, with what was `said`."""

    name: str
    signal: ReadySignal
    watcher: Watcher
    at: float | None = None
    said: str = ""


def boot(
    machine: Machine,
    work: OwnInit | Nothing,
    scratch: Path,
    wanted: Counting | None,
    on_progress: Callable[[float], None] | None,
) -> tuple[Boot, Gathered]:
    """Boot a machine once, and end it when all its signals have come or its time is over."""
    collector = isinstance(work, OwnInit) and work.collector
    with contextlib.ExitStack() as stack:
        # Without a plugin nothing is written.
        folder = stack.enter_context(temporary.held_folder(scratch)) if wanted is not None else scratch
        counter = boot_counter.prepare(machine, wanted, folder)
        with listening(machine, Wants(counter, probe=collector)) as listener:
            waiting = _watchers(listener, work)
            try:
                problem = _wait(listener, waiting, work.timeout_s, on_progress)
                if isinstance(work, OwnInit):
                    _settle(listener, work)
            finally:
                for one in waiting:
                    if isinstance(one.watcher, PortWatcher):
                        one.watcher.close()
            cpu_s, end = listener.machine.cpu_s, listener.end()
            listener.quit(END_COUNTED_S if counter is not None else END_S)
        counts, counters = boot_counter.counted(counter)
    if not listener.console.raw and problem and end.stderr:
        problem = f"{problem}; {end.monitor} said: {end.stderr}"
    timed = tuple(listener.console.timed())
    lines = bootmarks.lines_of(timed)
    doubtful = re.compile(bounded("|".join((*_WARNINGS, *named(machine.architecture).warnings))))
    gathered = Gathered(
        end=end,
        started_s=listener.machine.started_s,
        console=bytes(listener.console.raw),
        lines=timed,
        chart=bytes(listener.probe),
        counts=counts,
        counters=counters,
    )
    found = Boot(
        outcome=_outcome(waiting, problem),
        milestones=_milestones(lines, waiting, work, machine.clock),
        seconds=end.seconds,
        command=end.command,
        failures=(problem,) if problem else (),
        cpu_s=cpu_s,
        kernel_warnings=tuple(dict.fromkeys(line.text[:200] for line in lines if doubtful.match(line.text)))[:50],
    )
    return found, gathered


def _watchers(listener: Listener, work: OwnInit | Nothing) -> list[_Waiting]:
    signals = [("ready", work.ready), *((str(s), s) for s in work.also)] if isinstance(work, OwnInit) else []
    found = []
    for name, signal in signals:
        watcher = watcher_for(
            signal, forwards=listener.forwards, established=listener.machine.established, events=listener.events
        )
        found.append(_Waiting(name, signal, watcher))
    return found


def _wait(
    listener: Listener, waiting: Sequence[_Waiting], timeout_s: float, on_progress: Callable[[float], None] | None
) -> str:
    """Wait until all signals have come ("") or one cannot come any more (the reason). Without a signal, wait until the
    time is over."""
    lost, lost_at, polled = _Lost(), 0.0, 0.0
    while True:
        text = listener.pump(POLL_S)
        now = listener.now
        ask = now - polled >= POLL_S
        polled = now if ask else polled
        for one in waiting:
            if one.at is None:
                _note(one, (text and one.watcher.console(text)) or (ask and one.watcher.poll()) or "", now)
        if waiting and all(one.at is not None for one in waiting):
            return ""
        if on_progress is not None:
            on_progress(now)
        if lost.why(listener.console.lines, text):
            lost_at = lost_at or now
            if now - lost_at > LAST_WORDS_S or listener.ended:
                return lost.said
        if listener.ended:
            listener.drain()
            code = listener.machine.returncode
            return lost.why(listener.console.lines, "") or (
                f"the machine ended by itself after {now:.1f} s ({listener.machine.title} exited with {code})"
            )
        if now > timeout_s:
            missing = ", ".join(str(one.signal) for one in waiting if one.at is None)
            return f"{_NOT_SEEN} {timeout_s:.0f} s: {missing}" if missing else lost.said


def _settle(listener: Listener, work: OwnInit) -> None:
    """Go on, whatever became of the signals, until what is noted of the machine is where it is kept."""
    came, until = time.time(), time.monotonic() + work.settle_s
    while work.settled is not None and not listener.ended and time.monotonic() < until and not work.settled(came):
        listener.pump(POLL_S)


@dataclass
class _Lost:
    """Looks at each line of the console once for one that says that the guest is lost."""

    seen: int = 0
    said: str = ""

    def why(self, lines: Sequence[tuple[float, str]], text: str) -> str:
        for _, line in lines[self.seen :]:
            self.said = self.said or bootmarks.dead_end(line)
        self.seen = len(lines)
        if not self.said and text.rstrip(" ").endswith("(initramfs)"):  # a prompt, without an end of line
            self.said = bootmarks.dead_end("(initramfs)")
        return self.said


def _note(one: _Waiting, said: str, now: float) -> None:
    if said:
        one.at, one.said = now, said


def _outcome(waiting: Sequence[_Waiting], problem: str) -> Outcome:
    if not problem:
        return Outcome.READY
    if problem.startswith(_PANICKED):
        return Outcome.PANIC
    if waiting and waiting[0].at is not None:
        return Outcome.WRONG
    return Outcome.TIMEOUT if problem.startswith(_NOT_SEEN) else Outcome.STOPPED


def _milestones(
    lines: Sequence[bootmarks.MarkLine], waiting: Sequence[_Waiting], work: OwnInit | Nothing, clock: Clock
) -> tuple[Milestone, ...]:
    zero = bootmarks.kernel_zero(lines)
    found = list(bootmarks.milestones(lines, work.marks if isinstance(work, OwnInit) else ()))
    for one in waiting:
        if one.at is None:
            continue
        line = None
        if isinstance(one.watcher, ConsoleWatcher):
            line = bootmarks.line_with(lines, one.said)
        if clock is Clock.WALL:
            at = min(one.at, line.wall_s) if line else one.at
            guest_s = line.guest_s if line else None if zero is None else at - zero
        else:  # host and guest do not keep step: only what the guest stamped tells its time
            at, guest_s = one.at, bootmarks.guest_time(lines, line)
        found.append(Milestone(name=one.name, virtual_ns=bootmarks.ns(guest_s), wall_s=at, source=one.said))
    return tuple(sorted(found, key=lambda m: m.wall_s or 0.0))
