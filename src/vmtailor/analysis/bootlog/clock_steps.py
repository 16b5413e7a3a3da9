# SPDX-License-Identifier: Apache-2.0
"""Find where the wall clock of a journal or a system log was set, so that the time which passed is told from the time
that was only written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from vmtailor.analysis.bootlog.log_lines import decode
from vmtailor.analysis.bootlog.stamps import DAY_US, Outer, strip_stamp

#: Steps that are looked for: smaller ones forward are no silence, smaller ones back are disorder.
FORWARD_US, BACK_US = 5_000_000, 2_000_000
#: Lines before and behind a jump in which a program may say that it set the clock; those behind soon after it.
BEFORE, BEHIND = 2, 8
SOON_US = 3_000_000
SHORTEST_MONTH = 28

_SECONDS = rb"([-+]?\d{1,12}(?:\.\d{1,9})?)"
#: Said once the clock was set: systemd's managers; chrony, ntpd, ntpdate.
_HAS_BEEN = (
    rb"Time has been changed|Clock change detected|The system clock has been changed"
    rb"|System clock time (?:unset or jumped backwards, restored|advanced to|is further ahead)"
    rb"|Initial (?:clock )?synchroni[sz]ation to |Synchronized to time server for the first time"
    rb"|Changed local time to |Time jumped backwards, rotating|(?:Forward|Backward) time jump detected"
    rb"|System clock was stepped by " + _SECONDS + rb"|step time server \S{1,80} offset " + _SECONDS
    + rb"|time (?:set|reset) " + _SECONDS
)  # fmt: skip
#: Said while it is being set: systemd's clocks of builds and files; BusyBox, OpenNTPD, chrony; a machine's clock, or a
#: file in its place.
_BEING = (
    rb"System clock time unset or jumped backwards|System time before build time|System clock wrong by " + _SECONDS
    + rb"|setting time to .{1,80}offset " + _SECONDS + rb"|set local clock to .{1,80}offset " + _SECONDS
    + rb"|setting system clock to |hwclock|[Hh]ardware [Cc]lock|swclock"
    + rb"|[Ss]etting (?:the )?[Ss]ystem (?:[Cc]lock|[Tt]ime)"
)  # fmt: skip
_SET, _SETTING = re.compile(_HAS_BEEN + b"|" + _BEING), re.compile(_BEING)
_NUMBER, _NAME = re.compile(rb"\d{1,9}"), re.compile(rb"[A-Za-z\x80-\xff]+")


def is_set_there(message: bytes, *, ahead: bool = False) -> bool:
    """Return whether a message says that the clock was set, or is just being set. `ahead`: only the latter, so that a
    jump may follow."""
    return (_SETTING if ahead else _SET).search(message[:400]) is not None


def said_us(message: bytes) -> int | None:
    """Return how far a message says that the clock was set, in microseconds; None where it gives no figure."""
    match = _SET.search(message[:400])
    figure = next((group for group in match.groups() if group), None) if match else None
    return round(float(figure) * 1_000_000) if figure else None


def follows(before: bytes, date: bytes) -> bool | None:
    """Return whether a date of a log can follow another: it is the same (None), or the next day. A machine that starts
    does not sleep for days."""
    if before == date:
        return None
    (one, month), (other, other_month) = _day_of(before), _day_of(date)
    if one is None or other is None:
        return True
    if other == one + 1:
        return month[-1:] == other_month[-1:]  # what stands before may be the weekday
    return other == 1 and one >= SHORTEST_MONTH and month != other_month


def _day_of(date: bytes) -> tuple[int | None, tuple[bytes, ...]]:
    """Return the number of the day, and what names its month in any language: numbers where there are two of them, or
    words. The day comes last, unless the year does."""
    numbers = _NUMBER.findall(date)
    if not numbers:
        return None, ()
    day = int(numbers.pop(0 if len(numbers[-1]) == 4 else -1))
    return day, (b"-".join(numbers),) if len(numbers) > 1 else (*numbers, *_NAME.findall(date))


@dataclass
class ClockStep:
    """One place at which the clock was set: by how much (None: by days, which lines without a year do not tell), after
    which message, and the message that tells (or "")."""

    by_us: int | None
    after: bytes
    told_by: bytes

    def __str__(self) -> str:
        how = "to another day"
        if self.by_us is not None:
            how = f"{'forward' if self.by_us > 0 else 'back'} by {abs(self.by_us) / 1e6:.3f} s"
        told = f" ('{decode(self.told_by, 60)}')" if self.told_by else ""
        after = decode(strip_stamp(self.after), 60)
        return f"the log's clock is set {how} after '{after}'{told}: times count on without that"


class ClockSteps:
    """Follows the wall clock of one boot. `by_us`: how far it was set so far."""

    def __init__(self) -> None:
        self.by_us = 0
        self.found: list[ClockStep] = []
        self._last_us: int | None = None
        self._own: tuple[int, int] | None = None
        self._date = b""
        self._recent: list[bytes] = []
        self._told_by = b""  # it explained the last step, and explains no other

    def follow(
        self, outer: Outer, match: re.Match[bytes], host_us: int, own_us: int | None, behind: Iterable[bytes]
    ) -> int:
        """Return the time of a line without what the clock was set by. `host_us`: as written; `own_us`: the kernel's
        own stamp; `behind`: the lines that follow, as they are."""
        message: bytes = match[match.re.groups]
        last, at_us = self._last_us, host_us - self.by_us
        date = outer.date(match)
        if last is not None:
            step, told = self._step(outer, date, (last, at_us, host_us), own_us, message, behind)
            if step:
                self.by_us += step
                by_us = None if outer.dated and date and self._date and follows(self._date, date) is False else step
                self._told_by = told
                self.found.append(ClockStep(by_us, self._recent[-1] if self._recent else b"", told))
                at_us -= step
        self._date = date
        self._last_us = at_us if last is None else max(last, at_us)
        if own_us is not None:
            self._own = (own_us, at_us)
        self._recent = [*self._recent[-BEFORE + 1 :], message]
        return at_us

    def _step(
        self, outer: Outer, date: bytes, times: tuple[int, int, int], own_us: int | None, message: bytes,
        behind: Iterable[bytes],
    ) -> tuple[int, bytes]:  # fmt: skip
        last, at_us, host_us = times
        jump = at_us - last
        if own_us is not None and self._own is not None and own_us >= self._own[0]:
            beyond = at_us - self._own[1] - (own_us - self._own[0])
            back = jump < -BACK_US and beyond < -BACK_US
            return (beyond if back or beyond > FORWARD_US else 0), b""
        far = (date and self._date and follows(self._date, date) is False) or abs(jump) > DAY_US
        if not far and -BACK_US < jump < FORWARD_US:
            return 0, b""
        if not far and jump < 0 and self._is_late(outer, last, behind):
            return 0, b""
        told = self._told(outer, host_us, message, behind)
        if far or jump < 0:
            return jump, told or b""
        said = said_us(told) if told is not None else None
        if told is None or (said is not None and not BACK_US < said <= jump + BACK_US):
            return 0, b""
        return (jump if said is None else min(said, jump)), told

    def _is_late(self, outer: Outer, last: int, behind: Iterable[bytes]) -> bool:
        """Return whether a line merely came late: those behind it are where the clock was."""
        soon = [match for line in behind if (match := outer.regex.match(line))][:2]
        return outer.epoch and any(outer.time(match) - self.by_us >= last for match in soon)

    def _told(self, outer: Outer, host_us: int, message: bytes, behind: Iterable[bytes]) -> bytes | None:
        """Return the message around a jump that says that the clock was set."""
        of_day = host_us % DAY_US
        later: list[bytes] = []
        for line in behind:
            match = outer.regex.match(line)
            if match and not 0 <= outer.time(match) % DAY_US - of_day <= SOON_US:
                break
            later.append(match[match.re.groups] if match else line)
        told = [one for one in (message, *later) if is_set_there(one)]
        told += [one for one in reversed(self._recent) if is_set_there(one, ahead=True)]
        told = [one for one in told if one != self._told_by]
        return next((one for one in told if said_us(one) is not None), told[0] if told else None)
