# SPDX-License-Identifier: Apache-2.0
"""What one boot left behind, besides its record: what the guest said of itself, and bytes that others read."""

from __future__ import annotations

from dataclasses import dataclass, field

from vmtailor.model.boots.counters import Counters
from vmtailor.model.boots.ending import End
from vmtailor.model.guest import GuestReport


@dataclass(frozen=True, eq=False)
class Gathered:
    """`end`: how QEMU ended, or that it still ran. `started_s`: the host's monotonic clock when it was started, to
    which the marks' `host_s` refer. `report`: what our init said. `console`: as it came, or the kernel's words that
    init sent. `lines`: those of the console, each with host seconds since the start. `chart`: what the collector said.
    `start_cpu_s`, `cpu_s`: processor time that QEMU had used when our init first spoke, and when it was last seen.
    `executed`: instructions by QEMU's own count when it was last seen, of a system on the instruction clock.
    `requests`: the tracer's log. `counts`: the plugin's file, and what it holds: `counters`."""

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
