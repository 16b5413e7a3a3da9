# SPDX-License-Identifier: Apache-2.0
"""Stop signals as images and people write them: SIGTERM, term, 15, SIGRTMIN+3 (systemd's), RTMAX-1."""

from __future__ import annotations

import re
import signal

from vmtailor.base.text import is_number

#: SIGRTMIN and SIGRTMAX of containers' C libraries, which keep the kernel's first two numbers for themselves.
RTMIN, RTMAX = 34, 64
_REALTIME = re.compile(r"RT(MIN|MAX)(?:([+-])([0-9]{1,3}))?")


def number_of(text: str) -> int | None:
    """Return the number of a signal, 1 to 64; None for other words. SIG, blanks around it and case do not matter."""
    name = text.strip().upper().removeprefix("SIG")
    if not name.isascii() or len(name) > 16:
        return None
    if is_number(name):
        number = int(name)
        return number if 1 <= number <= RTMAX else None
    if match := _REALTIME.fullmatch(name):
        offset = int(f"{match[2] or '+'}{match[3] or '0'}")
        number = (RTMIN if match[1] == "MIN" else RTMAX) + offset
        return number if RTMIN <= number <= RTMAX else None
    found = signal.Signals.__members__.get(f"SIG{name}")
    return None if found is None else found.value


def name_of(text: str) -> str | None:
    """Return the name of a signal with SIG; a real-time signal as it was counted, or from SIGRTMIN where a number says
    it."""
    number = number_of(text)
    if number is None:
        return None
    name = text.strip().upper().removeprefix("SIG")
    if _REALTIME.fullmatch(name):
        return f"SIG{name}"
    if number < RTMIN:
        # 32 and 33 have no name: they are the C library's own.
        return signal.Signals(number).name if number in set(signal.Signals) else None
    return "SIGRTMIN" if number == RTMIN else "SIGRTMAX" if number == RTMAX else f"SIGRTMIN+{number - RTMIN}"
