# SPDX-License-Identifier: Apache-2.0
"""What one boot left behind, besides its record: what the guest said of itself, and bytes that others read."""

from __future__ import annotations

from dataclasses import dataclass

from vmtailor.model.ending import End
from vmtailor.model.guest import GuestReport


@dataclass(frozen=True, eq=False)
class Gathered:
    """`end`: how QEMU ended; `requests`: the tracer's log; `counts`: the plugin's file. `started_s`: the host's
    monotonic clock when QEMU was started, to which the marks' `host_s` refer."""

    report: GuestReport
    end: End
    started_s: float
    requests: bytes = b""
    counts: bytes = b""

    @property
    def console(self) -> str:
        """The kernel's own words: what came on the console, then the log that init sent."""
        return self.report.console + self.report.file("kernel-log")
