# SPDX-License-Identifier: Apache-2.0
"""Judge a place of a log at which a boot seems to begin again. One sign is not enough: firmware speaks within a running
kernel, a service manager is executed anew, a log is printed twice, and clocks go back."""

from __future__ import annotations

import re
from enum import StrEnum

from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.log_lines import decode
from vmtailor.analysis.bootlog.milestones import BEGINNING_US, is_firmware, is_shutdown

#: Lines after which a recurrence that nothing decided is judged by what there is.
MOST_LINES = 4000
#: Stamped lines that repeat what was said at that moment: so many are no chance.
COPIES = 2
#: Moments that were not heard of before, each later than the one before it: so many follow a clock that was set back. A
#: trace that comes late has many lines of one moment.
FRESH = 8
#: Characters of a message that are compared: the rest may be cut.
ALIKE = 40
#: The clock is back where it was, when a stamp is not further behind.
SLACK_US = 1_000_000


class RecurrenceVerdict(StrEnum):
    """The ways in which a recurrence turns out."""

    OPEN = "open"
    BOOT = "boot"  # another boot begins there
    SAME = "same"  # the boot before goes on
    COPY = "copy"  # the boot before goes on; the stamped lines are its own, printed again
    STEP = "step"  # the boot before goes on; its clock was set back


class Recurrence:
    """One suspected beginning: the boot before it, and what has been seen since. `firmware`: a message of firmware
    alone raised the suspicion, and no clock; `unstamped`: the name of a kernel without a stamp did."""

    def __init__(self, before: Observed, last_us: int | None, *, firmware: bool, unstamped: bool) -> None:
        self._before = before
        self._last_us = last_us
        self._reset = before.closing
        self._by_firmware, self._unstamped = firmware, unstamped
        self._said = {(at_us, text[:ALIKE]) for at_us, text in before.messages if at_us}
        self._at_us: int | None = None
        self.first_us: int | None = None
        self._firmware: set[str] = set()
        self._copies = self._fresh = self._stamped = 0
        self._fresh_us = -1
        self.lines: list[bytes] = []

    def say(self, at_us: int | None, message: bytes) -> None:
        """Take one message that was read since."""
        if is_shutdown(message):
            self._reset = True
        elif at_us is None and is_firmware(message):
            self._firmware.add(decode(message, 12))
        self._at_us = at_us
        if at_us is None:
            return
        self._stamped += 1
        if self.first_us is None:
            self.first_us = at_us
        if at_us:
            alike = (at_us, decode(message)[:ALIKE]) in self._said
            self._copies += alike
            if not alike and at_us > self._fresh_us:
                self._fresh += 1
                self._fresh_us = at_us

    def verdict(self, since: Observed) -> RecurrenceVerdict:
        """Return the verdict after a line. `since`: what was read from the suspected beginning on."""
        at_us = self._at_us
        if at_us is None or len(self.lines) >= MOST_LINES:
            return self.at_last(since) if len(self.lines) >= MOST_LINES else RecurrenceVerdict.OPEN
        goes_on = self._last_us is not None and at_us >= self._last_us - SLACK_US
        if self._unstamped and goes_on and not (self._reset or self._firmware or self._other_kernel(since)):
            return RecurrenceVerdict.SAME  # some program prints /proc/version
        by_lines = self._of_kernel(since) if since.first_line_seen else self._of_others()
        if by_lines is not RecurrenceVerdict.OPEN or self._last_us is None:
            return by_lines
        if goes_on and not self._behind(at_us):
            if self._copies:
                return RecurrenceVerdict.COPY
            return RecurrenceVerdict.BOOT if since.first_line_seen else RecurrenceVerdict.SAME
        return self._set_back() if self._fresh >= FRESH and not since.first_line_seen else RecurrenceVerdict.OPEN

    def _of_kernel(self, since: Observed) -> RecurrenceVerdict:
        """Return the verdict behind a kernel's first line: one more sign makes a boot, lines that repeat make none."""
        if self._reset or self._firmware or self._other_kernel(since):
            return RecurrenceVerdict.BOOT
        if self._copies >= COPIES:
            return RecurrenceVerdict.COPY
        return RecurrenceVerdict.BOOT if self._fresh > COPIES else RecurrenceVerdict.OPEN

    def _of_others(self) -> RecurrenceVerdict:
        again = self._copies >= COPIES and self._copies > self._fresh and not self._reset
        return RecurrenceVerdict.COPY if again else RecurrenceVerdict.OPEN

    def at_last(self, since: Observed) -> RecurrenceVerdict:
        """Return the verdict where nothing more comes."""
        if since.first_line_seen and not self._stamped:
            agree = self._reset or self._firmware or since.command_line or self._other_kernel(since)
            return RecurrenceVerdict.BOOT if agree else RecurrenceVerdict.SAME
        if since.first_line_seen:
            return RecurrenceVerdict.COPY if self._copies > self._fresh else RecurrenceVerdict.BOOT
        if self._by_firmware or not self._stamped:
            return RecurrenceVerdict.BOOT if self._reset or len(self._firmware) > 1 else RecurrenceVerdict.SAME
        return self._set_back() if self._fresh >= FRESH else RecurrenceVerdict.SAME

    def _set_back(self) -> RecurrenceVerdict:
        anew = self.first_us is not None and self.first_us < BEGINNING_US
        return RecurrenceVerdict.BOOT if anew or self._reset else RecurrenceVerdict.STEP

    def _behind(self, at_us: int) -> bool:
        """Return whether a clock that began anew merely has not far to go."""
        return self.first_us is not None and self.first_us < BEGINNING_US and at_us < SLACK_US

    def _other_kernel(self, since: Observed) -> bool:
        known = self._before.version and since.version
        return bool(known) and self._before.version != since.version


#: The kernel's own words, after the prefix of a system log on a console that shows both.
RELAYED = re.compile(rb"(?:^|[ \t])(?:kernel|klogd): ?$")
