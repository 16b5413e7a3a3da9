# SPDX-License-Identifier: Apache-2.0
"""The clock of whoever captured a log, and how it lies to the kernel's own."""

from __future__ import annotations

import re

from vmtailor.analysis.bootlog import stamps


class HostClock:
    """Reads the outer stamps of a capture. `offset_us` is the host's time at the kernel clock's zero, where it is
    known."""

    def __init__(self) -> None:
        self.offset_us: int | None = None
        self._days = 0
        self._last_of_day: int | None = None

    def read(self, outer: stamps.Outer, match: re.Match[bytes]) -> int:
        """Microseconds of an outer stamp. Days are counted where it has none."""
        value = outer.time(match)
        if outer.wraps:
            if self._last_of_day is not None and value < self._last_of_day - stamps.DAY_US // 2:
                self._days += 1
            self._last_of_day = value
            value += self._days * stamps.DAY_US
        return value

    def kernel_us(
        self, outer: stamps.Outer, host_us: int, own_us: int | None, message: bytes, first: bool
    ) -> int | None:
        """When that was on the kernel's clock; None while nothing tells. `own_us` is the kernel's own stamp, where the
        line has one; `first`: no message of the kernel came before."""
        if outer.kernel_clock:
            return own_us if own_us is not None else host_us
        if own_us is not None:
            # The line with the least delay on its way to the host tells the offset best.
            if self.offset_us is None or host_us - own_us < self.offset_us:
                self.offset_us = host_us - own_us
            return own_us
        if self.offset_us is None:
            begins = message.startswith((b"Linux version", b"Booting Linux")) or (outer.identified and first)
            if not begins:
                return None
            self.offset_us = host_us
        return host_us - self.offset_us
