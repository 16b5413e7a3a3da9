# SPDX-License-Identifier: Apache-2.0
"""The clock of whoever captured a log, and how it lies to the kernel's own."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from vmtailor.analysis.bootlog import stamps
from vmtailor.analysis.bootlog.boot_record import MAX_MESSAGES, Observed
from vmtailor.analysis.bootlog.log_lines import decode
from vmtailor.analysis.bootlog.milestones import HANDLERS, LOGIN
from vmtailor.model.boots.timeline import WarningCode

#: A capture's clock that goes back further was reset.
RESET_US = 10_000


class HostClock:
    """Reads the outer stamps of a capture. `offset_us` is the host's time at the kernel clock's zero, where it is
    known."""

    def __init__(self) -> None:
        self.offset_us: int | None = None
        self.assumed = False  # that the first line there is stands at zero
        self._not_running = False
        self._days = 0
        self._last_of_day: int | None = None
        self._last = self._before_reset = 0
        self.resets: list[int] = []

    def read(self, outer: stamps.Outer, match: re.Match[bytes]) -> int:
        """Return the microseconds of an outer stamp. Days are counted where it has none."""
        value = outer.time(match)
        if outer.wraps:
            if self._last_of_day is not None and value < self._last_of_day - stamps.DAY_US // 2:
                self._days += 1
            self._last_of_day = value
            value += self._days * stamps.DAY_US
        elif not outer.epoch and not outer.kernel_clock:
            # It counts from the capture's start, or from a line with a pattern that it was told: there it is set to 0.
            if value + self._before_reset < self._last - RESET_US:
                self._before_reset = self._last
                self.resets.append(self._last)
            value += self._before_reset
            self._last = max(self._last, value)
        return value

    def kernel_us(
        self, outer: stamps.Outer, host_us: int, own_us: int | None, message: bytes, first: bool
    ) -> int | None:
        """Return the moment on the kernel's clock; None while nothing tells. `own_us` is the kernel's own stamp, where
        the line has one; `first`: no message of the kernel came before."""
        if outer.kernel_clock:
            return own_us if own_us is not None else host_us
        if own_us is not None:
            # The line with the least delay on its way to the host tells the offset best.
            # Lines stamped 0 are from before the kernel's clock ran: they only count where there is no other.
            if self.offset_us is None or (own_us and (self._not_running or host_us - own_us < self.offset_us)):
                self.offset_us = host_us - own_us
                self._not_running = own_us == 0
            self.assumed = False
            return own_us
        if self.offset_us is None:
            begins = message.startswith((b"Linux version", b"Booting Linux")) or (outer.identified and first)
            if not begins:
                return None
            self.offset_us = host_us
            self.assumed = not message.startswith((b"Linux version", b"Booting Linux"))
        return host_us - self.offset_us


def place_early(observed: Observed, early: Sequence[tuple[int, bytes]], clock: HostClock) -> int:
    """Put lines of firmware and loader, captured with the host's clock, before the kernel's zero; without a kernel the
    first of them is it. Returns the moment of the last."""
    alone = clock.offset_us is None
    if clock.offset_us is None:
        clock.offset_us = early[0][0]
        observed.relative = True
    first, last = early[0][0] - clock.offset_us, early[-1][0] - clock.offset_us
    observed.mark("capture", first, "first line of the serial capture")
    for host_us, message in early:
        handler = HANDLERS.get(message.partition(b" ")[0])
        if handler is not None:
            handler(observed, host_us - clock.offset_us, message)
        elif message.endswith((b"login:", b"login: ")) and LOGIN.match(message):
            observed.mark("login", host_us - clock.offset_us, "login prompt")
    early_messages = [(host_us - clock.offset_us, decode(message)) for host_us, message in early[:MAX_MESSAGES]]
    observed.messages = [*early_messages, *observed.messages][: 2 * MAX_MESSAGES]
    if alone and observed.first_us is None:
        observed.first_us, observed.last_us = first, last
    return last


def without_arrivals(observed: Observed) -> None:
    """Take back what a journal on the wall clock says of the time before it ran: those lines carry the moment at which
    it read them. What came later is put on the kernel's clock where systemd says how long all took."""
    started, finished = observed.marks.get("journal-started"), observed.marks.get("finished")
    begun = min((p.start_us or 0 for p in observed.phases), default=0)
    over = max((p.end_us or 0 for p in observed.phases), default=0)
    if observed.printed_total_us is not None:
        over = observed.printed_total_us + begun
    shift = over - finished[0] if finished and over else None

    def real(at_us: int | None) -> int | None:
        known = started and shift is not None and at_us is not None and at_us > started[0]
        return at_us + shift if known and at_us is not None and shift is not None else None

    moved = {name: (real(at_us), how) for name, (at_us, how) in observed.marks.items()}
    observed.marks = {name: (at_us, how) for name, (at_us, how) in moved.items() if at_us is not None}
    observed.rough_us = {at for at_us in observed.rough_us if (at := real(at_us)) is not None}
    observed.gaps = [
        msgspec.structs.replace(gap, start_us=gap.start_us + shift, end_us=gap.end_us + shift)
        for gap in observed.gaps
        if shift is not None and real(gap.start_us) is not None
    ]
    for call in observed.initcalls:
        call.start_us = call.end_us = call.base_us = None
    for probe in observed.probes:
        probe.end_us = None
    observed.messages = [(real(at_us), text) for at_us, text in observed.messages]
    observed.arrived, observed.clocksource_switch_us = True, None
    observed.warn(
        WarningCode.ARRIVAL_TIMES,
        "early lines carry the time at which the journal read them, not when they were said: how long the kernel took "
        "is not in this log (journalctl -o short-monotonic has it)",
    )


def place_loader(observed: Observed, loader: Observed, first_us: int, last_us: int) -> None:
    """Put what was read of a loader, on its own clock, before the kernel's zero: it ended there, as far as is known."""
    observed.loader, observed.lines, observed.characters = True, loader.lines, loader.characters
    for name, (at_us, how) in loader.marks.items():
        observed.mark(name, at_us - last_us, how)
    if "firmware" not in observed.marks:
        observed.mark("loader", first_us - last_us, "the first stamp of the loader's own clock", last=True)
    observed.messages = [(None if at is None else at - last_us, text) for at, text in loader.messages]
