# SPDX-License-Identifier: Apache-2.0
"""Read what stands before a kernel message: the kernel's own stamp, and around it those of dmesg, journal, syslog and
serial captures. The outer ones are of the host's clock, which is set against the kernel's here, too."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

DAY_US = 86_400_000_000

#: Additions of vendors' kernels: a processor in the stamp (`[    0.000000@0]`, `[    0.000000,0]`), the task after it
#: (` (0)[1:swapper/0]`, ` [0:      swapper:    0] `).
_CPU = rb"(?:[@,]\d{1,3})?"
_TASK = rb"(?: ? ?\(\d{1,3}\)\[\d{1,10}:[^\]\[]{1,24}\]| \[\d{1,3}:[^\]\[:]{1,24}: *\d{1,10}\])?"
#: `<6>[    3.524393][   T25] message`: seconds, fraction, caller, message. Level and caller are optional.
KERNEL = re.compile(
    rb"(?:<\d{1,4}>)?\[ *(\d{1,9})\.(\d{1,9})" + _CPU + rb"\](?:\[ *([TC]\d+)\])?" + _TASK + rb"[ ]?(.*)", re.S
)
#: A stamp with the time since the message before: dmesg -d, and show_delta of old kernels.
DELTA = re.compile(
    rb"(?:<\d{1,4}>)?\[ *(\d{1,9})\.(\d{1,9}) *+< *+\d*+\.?+\d*+ *+>\](?:\[ *([TC]\d+)\])?[ ]?(.*)", re.S
)
#: A stamp inside a line: two lines were joined.
INNER = re.compile(
    rb"(?:<\d{1,4}>)?\[ {0,4}\d{1,6}\.\d{6}(?:[@,]\d{1,3})?(?: *< *\d+\.\d{6} *>)?\](?:\[ *[TC]\d+\])? ?(?=\S)"
)


def strip_stamp(line: bytes) -> bytes:
    """Return a line without the kernel's own stamp."""
    match = KERNEL.match(line)
    message: bytes = match[4] if match else line
    return message


_CLOCK = rb"(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
_IDENT = rb"(\S+) ([\w.@+/\\-]+(?:\[\d+\]|\(\w+\))*): ?(.*)"


def micros(seconds: bytes, fraction: bytes) -> int:
    """Return `12`, `345` as 12345000 µs. Digits beyond microseconds are cut."""
    if len(fraction) == 6:
        return int(seconds) * 1_000_000 + int(fraction)
    return int(seconds) * 1_000_000 + int(fraction[:6].ljust(6, b"0"))


def _of_day(groups: Sequence[bytes | None]) -> int:
    hours, minutes, seconds, fraction = groups
    return (int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)) * 1_000_000 + (
        int(fraction[:6].ljust(6, b"0")) if fraction else 0
    )


def _day_number(year: int, month: int, day: int) -> int:
    try:
        return datetime.date(year, month, day).toordinal()
    except ValueError:
        return 719_163  # 1970


def _iso(match: re.Match[bytes]) -> int:
    year, month, day = (int(match[n]) for n in (1, 2, 3))
    zone = match[8]
    shift = 0
    if zone and zone not in (b"Z", b"z"):
        digits = zone[1:].replace(b":", b"")
        shift = (int(digits[:2]) * 60 + int(digits[2:4] or b"0")) * (-1 if zone[:1] == b"-" else 1)
    days = _day_number(year, month, day) - 719_163
    return days * DAY_US + _of_day(match.group(4, 5, 6, 7)) - shift * 60_000_000


def _month_day(match: re.Match[bytes]) -> int:
    # Month names come in every language, so days are counted as they change, by the reader (Outer.wraps).
    return _of_day(match.group(2, 3, 4, 5))


@dataclass(frozen=True)
class Outer:
    """A prefix around the kernel's own. `rest_groups`: host, identifier and rest, or only the rest. `epoch`: counts
    from 1970.
    `wraps`: the time of day only; `dated`: group 1 has its date. `kernel_clock`: it is the kernel's clock itself."""

    name: str
    regex: re.Pattern[bytes]
    time: Callable[[re.Match[bytes]], int]
    identified: bool = False
    epoch: bool = False
    wraps: bool = False
    kernel_clock: bool = False
    dated: bool = False

    @property
    def on_wall_clock(self) -> bool:
        """Return whether a running system wrote it by its own clock, which may be set."""
        return self.identified and not self.kernel_clock

    def date(self, match: re.Match[bytes]) -> bytes:
        """Return the date of a line as it is written; empty where only its time is."""
        text: bytes = match[1] if self.dated else b""
        return text


def with_who_said_it(match: re.Match[bytes], message: bytes) -> tuple[bytes, bool]:
    """Return a message of a journal, whose prefix matched, with its program's name before it, but the kernel's as it
    is. The second value tells whether it is a program's."""
    ident: bytes = match[match.re.groups - 1]
    return (message, False) if ident.startswith(b"kernel") else (ident + b": " + message, True)


def _plain(sec: int, frac: int) -> Callable[[re.Match[bytes]], int]:
    return lambda match: micros(match[sec], match[frac])


_PRIORITY = rb"(?:<\d{1,3}>)?"
_LEVELS = (
    rb"(?:kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|security|ntp|local[0-7])"
    rb"\.(?:emerg|panic|alert|crit|err|error|warn|warning|notice|info|debug) "
)
_ISO = rb"(\d{4})-(\d\d)-(\d\d)[T ]" + _CLOCK + rb" ?(Z|[+-]\d\d:?\d\d)?"
_MONTH = (
    rb"(?:[A-Za-z\x80-\xff]{2,5}\.? +)?([A-Za-z\x80-\xff]{3,5}\.? {1,2}\d{1,2}|\d{4}-\d\d-\d\d) "
    + _CLOCK
    + rb"(?: [A-Z]{2,5})?"
)

#: Most telling first. dmesg's wall clock has a resolution of a second, like the journal's default.
OUTERS: tuple[Outer, ...] = (
    Outer("grabserial", re.compile(rb"\[ *(\d+)\.(\d{6}) +\d+\.\d{6}\] ?(.*)", re.S), _plain(1, 2)),
    Outer(
        "grabserial with the host's clock",
        re.compile(rb"\[" + _CLOCK + rb"(?: +-?\d+\.\d{6})?\] ?(.*)", re.S),
        lambda m: _of_day(m.group(1, 2, 3, 4)),
        wraps=True,
    ),
    Outer(
        "journal (short-monotonic)",
        re.compile(rb"\[ *(\d+)\.(\d{6})(?: *<[ \d.]*>)?\] " + _IDENT, re.S),
        _plain(1, 2),
        identified=True,
        kernel_clock=True,
    ),
    Outer(
        "syslog (RFC 5424)",
        re.compile(
            _PRIORITY + rb"1 " + _ISO + rb" (\S+) (\S+) \S+ \S+ (?:-|\[[^\]]{0,400}\]) ?(?:\xef\xbb\xbf)? ?(.*)", re.S
        ),
        _iso,
        identified=True,
        epoch=True,
    ),
    Outer(
        "syslog (BusyBox)",
        re.compile(
            _PRIORITY
            + rb"(?:[A-Z][a-z]{2} )?([A-Z][a-z]{2} {1,2}\d{1,2}) "
            + _CLOCK
            + rb"(?: \d{4})? (?:([^\s.]+) )?"
            + _LEVELS
            + rb"([\w.@+/\\-]+(?:\[\d+\]|\(\w+\))*): ?(.*)",
            re.S,
        ),
        _month_day,
        identified=True,
        wraps=True,
        dated=True,
    ),
    Outer(
        "journal (short-iso)", re.compile(_PRIORITY + _ISO + rb" " + _IDENT, re.S), _iso, identified=True, epoch=True
    ),
    Outer(
        "journal (short-unix)",
        re.compile(rb"(\d{9,10})\.(\d{6}) " + _IDENT, re.S),
        _plain(1, 2),
        identified=True,
        epoch=True,
    ),
    Outer(
        "journal or syslog (short)",
        re.compile(_PRIORITY + _MONTH + rb" " + _IDENT, re.S),
        _month_day,
        identified=True,
        wraps=True,
        dated=True,
    ),
    Outer("container log", re.compile(_ISO + rb" std(?:out|err) [FP] (.*)", re.S), _iso, epoch=True),
    Outer("dmesg (iso)", re.compile(_ISO + rb" ?(.*)", re.S), _iso, epoch=True),
    Outer("serial capture (iso)", re.compile(rb"\[" + _ISO + rb"\] ?(.*)", re.S), _iso, epoch=True),
    Outer(
        "dmesg -T",
        re.compile(
            rb"\[(?:[A-Za-z\x80-\xff]{2,5}\.? +)?([A-Za-z\x80-\xff]{3,5}\.? +\d{1,2}) "
            + _CLOCK
            + rb"(?: \d{4})?\] ?(.*)",
            re.S,
        ),
        _month_day,
        wraps=True,
    ),
    Outer(
        "LAVA",
        re.compile(rb'- \{"dt": "' + _ISO + rb'", "lvl": "[a-z]{1,16}", "msg": "(.*?)"\}?\s*\Z', re.S),
        _iso,
        epoch=True,
    ),
    Outer("serial capture (ts)", re.compile(_MONTH + rb" (.*)", re.S), _month_day, wraps=True),
    Outer("serial capture (unix)", re.compile(rb"\[?(\d{9,10})\.(\d{3,9})\]? (.*)", re.S), _plain(1, 2), epoch=True),
    Outer(
        "serial capture (time of day)",
        re.compile(_CLOCK + rb"[ \t>|:-]+(.*)", re.S),
        lambda m: _of_day(m.group(1, 2, 3, 4)),
        wraps=True,
    ),
)

#: /dev/kmsg: priority, sequence, microseconds, flags; message.
KMSG = re.compile(rb"\d{1,5},\d+,(\d+),[^;]{0,200};(.*)", re.S)
#: dmesg -x.
DECODED = re.compile(rb"[a-z0-9]{2,9} *:[a-z]{3,7} *: ")
#: dmesg -e and -H: the time of day, then differences. dmesg -td: differences only.
RELATIVE = re.compile(rb"\[ *\+(\d+)\.(\d+)\] ?(.*)|\[< *(\d+)\.(\d+)>\] ?(.*)", re.S)
RELATIVE_START = re.compile(rb"\[[A-Za-z\x80-\xff]{3,5}\.? ?\d{1,2} \d\d:\d\d\] (.*)", re.S)
#: Warning for a log that shows the time of day later on.
MINUTE_LOST = (
    "dmesg -e and -H print a minute in place of a difference whenever the minute changes: up to a minute is missing "
    "there, and what lies across it is longer than it says"
)


def detect_outer(lines: Sequence[bytes]) -> Outer | None:
    """Return the prefix that most lines have, if a fair part of them has one. A less telling one matches nearly every
    line that a more telling one does. It must match many more, since a line or two of another program are not
    enough."""
    filled = [line for line in lines if line.strip()]
    need = max(2, len(filled) // 5)
    best: tuple[int, Outer] | None = None
    for outer in OUTERS:
        matches = [m for m in (outer.regex.match(line) for line in filled) if m]
        if outer.identified and matches:
            alike = Counter(m[m.re.groups - 2] for m in matches).most_common(1)[0][1]
            known = any(m[m.re.groups - 1].startswith((b"kernel", b"systemd", b"klogd")) for m in matches)
            # A file of syslog may begin with anything, but then it is nothing else, of one machine.
            nothing_else = len(filled) > 2 and alike * 10 >= 7 * len(filled)
            if alike * 2 < len(matches) or not (known or nothing_else):
                continue
        if len(matches) >= need and (best is None or 2 * len(matches) > 3 * best[0]):
            best = (len(matches), outer)
    return best[1] if best else None


def name_of(outer: Outer | None, kmsg: bool, delta: bool) -> str:
    """Return the name of a kernel log of that shape."""
    if outer:
        return f"kernel log, {outer.name}"
    if kmsg:
        return "kernel log, /dev/kmsg"
    return "kernel log, show_delta or dmesg -d" if delta else "kernel log"


def whole_seconds(outer: Outer | None, lines: Sequence[bytes]) -> bool:
    """Return whether a prefix on the clock of the host never says more than the second."""
    if outer is None or outer.kernel_clock:
        return False
    return not any(outer.time(match) % 1_000_000 for line in lines if (match := outer.regex.match(line)))


def has_stamps(lines: Sequence[bytes]) -> int:
    """Count the lines that begin with the kernel's own stamp, in any of its shapes."""
    return sum(1 for line in lines if KERNEL.match(line) or DELTA.match(line) or KMSG.match(line))


def constant_prefix(lines: Sequence[bytes]) -> bytes:
    """Return what a capturing program put before the stamp on most lines, such as `[info] `. Empty when nothing."""
    found = Counter(line[: match.start()] for line in lines if (match := INNER.search(line)) and match.start() < 80)
    if not found:
        return b""
    prefix, count = found.most_common(1)[0]
    return prefix if count >= 3 and count * 2 > sum(found.values()) else b""


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
        self._date = b""
        self._last = self._before_reset = 0
        self.resets: list[int] = []

    def read(self, outer: Outer, match: re.Match[bytes]) -> int:
        """Return the microseconds of an outer stamp. Days are counted where it has none."""
        value = outer.time(match)
        if outer.wraps:
            date = outer.date(match)
            if outer.dated and self._date:
                self._days += date != self._date
            elif self._last_of_day is not None and value < self._last_of_day - DAY_US // 2:
                self._days += 1
            self._date = date
            self._last_of_day = value
            value += self._days * DAY_US
        elif not outer.epoch and not outer.kernel_clock:
            # It counts from the capture's start, or from a line with a pattern that it was told: there it is set to 0.
            if value + self._before_reset < self._last - RESET_US:
                self._before_reset = self._last
                self.resets.append(self._last)
            value += self._before_reset
            self._last = max(self._last, value)
        return value

    def kernel_us(self, outer: Outer, host_us: int, own_us: int | None, message: bytes, first: bool) -> int | None:
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
