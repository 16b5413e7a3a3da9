# SPDX-License-Identifier: Apache-2.0
"""The end of a machine's program, and the guest's notes and bytes that a boot leaves behind."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from vmtailor.base.errors import GuestError
from vmtailor.model.guest import GuestReport
from vmtailor.model.machine_watch import MachineWatch

if TYPE_CHECKING:  # it imports numpy, which most starts do without
    from vmtailor.model.boots.counters import Counters


class Ending(StrEnum):
    """The ways in which a machine ends."""

    EXITED = "exited"  # by itself: power-off, or a triple fault with -no-reboot
    PANIC = "panic"  # the kernel said so on its console
    DEADLINE = "deadline"  # it still ran when its time was over
    DIED = "died"  # the monitor failed, or was killed from outside


#: The words of the watcher over file servers (native/serve).
_SERVER = re.compile(r"^serve: (the file server of .* ended \(.*\), and the machine with it)$", re.MULTILINE)


@dataclass(frozen=True)
class End:
    """The end of one boot, with what a person needs to see why. `seconds` of host time since its
    monitor was started, whose name for people is `monitor`."""

    ending: Ending
    command: str
    console_tail: str
    stderr: str
    seconds: float
    returncode: int | None
    monitor: str = "QEMU"

    def error(self) -> GuestError:
        """Return this end as the error it is where it was not wanted."""
        what = {
            Ending.EXITED: "the machine ended by itself too early",
            Ending.PANIC: "the guest's kernel panicked",
            Ending.DEADLINE: f"the guest was not done after {self.seconds:.0f} s",
            Ending.DIED: f"{self.monitor} ended with status {self.returncode}",
        }[self.ending]
        if server := _SERVER.search(self.stderr):
            hint = "what it served is as it was; start the machine again"
            return GuestError(server[1], hint=hint, details=self.stderr)
        parts = (self.console_tail[-4000:], self.stderr, f"{self.command}\nafter {self.seconds:.1f} s")
        hint = "give it more time" if self.ending is Ending.DEADLINE else "the console's last lines tell more"
        return GuestError(what, hint=hint, details="\n".join(part.strip() for part in parts if part.strip()))


@dataclass(frozen=True, eq=False)
class Gathered:
    """`end`: how the machine ended, or that it still ran. `started_s`: the host's monotonic clock when it was started,
    to which the marks' `host_s` refer. `report`: what our init said. `console`: as it came, or the kernel's words that
    init sent. `lines`: those of the console, each with host seconds since the start. `chart`: what the collector said.
    `start_cpu_s`, `cpu_s`: processor time that the monitor had used when our init first spoke, and when it was last
    seen. `executed`: instructions by the monitor's own count when it was last seen, of a system on the instruction
    clock. `requests`: the tracer's log. `counts`: the plugin's file, and what it holds: `counters`.
    `exits`: KVM's trace of the machine's exits. `lasted_ns`: from the monitor's exec to its end, in the lab. `watch`:
    its figures over time, where samples were taken."""

    end: End
    started_s: float
    report: GuestReport = field(default_factory=GuestReport)
    console: bytes = b""
    lines: tuple[tuple[float, str], ...] = ()
    chart: bytes = b""
    start_cpu_s: float | None = None
    cpu_s: float | None = None
    executed: int | None = None
    requests: bytes = b""
    counts: bytes = b""
    counters: Counters | None = None
    exits: bytes = b""
    lasted_ns: int | None = None
    watch: MachineWatch | None = None
