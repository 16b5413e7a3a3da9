# SPDX-License-Identifier: Apache-2.0
"""What the kernel complained of on a console, and whether it is new."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: A printk line on the console: optional level, time stamp, optional caller.
_STAMP = re.compile(r"^(?:<\d+>)?\[\s*\d+\.\d+\](?:\[\s*[TC]\d+\])?\s?(.*)$")
_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|\d+")
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
#: At most so many lines are kept: a guest may print without end.
MOST_LINES = 2000


def messages(console: str) -> list[str]:
    """The kernel's messages in a console capture, without time stamps, in order."""
    found = []
    for line in console.splitlines():
        match = _STAMP.match(_ESCAPES.sub("", line))
        if match and match.group(1).strip():
            found.append(match.group(1).strip())
            if len(found) == MOST_LINES:
                break
    return found


def new_messages(tailored: str, baseline: str, expected: Iterable[re.Pattern[str]] = ()) -> list[str]:
    """Messages of the tailored machine that the baseline did not print, numbers aside.

    Both consoles are captured with `loglevel=5`, so that only warnings and worse are on them. `expected` are
    messages that a smaller machine is known to print for a reason (data/expected_messages.toml).
    """
    known = {_NUMBERS.sub("#", message) for message in messages(baseline)}
    patterns = tuple(expected)
    found = []
    for message in messages(tailored):
        shape = _NUMBERS.sub("#", message)
        if shape in known or any(pattern.search(message) for pattern in patterns):
            continue
        known.add(shape)
        found.append(message)
    return found
