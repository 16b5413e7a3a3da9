# SPDX-License-Identifier: Apache-2.0
"""The lines of initcall_debug, from 2.6.2x (milliseconds, addresses) to today's (probes, levels)."""

from __future__ import annotations

import re
import sys

from vmtailor.analysis.bootlog.clean import decode
from vmtailor.analysis.bootlog.observed import Observed, RawCall, RawProbe

_SYMBOL = (
    rb"(?:0x[0-9a-f]+: )?(?:(\d+)_)?([A-Za-z_$.0x][\w.$]*)(?:\+0x[0-9a-f]+/0x[0-9a-f]+)?(?:\(\))?"
    rb"(?: \[([\w.-]+)(?: [0-9a-f]+)?\])?"
)
CALLING = re.compile(rb"[Cc]alling  ?(?:initcall )?" + _SYMBOL + rb"(?: @ (\d+))?\s*$")
RETURNED = re.compile(
    rb"initcall " + _SYMBOL + rb" returned (-?\d{1,10})(?:\.| after (\d{1,15}) (u|m|n)secs?(?:[ ,.].*)?)\s*$"
)
#: The same cut off before its figure.
RETURNED_CUT = re.compile(rb"initcall " + _SYMBOL + rb" returned (-?\d{1,10})(?: after)?()()\s*$")
PROBE = re.compile(rb"probe of (\S.{0,200}?) returned (-?\d{1,10}) after (\d{1,15}) usecs\s*$")
LEVEL = re.compile(rb"entering initcall level: (\w{1,20})")

_TO_US = {b"u": 1, b"m": 1000}


class CallTracker:
    """Pairs the lines of initcalls. Calls of one name may nest or run side by side: the last opened is closed first."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self._open: dict[tuple[str, str | None], list[tuple[RawCall, int]]] = {}
        self._names: dict[bytes, str] = {}
        self.level: str | None = None

    def _name(self, raw: bytes) -> str:
        name = self._names.get(raw)
        if name is None:
            name = self._names[raw] = sys.intern(raw.decode("ascii", "replace")[:200])
        return name

    def calling(self, match: re.Match[bytes], at_us: int | None, characters: int) -> None:
        """A call begins. `characters` is how much was printed before its line."""
        number, raw, module, task = match.groups()
        name = self._name(raw)
        mod = self._name(module) if module else None
        call = RawCall(
            name, mod, at_us, None, None, None, int(task) if task else None, self.level, number is not None, False
        )
        self._observed.initcalls.append(call)
        self._open.setdefault((name, mod), []).append((call, characters))

    def returned(self, match: re.Match[bytes], at_us: int | None, characters: int) -> None:
        """A call returned."""
        number, raw, module, result, after, unit = match.groups()
        name = self._name(raw)
        mod = self._name(module) if module else None
        reported = None
        if after:
            reported = int(after) // 1000 if unit == b"n" else int(after) * _TO_US[unit]
        waiting = self._open.get((name, mod))
        if waiting:
            call, before = waiting.pop()
            call.characters = characters - before
        else:
            call = RawCall(name, mod, None, None, None, None, None, self.level, number is not None, True)
            self._observed.initcalls.append(call)
        call.end_us = at_us
        call.reported_us = reported
        call.returned = int(result)
        call.finished = True

    def probe(self, match: re.Match[bytes], at_us: int | None, caller: bytes | None) -> None:
        """A driver was bound to a device, or not."""
        device, result, after = match.groups()
        name = decode(device, 200)
        self._observed.probes.append(
            RawProbe(sys.intern(name), at_us, int(after), int(result), caller.decode() if caller else None)
        )
