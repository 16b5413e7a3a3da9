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
#: A line that goes on grows to this, and no further.
MOST_JOINED = 16_384

#: Additions of vendors' kernels to the stamp: a processor (`[    0.000000@0]`, `[    0.000000,0]`), the unit
#: (`0.000000s`), the machine's clock (`0.000000 / 01-01 00:00:00.000`). Those behind it are learned (prefixes.py).
_ADDED = rb"(?:[@,]\d{1,3}|s| ?/ ?[\d:. -]{8,32})?"
#: `<6>[    3.524393][   T25] message`: seconds, fraction, caller, message. Level and caller are optional.
KERNEL = re.compile(rb"(?:<\d{1,4}>)?\[ *(\d{1,9})\.(\d{1,9})" + _ADDED + rb"\](?:\[ *([TC]\d+)\])?[ ]?(.*)", re.S)
#: A stamp with the time since the message before: dmesg -d, and show_delta of old kernels.
DELTA = re.compile(
    rb"(?:<\d{1,4}>)?\[ *(\d{1,9})\.(\d{1,9}) *+< *+\d*+\.?+\d*+ *+>\](?:\[ *([TC]\d+)\])?[ ]?(.*)", re.S
)
#: The time since the message before, as such a stamp prints it.
SINCE_BEFORE = re.compile(rb"(?:<\d{1,4}>)?\[ *\d{1,9}\.\d{1,9} *+< *+(\d{1,9})\.(\d{1,9}) *+>\]")
#: A stamp inside a line: two lines were joined.
INNER = re.compile(
    rb"(?:<\d{1,4}>)?\[ {0,4}\d{1,6}\.\d{6}" + _ADDED + rb"(?: *< *\d+\.\d{6} *>)?\](?:\[ *[TC]\d+\])? ?(?=\S)"
)
#: Beginnings of messages that a kernel, a loader or a service manager says, and hardly anybody else.
TELLING = re.compile(
    rb"Linux version \d|Booting Linux |Kernel command line: |Command line: |BIOS-provided physical RAM map"
    rb"|Run /\S{1,100} as init|Freeing unused kernel |Freeing init memory|Machine model: |Switched to clocksource "
    rb"|clocksource: Switched to |calling  ?[\w.]{1,100}\+0x|initcall [\w.]{1,100}\+0x|systemd\[1\]: "
    rb"|U-Boot (?:SPL )?\d{4}\.|SeaBIOS \(version "
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
    # Names of months come in every language: days are counted as the text of a date changes (Outer.wraps).
    return _of_day(match.group(2, 3, 4, 5))


@dataclass(frozen=True)
class Outer:
    """A prefix around the kernel's own. `rest_groups`: host, identifier and rest, or only the rest. `epoch`: counts
    from 1970.
    `wraps`: the time of day only; `dated`: group 1 has its date. `kernel_clock`: it is the kernel's clock itself.
    `goes_on`: a line that goes on with the one before, in group 1."""

    name: str
    regex: re.Pattern[bytes]
    time: Callable[[re.Match[bytes]], int]
    identified: bool = False
    epoch: bool = False
    wraps: bool = False
    kernel_clock: bool = False
    dated: bool = False
    goes_on: re.Pattern[bytes] | None = None

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
    kernels = ident.startswith(b"kernel") or (ident.startswith(b"klogd") and KERNEL.match(message) is not None)
    return (message, False) if kernels else (ident + b": " + message, True)


def _plain(sec: int, frac: int) -> Callable[[re.Match[bytes]], int]:
    return lambda match: micros(match[sec], match[frac])


_PRIORITY = rb"(?:<\d{1,3}>)?"
_LEVELS = (
    rb"(?:kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|security|ntp|local[0-7])"
    rb"\.(?:emerg|panic|alert|crit|err|error|warn|warning|notice|info|debug) "
)
_ISO = rb"(\d{4})-(\d\d)-(\d\d)[T ]" + _CLOCK + rb" ?(Z|[+-]\d\d:?\d\d)?"
#: A day in any language, before a time: it ends with its number (`Mar  6`, `Fri 2026-03-06`, `11月 06`, `de març 06`),
#: or begins with it (`06 Mar 2026`), or is of numbers alone.
_DAY = (
    rb" ?((?:\d{1,2}-?)?[A-Za-z\x80-\xff][^\[\]<>:|=\n]{0,60}[^\d\[\]<>:|=\n]\d{1,2}"
    rb"|\d{1,2}\.? [A-Za-z\x80-\xff][^\d\[\]<>:|=\n]{1,40}(?: \d{4})?|\d{1,4}(?:[./-]\d{1,4}){1,2})"
)
_MONTH = _DAY + rb" {1,2}" + _CLOCK + rb"(?: (?:[A-Z]{2,5}|[+-]\d{2,4}))?"

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
    Outer(
        "GitLab job",
        re.compile(_ISO + rb" [0-9a-f]{2}[OE][+ ](.*)", re.S),
        _iso,
        epoch=True,
        goes_on=re.compile(rb"\S{20,40} [0-9a-f]{2}[OE]\+(.*)", re.S),
    ),
    Outer("container log", re.compile(_ISO + rb" std(?:out|err) [FP] (.*)", re.S), _iso, epoch=True),
    Outer("dmesg (iso)", re.compile(_ISO + rb" ?(.*)", re.S), _iso, epoch=True),
    Outer("serial capture (iso)", re.compile(rb"\[" + _ISO + rb"\] ?(.*)", re.S), _iso, epoch=True),
    Outer(
        "dmesg -T",
        re.compile(rb"\[" + _DAY + rb" {1,2}" + _CLOCK + rb"(?: \d{4})?\] ?(.*)", re.S),
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
RELATIVE_START = re.compile(rb"\[" + _DAY + rb" \d\d:\d\d\] (.*)", re.S)
#: Shapes of the kernel's own stamps, without those of dates.
_OWN = (KERNEL, DELTA, KMSG, RELATIVE, re.compile(DECODED.pattern + rb"\[ *\d{1,9}\.\d{6}"))
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
            # A file of syslog may begin with anything, but then it is nothing else, of one machine. Whoever captures a
            # console writes the kernel's messages under another name.
            spoken = sum(1 for m in matches if is_spoken(m[m.re.groups]))
            named = Counter(m[m.re.groups - 1].partition(b"[")[0] for m in matches).most_common(1)[0][1]
            captured = spoken * 10 > len(matches) or (spoken > 0 and named * 10 >= 7 * len(matches))
            # Behind a stamp of the kernel's clock, `usb 1-1: …` is a message.
            nothing_else = len(filled) > 2 and alike * 10 >= 7 * len(filled) and not (captured or outer.kernel_clock)
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
    return sum(1 for line in lines if any(shape.match(line) for shape in _OWN))


def is_spoken(line: bytes) -> bool:
    """Return whether a line begins as one of a console does: with the kernel's own stamp, or with words of its own."""
    return bool(INNER.match(line) or TELLING.match(line))


class WholeLines:
    """Puts lines together that a capture wrote in pieces, where its prefix marks those that go on."""

    def __init__(self, outer: Outer | None) -> None:
        self._goes_on = outer.goes_on if outer else None
        self._held: list[bytes] = []

    def joined(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Return whole lines. The last is held back, for it may go on."""
        if self._goes_on is None:
            return lines
        whole = self._held
        for line in lines:
            match = self._goes_on.match(line)
            if match and whole and len(whole[-1]) < MOST_JOINED:
                whole[-1] += match[1]
            else:
                whole.append(line)
        self._held = whole[-1:]
        return whole[:-1]

    def rest(self) -> Sequence[bytes]:
        """Return the line that was held back."""
        held, self._held = self._held, []
        return held


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
