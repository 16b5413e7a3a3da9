# SPDX-License-Identifier: Apache-2.0
"""The lines of initcall_debug, from 2.6.2x (milliseconds, addresses) to today's (probes, levels)."""

from __future__ import annotations

import re

from vmtailor.analysis.bootlog import stamps
from vmtailor.analysis.bootlog.boot_record import Observed, RawCall, RawProbe
from vmtailor.analysis.bootlog.log_lines import decode

_SYMBOL = (
    rb"(?:0x[0-9a-f]+: )?(?:(\d+)_)?([A-Za-z_$.0x][\w.$]*)(?:\+0x[0-9a-f]+/0x[0-9a-f]+)?(?:\(\))?"
    rb"(?: \[([\w.-]+)(?: [0-9a-f]+)?\])?"
)
CALLING = re.compile(rb"[Cc]alling  ?(?:initcall )?" + _SYMBOL + rb"(?: @ (\d{1,10}))?\s*$")
RETURNED = re.compile(
    rb"initcall " + _SYMBOL + rb" returned (-?\d{1,10})(?:\.| after (\d{1,15}) (u|m|n)secs?(?:[ ,.].*+)?)\s*+$"
)
#: A return that is cut off before its figure.
RETURNED_CUT = re.compile(rb"initcall " + _SYMBOL + rb" returned (-?\d{1,10})(?: after)?()()\s*$")
PROBE = re.compile(rb"probe of (\S.{0,200}?) returned (-?\d{1,10}) after (\d{1,15}) usecs\s*$")
LEVEL = re.compile(rb"entering initcall level: (\w{1,20})")

_TO_US = {b"u": 1, b"m": 1000}


#: The two lines that a long log consists of, whole and undamaged: seconds, fraction, then one of the two.
_QUICK_STAMP = rb"(?:<\d{1,4}>)?\[ *(\d{1,9})\.(\d{6})\](?:\[ *[TC]\d+\])? "
_QUICK_SYMBOL = rb"([A-Za-z_$.][\w.$]*)\+0x[0-9a-f]+/0x[0-9a-f]+(?: \[([\w.-]+)\])?"
_QUICK_CALL = rb"calling  " + _QUICK_SYMBOL + rb" @ (\d{1,10})"
_QUICK_RETURN = rb"initcall " + _QUICK_SYMBOL + rb" returned (-?\d{1,10}) after (\d{1,15}) usecs"
QUICK = re.compile(_QUICK_STAMP + rb"(?:" + _QUICK_CALL + rb"|" + _QUICK_RETURN + rb")$")
QUICK_CALL = re.compile(_QUICK_STAMP + _QUICK_CALL + rb"$")
QUICK_RETURN = re.compile(_QUICK_STAMP + _QUICK_RETURN + rb"$")


class CallTracker:
    """Pairs the lines of initcalls. Calls of one name may nest or run side by side: the last opened is closed first."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._calls = observed.initcalls
        self._last: tuple[bytes, bytes | None, RawCall, int] | None = None
        self._open: dict[tuple[bytes, bytes | None], list[tuple[RawCall, int]]] = {}
        self._calling_us: int | None = None  # the last `calling` line of any task
        self._calling_length = 0
        self._returned_us: int | None = None  # when the call of that line returned
        self.level: str | None = None

    def calling(self, match: re.Match[bytes], at_us: int | None, characters: int) -> None:
        """Note that a call begins. `characters` is how much was printed before its line."""
        number, raw, module, task = match.groups()
        self.begin(raw, module, at_us, characters, int(task) if task else None, number is not None)

    def begin(
        self,
        raw: bytes,
        module: bytes | None,
        at_us: int | None,
        characters: int,
        task: int | None,
        beside: bool = False,
    ) -> None:
        """Note that a call begins, whose line was taken apart already."""
        self._set_aside()
        call = RawCall(
            name=raw.decode("ascii", "replace")[:200],
            module=module.decode("ascii", "replace") if module else None,
            start_us=at_us,
            end_us=None,
            reported_us=None,
            returned=None,
            task=task,
            level=self.level,
            asynchronous=beside,
            finished=False,
        )
        self._calls.append(call)
        self._last = (raw, module, call, characters)
        self._calling_us, self._returned_us = at_us, None
        self._calling_length = len(raw) + len(module or b"")

    def whole(
        self,
        raw: bytes,
        module: bytes | None,
        at_us: int,
        end_us: int,
        characters: int,
        task: int,
        result: int,
        reported: int,
    ) -> None:
        """Note a call that began and returned in two lines that follow each other."""
        self._set_aside()
        self._calling_us, self._returned_us = at_us, end_us
        self._calling_length = len(raw) + len(module or b"")
        name, of = raw.decode("ascii")[:200], module.decode("ascii") if module else None
        self._calls.append(
            RawCall(
                name=name,
                module=of,
                start_us=at_us,
                end_us=end_us,
                reported_us=reported,
                returned=result,
                task=task,
                level=self.level,
                asynchronous=False,
                finished=True,
                characters=characters,
            )
        )

    def _set_aside(self) -> None:
        """The call opened last is not over when another begins."""
        if self._last is not None:
            name, module, call, before = self._last
            self._open.setdefault((name, module), []).append((call, before))
            self._last = None

    def returned(self, match: re.Match[bytes], at_us: int | None, characters: int) -> None:
        """Note that a call returned."""
        number, raw, module, result, after, unit = match.groups()
        reported = None
        if after:
            reported = int(after) // 1000 if unit == b"n" else int(after) * _TO_US[unit]
            if unit == b"m":
                self._observed.milliseconds = True
        self.end(raw, module, at_us, characters, int(result), reported, number is not None)

    def end(
        self,
        raw: bytes,
        module: bytes | None,
        at_us: int | None,
        characters: int,
        result: int,
        reported: int | None,
        beside: bool = False,
    ) -> None:
        """Note that a call returned, whose line was taken apart already."""
        last = self._last
        if last is not None and last[0] == raw and last[1] == module:
            call, before = last[2], last[3]
            self._last = None
            self._returned_us = at_us
            call.characters = characters - before
        elif waiting := self._open.get((raw, module)):
            call, _ = waiting.pop()
            if not waiting:
                del self._open[raw, module]
            call.base_us = self._calling_us
            call.characters = self._calling_length - len(raw) - len(module or b"")
        else:
            name = raw.decode("ascii", "replace")[:200]
            mod = module.decode("ascii", "replace") if module else None
            call = RawCall(
                name=name,
                module=mod,
                start_us=None,
                end_us=None,
                reported_us=None,
                returned=None,
                task=None,
                level=self.level,
                asynchronous=beside,
                finished=True,
            )
            self._calls.append(call)
            if at_us is not None and reported is not None:
                over = self._returned_us
                call.base_us = None if over is not None and over <= at_us - reported + 30 else self._calling_us
        call.end_us = at_us
        call.reported_us = reported
        call.returned = result
        call.finished = True

    def probe(self, match: re.Match[bytes], at_us: int | None, caller: bytes | None) -> None:
        """Note that a driver was bound to a device, or not."""
        device, result, after = match.groups()
        name = decode(device, 200)
        self._observed.probes.append(
            RawProbe(
                device=name,
                end_us=at_us,
                reported_us=int(after),
                returned=int(result),
                caller=caller.decode() if caller else None,
            )
        )


def broken(message: bytes) -> bytes:
    """Return the beginning of a line of initcall_debug that was cut or wrapped; nothing for other lines that begin like
    one."""
    whole = message.startswith((b"calling  ", b"initcall ", b"probe of ")) and b" parent: " not in message
    return message if whole and len(message) < 300 else b""


def ends_within(line: bytes) -> bool:
    """Return whether a last line without a line feed is surely not whole."""
    text = text_of(line)
    stamp = line.startswith(b"[") and b"]" not in line
    return stamp or (bool(broken(text)) and not (CALLING.match(text) or RETURNED.match(text) or PROBE.match(text)))


def text_of(line: bytes) -> bytes:
    """Return a line without the kernel's stamp."""
    stamp = stamps.KERNEL.match(line)
    return stamp[4] if stamp else line
