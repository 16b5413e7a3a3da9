# SPDX-License-Identifier: Apache-2.0
"""One boot: from the start of QEMU to the ready signal, or to the reason why it never came."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vmtailor.analysis.timeline import bootmarks, collector_stream
from vmtailor.drivers.guest.listener import Listener, listening
from vmtailor.drivers.guest.ready import POLL_S, ConsoleWatcher, PortWatcher, Watcher, watcher_for
from vmtailor.drivers.qemu.plugin import Plugin
from vmtailor.model.architecture import named
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.series import Outcome, VmBoot, VmMilestone
from vmtailor.model.workload import ReadyBy, ReadySignal

#: Seconds that a guest may go on printing after a line that says it is lost.
LAST_WORDS_S = 2.0
#: Signals that are asked for over the network.
BY_PORT = (ReadyBy.TCP, ReadyBy.SSH, ReadyBy.HTTP)
#: Messages that make a boot doubtful; architectures have more of them.
_WARNINGS = ("WARNING: CPU", "BUG: ", "Oops", "INFO: task .* blocked", "rcu: INFO: .*stall")


@dataclass(frozen=True)
class Plan:
    """How every boot of a series is judged. `also`: signals that must come, too, before the boot counts as right;
    `marks`: further milestones by lines of the console; `collector`: it runs in the guest, and says what it sees on a
    second serial port."""

    ready: ReadySignal
    timeout_s: float
    also: tuple[ReadySignal, ...] = ()
    marks: tuple[tuple[str, re.Pattern[str]], ...] = ()
    collector: bool = False

    @property
    def ports(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(s.port for s in (self.ready, *self.also) if s.by in BY_PORT))


@dataclass
class _Waiting:
    name: str
    signal: ReadySignal
    watcher: Watcher
    at: float | None = None
    said: str = ""


def boot_once(
    machine: Machine, plan: Plan, folder: Path, *, number: int, variant: str, plugin: Plugin | None = None,
    header: Sequence[tuple[str, str]] = (), on_progress: Callable[[float], None] | None = None,
) -> VmBoot:  # fmt: skip
    """Boot a machine once. Raises GuestError only when QEMU itself does not start; a guest that fails is a result.

    `folder` gets the console (`console.log` as it came, `console.times.log` with host times) and, where the collector
    ran, `bootchart/`."""
    folder.mkdir(parents=True, exist_ok=True)
    with listening(machine, plugin=plugin, probe=plan.collector) as running:
        waiting = _watchers(running, plan)
        try:
            problem = _wait(running, waiting, plan.timeout_s, on_progress)
        finally:
            for one in waiting:
                if isinstance(one.watcher, PortWatcher):
                    one.watcher.close()
        seconds, cpu_s, said = running.now, running.machine.cpu_s, running.machine.stderr()
        # A plugin writes its counts when QEMU is asked to end.
        running.quit(60.0 if plugin is not None else 3.0)
        if not running.console.raw and problem and said:
            problem = f"{problem}; QEMU said: {said}"
    timed = running.console.timed()
    (folder / "console.log").write_bytes(running.console.raw)
    (folder / "console.times.log").write_text(bootmarks.grabserial(timed), "utf-8", "replace")
    if plan.collector:
        _save_chart(folder / "bootchart", bytes(running.probe), header)
    lines = bootmarks.lines_of(timed)
    doubtful = re.compile("|".join((*_WARNINGS, *named(machine.architecture).warnings)))
    warnings = tuple(dict.fromkeys(line.text[:200] for line in lines if doubtful.match(line.text)))[:50]
    return VmBoot(
        number=number,
        variant=variant,
        outcome=_outcome(waiting, problem),
        milestones=_milestones(lines, waiting, plan, machine.clock),
        seconds=seconds,
        folder=folder.name,
        problem=problem,
        cpu_s=cpu_s,
        kernel_warnings=warnings,
    )


def _watchers(running: Listener, plan: Plan) -> list[_Waiting]:
    found = []
    for name, signal in (("ready", plan.ready), *((str(s), s) for s in plan.also)):
        watcher = watcher_for(signal, forwards=running.forwards, established=running.established, events=running.events)
        found.append(_Waiting(name, signal, watcher))
    return found


def _wait(
    running: Listener, waiting: Sequence[_Waiting], timeout_s: float, on_progress: Callable[[float], None] | None
) -> str:
    """Until all signals came ("") or one cannot come any more (why)."""
    lost, lost_at, polled = _Lost(), 0.0, 0.0
    while True:
        text = running.pump(POLL_S)
        now = running.now
        ask = now - polled >= POLL_S
        polled = now if ask else polled
        for one in waiting:
            if one.at is None:
                _note(one, (text and one.watcher.console(text)) or (ask and one.watcher.poll()) or "", now)
        if all(one.at is not None for one in waiting):
            return ""
        if on_progress is not None:
            on_progress(now)
        if lost.why(running.console.lines, text):
            lost_at = lost_at or now
            if now - lost_at > LAST_WORDS_S or running.ended:
                return lost.said
        if running.ended:
            running.drain()
            code = running.machine.returncode
            return lost.why(running.console.lines, "") or (
                f"the machine ended by itself after {now:.1f} s (QEMU exited with {code})"
            )
        if now > timeout_s:
            missing = ", ".join(str(one.signal) for one in waiting if one.at is None)
            return f"not seen within {timeout_s:.0f} s: {missing}"


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
    if problem.startswith("the kernel panicked"):
        return Outcome.PANIC
    if waiting[0].at is not None:
        return Outcome.WRONG
    return Outcome.TIMEOUT if problem.startswith("not seen within") else Outcome.STOPPED


def _milestones(
    lines: Sequence[bootmarks.Line], waiting: Sequence[_Waiting], plan: Plan, clock: Clock
) -> tuple[VmMilestone, ...]:
    zero = bootmarks.kernel_zero(lines)
    found = list(bootmarks.milestones(lines, plan.marks))
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
        found.append(VmMilestone(one.name, at, guest_s, source=one.said))
    return tuple(sorted(found, key=lambda m: m.wall_s or 0.0))


def _save_chart(folder: Path, stream: bytes, header: Sequence[tuple[str, str]]) -> None:
    for name, data in collector_stream.members(stream, header).items():
        folder.mkdir(exist_ok=True)
        (folder / name).write_bytes(data)
