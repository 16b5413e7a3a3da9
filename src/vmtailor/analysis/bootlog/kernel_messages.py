# SPDX-License-Identifier: Apache-2.0
"""Kernel logs in all their shapes, read as a stream: one line in memory, a row for each initcall and probe."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from itertools import chain, islice
from typing import Any

from vmtailor.analysis.bootlog import milestones, prefixes, stamps
from vmtailor.analysis.bootlog.boot_record import (
    LATE_US,
    MAX_MESSAGES,
    MAX_TEXT,
    RESOLVED_US,
    Observed,
)
from vmtailor.analysis.bootlog.clock_steps import BEHIND, ClockSteps
from vmtailor.analysis.bootlog.initcall_lines import (
    CALLING,
    LEVEL,
    PROBE,
    QUICK,
    QUICK_CALL,
    QUICK_RETURN,
    RETURNED,
    RETURNED_CUT,
    CallTracker,
    broken,
    ends_within,
)
from vmtailor.analysis.bootlog.log_lines import Cleaner, Content, decode
from vmtailor.analysis.bootlog.milestones import HANDLERS
from vmtailor.analysis.bootlog.recurrences import RELAYED, Recurrence, RecurrenceVerdict
from vmtailor.analysis.bootlog.silences import MIN_GAP_US, Silences
from vmtailor.base.text import plural
from vmtailor.model.boots.timeline import WarningCode

#: Lines looked at to recognise the shape.
SAMPLE_LINES = 600
#: After so many lines a journal's offset from the kernel's clock is known well enough.
SETTLED_LINES = 1000
#: Mail programs wrap lines that are as long, their stamp apart.
WRAPPED_FROM = 40


#: First words that begin something this reader knows.
_TELLING = frozenset({*HANDLERS, b"calling", b"Calling", b"initcall", b"probe", b"entering", b"cloud-init"})


#: Attributes of a KernelLog that each boot has for itself.
_OF_A_BOOT = (
    "observed", "_calls", "_gaps", "_last_us", "_last_line", "_wrapped", "_soft", "_clock", "_steps", "_relative_us",
    "_handed_over", "_damaged", "_backwards", "_doubts", "_shift_us", "_copy_us", "_direct_us", "_early", "_coarse",
    "_rough_before", "_owned", "_full", "_slow",
)  # fmt: skip
#: Recurrences that are looked into, of one boot.
MOST_DOUBTS = 64
#: Steps of a wall clock that are named.
MOST_STEPS = 5
#: A printed difference is believed that is so much shorter than that of the stamps: lines between were left out.
LEFT_OUT_US = 1000
#: A stamp that is so much earlier than the latest is worth a warning.
STRAY_US = 100_000


class KernelLog:
    """Reads lines of one kernel log. `sample` is its beginning; `boot` chooses among several in one file: 1 the first,
    0 the last."""

    def __init__(self, path: str, sample: Sequence[bytes], boot: int = 0, *, merged: bool = False) -> None:
        self._path = path
        self._boot = boot
        layers = prefixes.layers_of(sample)
        self._outer, self._before_all, self._between, self._field = (
            layers.outer, layers.before, layers.between, layers.field
        )  # fmt: skip
        sample = [prefixes.without(self._before_all, line) for line in sample[:SAMPLE_LINES]]
        self._seconds = stamps.whole_seconds(self._outer, sample)
        self._whole_lines = stamps.WholeLines(self._outer)
        self._delta = sum(1 for line in sample if stamps.DELTA.match(line)) > len(sample) // 5
        self._kmsg = sum(1 for line in sample if stamps.KMSG.match(line)) > len(sample) // 5
        self._decoded = sum(1 for line in sample if stamps.DECODED.match(line)) > len(sample) // 5
        self._relative = sum(1 for line in sample if stamps.RELATIVE.match(line)) > len(sample) // 5
        #: Lines of several writers: a stamp that is earlier than the one before is no wonder.
        self._merged = merged or (self._outer is not None and self._outer.identified)
        self.boots = 0
        #: The lines on the clock of a running system, which may be set: those to come are known.
        self._wall = self._outer is not None and self._outer.on_wall_clock
        self._window: deque[bytes] = deque()
        self._recurrence: Recurrence | None = None  # a beginning that is in doubt; the boot before it is set aside
        self._aside: dict[str, Any] = {}
        self._raw = b""  # the line that is read
        self._settling = False  # lines are read again whose doubt is over
        self._short = False  # stamps with fewer digits than the kernel's
        self._before: Observed | None = None
        self._kept: Observed | None = None
        self._begin()

    def _begin(self) -> None:
        self.observed = Observed(self._path, stamps.name_of(self._outer, self._kmsg, self._delta), kernel_log=True)
        self._calls = CallTracker(self.observed)
        self._gaps = Silences()
        self._last_us: int | None = None
        self._last_line = b""
        self._wrapped = b""
        self._soft = b""
        self._clock = stamps.HostClock()
        self._steps = ClockSteps()
        self._relative_us = 0
        self._told_us = 0  # since the message before, as the line itself says
        self._handed_over = False
        self._damaged = 0
        self._backwards = 0
        self._doubts = 0
        self._shift_us = 0  # the clock was set back by so much
        self._copy_us: int | None = None  # lines that were there before come again: how far they have come
        self._direct_us: int | None = None  # the latest stamp that came without a prefix of the system log
        self._slow = False  # the short ways do not apply
        self._early: list[tuple[int, bytes]] = []
        self._coarse = self._seconds
        self._rough_before = self._owned = False
        self._full = False

    def feed(self, lines: Sequence[bytes]) -> None:
        """Read lines. The plain shape takes the short way: this loop is what a 100 MB log spends its time in."""
        if self._before_all is not None:
            lines = [prefixes.without(self._before_all, line) for line in lines]
        self._feed(self._whole_lines.joined(lines))

    def _feed(self, lines: Sequence[bytes]) -> None:
        if self._wall:
            for line in lines:
                self._window.append(line)
                if len(self._window) > BEHIND:
                    self._take(self._window.popleft())
            return
        if self._outer or self._delta or self._kmsg or self._decoded or self._relative:
            for line in lines:
                self._take(line)
            return
        step, plain, pair, take = self._step, self._plain, self._pair, self._take
        paired = False
        for line, following in zip(lines, chain(islice(lines, 1, None), (b"",)), strict=False):
            if paired:
                paired = False
            elif self._recurrence is not None:
                take(line)
            elif pair(line, following):
                paired = True
            elif not step(line):
                self._raw = line
                plain(line)

    def _take(self, line: bytes) -> None:
        """Read one line, and judge a beginning that is in doubt by it."""
        doubt = self._recurrence
        if doubt is not None:
            doubt.lines.append(line)
        self._read(line)
        if doubt is not None and doubt is self._recurrence:
            self._settle(doubt.verdict(self.observed))

    def _read(self, line: bytes) -> None:
        self._raw = line
        if self._outer or self._delta or self._kmsg or self._decoded or self._relative:
            self._line(line)
        else:
            self._plain(line)

    def _doubt(self, *, firmware: bool = False, unstamped: bool = False) -> None:
        """Set aside what was read so far: another boot may begin with this line, or something else recurs."""
        doubt = Recurrence(self.observed, self._last_us, firmware=firmware, unstamped=unstamped)
        self._doubts += 1
        self._aside = {name: getattr(self, name) for name in _OF_A_BOOT}
        self._begin()
        self._slow = True
        self._recurrence = doubt
        doubt.lines.append(self._raw)

    def _settle(self, verdict: RecurrenceVerdict) -> None:
        """End a doubt, if there is a verdict."""
        doubt = self._recurrence
        if doubt is None or verdict is RecurrenceVerdict.OPEN:
            return
        self._recurrence = None
        since = {name: getattr(self, name) for name in _OF_A_BOOT}
        vars(self).update(self._aside)
        self._aside = {}
        if verdict is RecurrenceVerdict.BOOT:
            self._next_boot()
            vars(self).update(since)
            self._slow = False
            return
        if verdict is RecurrenceVerdict.COPY:
            self._copy_us = 0
        elif verdict is RecurrenceVerdict.STEP and self._last_us is not None and doubt.first_us is not None:
            self._set_back(self._last_us, doubt.first_us)
        self._slow = bool(self._shift_us) or self._copy_us is not None
        self._settling = True
        for line in doubt.lines:
            self._read(line)
        self._settling = False

    def _set_back(self, last_us: int, at_us: int) -> None:
        self.observed.warn(
            WarningCode.CLOCK_BACKWARDS,
            f"the clock goes back from {last_us / 1e6:.6f} s to {(at_us + self._shift_us) / 1e6:.6f} s, and goes on "
            "from there: what follows is counted on from the later moment",
        )
        self._shift_us += last_us - at_us

    def _pair(self, line: bytes, following: bytes) -> bool:
        """Take two lines that are one call, begun and returned, as `_step` takes each. False leaves all as it was."""
        if self._slow:
            return False
        last = self._last_us
        begun = QUICK_CALL.match(line)
        ended = QUICK_RETURN.match(following) if begun is not None and last is not None and not self._wrapped else None
        if begun is None or ended is None or last is None:
            return False
        seconds, fraction, name, module, task = begun.groups()
        end_seconds, end_fraction, end_name, end_module, result, after = ended.groups()
        start_us, end_us = int(seconds + fraction), int(end_seconds + end_fraction)
        same = name == end_name and module == end_module
        if not same or not 0 <= start_us - last < MIN_GAP_US or not 0 <= end_us - start_us < MIN_GAP_US:
            return False
        self._last_us, self._last_line = end_us, following
        observed, characters = self.observed, len(line) + 2
        observed.prints(start_us)
        observed.characters += characters
        observed.prints(end_us)
        observed.lines += 2
        observed.characters += len(following) + 2
        self._calls.whole(name, module, start_us, end_us, characters, int(task), int(result), int(after))
        return True

    def _step(self, line: bytes) -> bool:
        """Take a line that is like most: whole, stamped soon after the one before, an initcall's or of no meaning here.

        False leaves everything as it was, for the long way."""
        last = self._last_us
        if last is None or self._wrapped or self._slow:
            return False
        found = QUICK.match(line)
        if found is not None:
            seconds, fraction, name, module, task, ended, of, result, after = found.groups()
        else:
            plain = stamps.KERNEL.match(line) if self._full else None
            if plain is None:
                return False
            seconds, fraction, _, message = plain.groups()
            if self._field is not None:
                message = prefixes.without(self._field, message)
            word = message.partition(b" ")[0]
            if len(fraction) != 6 or word in _TELLING or b"[ " in message or message.endswith((b"login:", b"login: ")):
                return False
            name = ended = None
        at_us = int(seconds) * 1_000_000 + int(fraction)
        if not 0 <= at_us - last < MIN_GAP_US:
            return False
        self._last_us = at_us
        self._last_line = line
        observed, before = self.observed, self.observed.characters
        observed.prints(at_us)
        observed.lines += 1
        observed.characters = before + len(line) + 2
        if name is not None:
            self._calls.begin(name, module, at_us, before, int(task))
        elif ended is not None:
            self._calls.end(ended, of, at_us, before, int(result), int(after))
        return True

    def _plain(self, line: bytes) -> None:
        found = stamps.KERNEL.match(line)
        if found is None:
            self._bare(line)
        else:
            seconds, fraction, caller, message = found.groups()
            self._short = self._short or len(fraction) < 6
            if self._field is not None:
                message = prefixes.without(self._field, message)
            self._message(stamps.micros(seconds, fraction) + self._shift_us, caller, message, len(line))

    def _line(self, line: bytes) -> None:
        host_us, match, others = None, None, False
        outer = self._outer
        if outer is not None:
            match = outer.regex.match(line)
            if match is None and self._is_journals(line):
                return
            if match:
                line = match[match.re.groups]
                if outer.identified and self._settled and self._clock.offset_us is not None and self._step(line):
                    return  # the kernel's own stamp says all, and the offset is long known
                host_us = self._clock.read(outer, match)
                line, others = self._said(outer, match, line)
        if self._decoded:
            decoded = stamps.DECODED.match(line)
            line = line[decoded.end() :] if decoded else line
        at_us, caller, message = self._own_stamp(line)
        if at_us is not None and self._wall and self._is_said_again(at_us, direct=match is None, others=others):
            return
        if self._begins_anew(at_us, message) and outer is not None and match:
            host_us = self._clock.read(outer, match)
        if host_us is not None and outer is not None and match:
            at_us = self._placed(outer, match, host_us, at_us, message)
        if at_us is not None:
            self._message(at_us, caller, message, len(line))
            self.observed.not_printed(len(line) + 2 if others else 0)
        elif host_us is None:
            self._bare(message)
        else:
            self._before_kernel(host_us, message)

    def _said(self, outer: stamps.Outer, match: re.Match[bytes], line: bytes) -> tuple[bytes, bool]:
        """Return a message behind the host's stamp, and whether it is a program's."""
        if outer.identified:
            return stamps.with_who_said_it(match, line)
        return prefixes.without(self._between, line), False

    def _is_journals(self, line: bytes) -> bool:
        """Return whether the journal itself says this: its catalogue explains a message, or another boot follows."""
        if not self._wall or not line.startswith(b"-- "):
            return False
        self.observed.closing = self.observed.closing or line.startswith((b"-- Reboot --", b"-- Boot "))
        return True

    def _is_said_again(self, at_us: int, *, direct: bool, others: bool) -> bool:
        """Return whether the system log says again what the kernel said on the console itself (`direct`)."""
        if direct:
            self._direct_us = max(self._direct_us or 0, at_us)
            self._owned = True
            return False
        return self._direct_us is not None and at_us <= self._direct_us and not others

    def _placed(
        self, outer: stamps.Outer, match: re.Match[bytes], host_us: int, own_us: int | None, message: bytes
    ) -> int | None:
        """Return the moment of a line with a stamp of the host's, on the kernel's clock, where something tells it."""
        if self._wall:
            host_us = self._steps.follow(outer, match, host_us, own_us, self._window)
        if not outer.kernel_clock and self._loading(message):
            own_us = None  # the loader has a clock of its own
        self.observed.rough = self._seconds and own_us is None
        self._owned = self._owned or own_us is not None
        self._coarse = self._coarse and self.observed.rough
        return self._clock.kernel_us(outer, host_us, own_us, message, self._last_us is None)

    def _begins_anew(self, at_us: int | None, message: bytes) -> bool:
        """Return whether a boot begins here that earlier lines are no part of. Those lines are set aside."""
        if at_us is None and self._may_doubt and milestones.looks_reset(self.observed, message):
            self._doubt(firmware=True)
        elif at_us is None and self._marked_boot(message):
            self._next_boot()
        elif self._clock.assumed and (at_us is not None or milestones.starts_kernel(message)):
            (self._next_boot if self.observed.kernel_seen else self._begin)()
        else:
            return False
        return True

    @property
    def _may_doubt(self) -> bool:
        return self._recurrence is None and not self._settling and self._doubts < MOST_DOUBTS

    def _marked_boot(self, message: bytes) -> bool:
        """Return whether a journal without the kernel's stamps comes to another boot: the kernel says its first line
        again, after the machine went down, or it is another kernel."""
        observed = self.observed
        if self._outer is None or not self._outer.identified or not milestones.looks_second(observed, message):
            return False
        return observed.closing or milestones.version_of(message) != observed.version

    def _before_kernel(self, host_us: int, message: bytes) -> None:
        """Note a line of which only the host's time is known."""
        self.observed.loader = self.observed.loader or milestones.is_loader(message)
        self._handed_over = self._handed_over or milestones.is_handover(message)
        if len(self._early) < MAX_MESSAGES:
            self._early.append((host_us, message))

    def _loading(self, message: bytes) -> bool:
        """Return whether a line with a stamp of its own is still the loader's."""
        observed = self.observed
        return (
            observed.loader
            and not self._handed_over
            and not observed.kernel_seen
            and not milestones.starts_kernel(message)
        )

    def _loader_over(self) -> None:
        """End the loader's part: what was read so far is on the loader's clock, and ends where the kernel's clock
        begins."""
        loader, first, last, gaps = self.observed, self.observed.first_us, self._last_us, self._gaps
        self._begin()
        self._handed_over = True
        if first is not None and last is not None:
            milestones.place_loader(self.observed, loader, first, last)
            self._gaps = gaps.moved(-last)

    @property
    def _settled(self) -> bool:
        return self.observed.lines > SETTLED_LINES

    def _own_stamp(self, line: bytes) -> tuple[int | None, bytes | None, bytes]:
        if self._kmsg:
            record = stamps.KMSG.match(line)
            if record:
                return int(record[1][:15]) + self._shift_us, None, record[2]
        since = stamps.SINCE_BEFORE.match(line) if self._delta else None
        self._told_us = stamps.micros(since[1], since[2]) if since else 0
        match = stamps.KERNEL.match(line) or stamps.DELTA.match(line)
        if match:
            return stamps.micros(match[1], match[2]) + self._shift_us, match[3], prefixes.without(self._field, match[4])
        relative = stamps.RELATIVE.match(line)
        if relative:
            seconds, fraction, rest = relative.group(1, 2, 3) if relative[1] else relative.group(4, 5, 6)
            self._relative_us += stamps.micros(seconds, fraction)
            return self._relative_us, None, rest
        start = stamps.RELATIVE_START.match(line) if self._relative else None
        if start:
            if self._relative_us:
                self.observed.warn(WarningCode.CLOCK_JUMPS, stamps.MINUTE_LOST)
            return self._relative_us, None, start[2]
        return None, None, line

    def _bare(self, line: bytes) -> None:
        """Note a line without a stamp: the rest of a wrapped one, a console's own, or one of a log without stamps."""
        if not line.strip():
            return
        if self._wrapped:
            joined, self._wrapped = self._wrapped + b" " + line.strip(), b""
            if RETURNED.match(joined) or PROBE.match(joined) or CALLING.match(joined):
                self._damaged += 1
                self._message(self._last_us, None, joined, len(line), again=True)
                return
        inner = stamps.INNER.search(line) if b"[" in line else None
        if self._soft and self._last_line is self._soft and not inner:
            # A line that a mail program wrapped: a command line, or systemd's sum of phases.
            self._damaged += 1
            self._other(self._last_us, None, self._soft.rstrip() + b" " + line.strip())
            return
        if inner and self._outer is None and RELAYED.search(line[: inner.start()]):
            # The system log shows what the kernel said, on the console where it said it.
            self._relayed(line[inner.start() :])
            return
        if inner:
            self._damaged += 1
            if line[: inner.start()].strip():
                self._message(None, None, line[: inner.start()], inner.start())
            self._line(line[inner.start() :])
            return
        if self._may_doubt and milestones.looks_reset(self.observed, line):
            self._doubt(firmware=True)
        elif self.observed.loader and milestones.is_handover(line):
            self._handed_over = True
        self._message(None, None, line, len(line))

    def _relayed(self, line: bytes) -> None:
        own_us = self._own_stamp(line)[0]
        if own_us is None or self._last_us is None or own_us > self._last_us:
            self._line(line)

    def _message(
        self, at_us: int | None, caller: bytes | None, message: bytes, length: int, again: bool = False
    ) -> None:
        if self._wrapped and not again:
            self._cut_off()
        if not again and self._recurs(at_us, caller, message, length):
            return
        observed = self.observed
        if at_us is not None:
            observed.prints(at_us)
            if observed.pending:
                milestones.take_pending(observed, at_us)
        observed.lines += 1
        before = observed.characters
        observed.characters = before + length + 2
        head = message[:5]
        if head in {b"calli", b"Calli"}:
            match = CALLING.match(message)
            if match:
                self._calls.calling(match, at_us, before)
                self._last_line = message
                return
            self._wrapped = broken(message)
        elif head == b"initc":
            match = RETURNED.match(message)
            if match:
                self._calls.returned(match, at_us, before)
                self._last_line = message
                return
            self._wrapped = broken(message)
        elif head == b"probe":
            match = PROBE.match(message)
            if match:
                self._calls.probe(match, at_us, caller)
                self._last_line = message
                return
            self._wrapped = broken(message)
        self._other(at_us, caller, message)

    def _recurs(self, at_us: int | None, caller: bytes | None, message: bytes, length: int) -> bool:
        """Take the stamp of a line. True where that was all: the line was there before, or was read anew."""
        observed = self.observed
        if at_us is not None:
            loader = self._outer is None and self._last_us is not None and not observed.kernel_seen
            if loader and (observed.loader or self._short) and (self._handed_over or milestones.starts_kernel(message)):
                self._loader_over()
            if self._is_copy(at_us):
                return True
            if not self._moves_on(at_us, message):
                self._again(at_us, caller, message, length)
                return True
        elif self._may_doubt and milestones.looks_second(observed, message):
            self._doubt(unstamped=True)
        if self._recurrence is not None:
            self._recurrence.say(at_us, message)
        return False

    def _again(self, at_us: int, caller: bytes | None, message: bytes, length: int) -> None:
        """Take a line at which the clock goes back so far that a boot may begin, or the one in doubt is none."""
        doubt = self._recurrence
        if doubt is None:
            self._doubt()
            self._message(at_us, caller, message, length)
            return
        raw = doubt.lines.pop() if doubt.lines else self._raw
        self._settle(doubt.at_last(self.observed))
        self._read(raw)

    def _is_copy(self, at_us: int) -> bool:
        """Return whether a line was there before: the log is printed a second time."""
        come = self._copy_us
        if come is None:
            return False
        if self._last_us is None or at_us > self._last_us or at_us < come - milestones.BACKWARDS_US:
            self._copy_us = None
            self._slow = bool(self._shift_us)
            return False
        self._copy_us = max(come, at_us)
        return True

    def _moves_on(self, at_us: int, message: bytes) -> bool:
        """Take the stamp of a line: the latest so far is where a silence begins. False where another boot may begin."""
        last = self._last_us
        if last is None:
            self.observed.first_us = at_us
        elif at_us < last:
            slack = 1_000_000 if self.observed.rough or self._rough_before else STRAY_US
            doubtful = not self._settling and (self._recurrence is not None or self._doubts < MOST_DOUBTS)
            if doubtful and milestones.looks_anew(last, at_us, message, merged=self._merged):
                return False
            self._backwards += last - at_us > slack
            return True
        elif at_us - last >= MIN_GAP_US and not self._starts_late(last, at_us, message):
            rough = self.observed.rough or self._rough_before
            left_out = 0 < self._told_us < at_us - last - LEFT_OUT_US
            begun = (at_us - self._told_us, b"") if left_out else (last, self._last_line)
            self._gaps.note((begun[0], at_us), (begun[1], message), rough=rough)
        self._last_us = at_us
        self._rough_before = self.observed.rough
        return True

    def _starts_late(self, last: int, at_us: int, message: bytes) -> bool:
        """Return whether the clock was set here to what it had counted before the kernel began."""
        observed = self.observed
        if last >= milestones.BEGINNING_US or at_us - last < LATE_US or not observed.first_line_seen:
            return False
        if not milestones.sets_clock(self._last_line, message):
            return False
        observed.clock_from_us, observed.clock_set_us = at_us, last
        return True

    def _other(self, at_us: int | None, caller: bytes | None, message: bytes) -> None:
        observed = self.observed
        self._last_line = message
        if b"ommand line: " in message[:28]:
            self._soft = message if self._last_us is not None and len(message) >= WRAPPED_FROM else b""
        elif b"Startup finished in " in message[:60]:
            self._soft = b"" if milestones.is_whole(decode(message)) or len(message) > MAX_TEXT else message
        if message[:1] in b" Ws":
            milestones.switches_root(observed, at_us, message)
        handler = milestones.handler_of(message)
        if handler is not None:
            handler(observed, at_us, message)
        elif milestones.mark_ending(observed, at_us, message):
            if at_us is None and observed.login_after_us is None and message.endswith((b"login:", b"login: ")):
                observed.login_after_us = self._last_us
        elif message.startswith(b"entering initcall"):
            level = LEVEL.match(message)
            if level:
                self._calls.level = level[1].decode()
        elif b"[ " in message:
            inner = stamps.INNER.search(message)
            if inner and inner.start() > 0:
                # Two lines ran together: what stands before the second stamp is the first.
                self._damaged += 1
                self._wrapped = b""
                self._message(at_us, caller, message[: inner.start()].rstrip(), inner.start(), again=True)
                self._line(message[inner.start() :])
                return
        if len(observed.messages) < MAX_MESSAGES:
            observed.messages.append((at_us, decode(message)))
        else:
            self._full = True

    def _cut_off(self) -> None:
        """The rest of a line never came: take what there is of it."""
        match = RETURNED_CUT.match(self._wrapped)
        self._wrapped = b""
        self._damaged += 1
        if match:
            self._calls.returned(match, self._last_us, self.observed.characters)

    def _next_boot(self) -> None:
        self._close()
        self.boots += 1
        self._before = self.observed
        if self.boots == self._boot:
            self._kept = self.observed
        self._begin()

    def _close(self) -> None:
        observed = self.observed
        observed.last_us = self._last_us
        observed.stamped = self._last_us is not None
        if self._wrapped:
            self._cut_off()
        if self._clock.offset_us is not None:
            self._early = list(milestones.of_machine(self._early))
        if self._early:
            last_us = milestones.place_early(observed, self._early, self._clock)
            self._last_us = last_us if self._last_us is None else self._last_us
            self._gaps.add_all(self._early, -(self._clock.offset_us or 0))
        observed.gaps = self._gaps.longest()
        outer = self._outer
        for step in self._steps.found[:MOST_STEPS]:
            observed.warn(WarningCode.CLOCK_JUMPS, str(step))
        for at_us in self._clock.resets[:3]:
            observed.warn(
                WarningCode.CLOCK_RESET,
                f"the capture's clock was set to 0 after {at_us / 1e6:.6f} s: what follows counts on from there",
            )
        if self._damaged:
            observed.warn(
                WarningCode.DAMAGED_LINES,
                f"{self._damaged} lines were joined, wrapped or cut, and were put together again where possible",
            )
        if self._backwards:
            observed.warn(
                WarningCode.CLOCK_BACKWARDS,
                f"{'a line has' if self._backwards == 1 else f'{self._backwards} lines have'} an earlier stamp than "
                "one before, as those of other processors do: silences are measured from the latest stamp so far",
            )
        observed.coarse = self._coarse and observed.stamped
        if observed.coarse:
            observed.clocksource_switch_us = None
            observed.warn(
                WarningCode.COARSE_CLOCK,
                "the stamps have whole seconds only: durations are those reported, and what lasts less than "
                f"{RESOLVED_US // 1_000_000} s is not known",
            )
        if not observed.stamped and observed.lines:
            observed.warn(
                WarningCode.NO_TIME_STAMPS,
                "the log has no time stamps: only reported durations are known (boot with printk.time=1)",
            )
        if outer and outer.identified and not outer.kernel_clock and not self._owned and observed.stamped:
            milestones.without_arrivals(observed)
        elif outer and not outer.kernel_clock and outer.epoch:
            zero_us = self._clock.offset_us
            observed.epoch_zero_us = None if zero_us is None else zero_us + self._steps.by_us
        milestones.on_systemds_clock(observed)

    def finish(self) -> Observed:
        """Return all that was found of the boot chosen."""
        self._feed(self._whole_lines.rest())
        while self._window:
            self._take(self._window.popleft())
        if self._recurrence is not None:
            self._settle(self._recurrence.at_last(self.observed))
        self._close()
        self.boots += 1
        chosen = self._kept or self.observed
        if not self._boot and self._before is not None and not chosen.kernel_seen:
            chosen = self._before  # the machine was reset, and what came then has no kernel
        if self.boots > 1:
            which = "the last" if not self._boot else f"number {min(self._boot, self.boots)}"
            chosen.warn(
                WarningCode.SEVERAL_BOOTS, f"the log holds {self.boots} boots; this is {which} (--boot N chooses)"
            )
        if self._boot > self.boots:
            there = plural(self.boots, "boot")
            chosen.warn(WarningCode.NO_SUCH_BOOT, f"the log holds {there}, and no boot {self._boot}; this is the last")
        return chosen


def read(content: Content, *, merged: bool = False) -> Observed:
    """Read a kernel log. `merged`: its lines are of several writers, and may be out of order."""
    cleaner = Cleaner(content.sample)
    blocks = cleaner.blocks(content.stream())
    head: list[list[bytes]] = []
    seen = 0
    for block in blocks:
        head.append(block)
        seen += len(block)
        if seen >= SAMPLE_LINES:
            break
    log = KernelLog(content.path, list(chain.from_iterable(head)), content.boot, merged=merged)
    for block in chain(head, blocks):
        log.feed(block)
    observed = log.finish()
    if cleaner.escapes:
        observed.warn(WarningCode.ESCAPES_REMOVED, f"{cleaner.escapes} terminal escape sequences were taken out")
    if ends_within(cleaner.unended):
        observed.warn(WarningCode.FILE_CUT, f"the file ends in the middle of a line: {decode(cleaner.unended, 60)}")
    if cleaner.cut:
        observed.warn(WarningCode.INPUT_CUT, f"{cleaner.cut} lines were longer than any log has, and were cut")
    if not (observed.stamped or observed.version or observed.initcalls or observed.probes or observed.phases):
        observed.format, observed.is_log = "not recognised", False
    return observed
