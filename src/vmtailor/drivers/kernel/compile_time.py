# SPDX-License-Identifier: Apache-2.0
"""How long a compile will still take, told from make's own lines.

Each object weighs something: what every compiler run costs, and its source's size. What the compiler's cache has takes
a tenth of a second whatever it weighs; the rest has a pace. Both are measured as the compile goes on, and the share
that the cache has is that of the last objects: it changes from folder to folder."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping

#: What a compiler run weighs beside its source's size, in bytes of source: headers, mostly.
HEADERS = 40_000
#: Lines that come so soon one after the other, in seconds, were for something that the compiler's cache had. It takes a
#: few: of two compilers that run at a time, both may end in one moment.
HIT_S, HIT_LINES = 0.15, 4
#: Objects that tell how much the cache has just now.
WINDOW = 30
#: Seconds before which nothing is promised.
FIRST_S = 10.0
#: What comes behind the last object (linking, checking, packing), in seconds.
LINK_S = 5.0

_OBJECT = re.compile(r"^  (?:CC|AS)(?: \[M\])? +(\S+)\.o$")
#: What compiles programs of the host, whose time is none of the kernel's objects.
_HOST = re.compile(r"^  HOST(?:CC|LD) +(\S+)")


class Remaining:
    """Counts objects, and says what is left. `weights`: object without its ending → weight, of all that are to come;
    others (tools of the host) take time, and are not among them. Where none are known, `expected` objects are to
    come."""

    def __init__(self, weights: Mapping[str, float], expected: int = 0) -> None:
        self._weights = dict(weights)
        self._known = bool(weights)
        self.expected = max(1, len(weights) or expected)
        self._left = sum(weights.values()) if weights else float(self.expected * HEADERS)
        self._all = self._left
        self.done = 0
        self._started_s: float | None = None
        self._last_s = 0.0
        self._times: deque[float] = deque(maxlen=HIT_LINES)
        self._last = (0.0, False)  # weight of what is compiled just now, and whether it is among those to come
        self._seconds = {True: 0.0, False: 0.0}  # whether the cache had it → what that took
        self._weighed = {True: 0.0, False: 0.0}
        self._recent: deque[tuple[bool, float]] = deque(maxlen=WINDOW)

    @property
    def share(self) -> float:
        """How much is done, from 0 to 1."""
        return 1 - max(0.0, self._left) / self._all

    def see(self, line: str, now_s: float) -> bool:
        """Take a line of make into account, seen `now_s` seconds after the start; whether it was for an object that was
        to come. The line comes when a compiler starts: what came before is what took the time since."""
        match = _OBJECT.match(line) or _HOST.match(line)
        if match is None:
            return False
        counts = not match[0].startswith("  HOST") and (match[1] in self._weights or not self._known)
        weight = self._weights.pop(match[1], float(HEADERS))
        if self._started_s is None:
            self._started_s = now_s
        else:
            self._times.append(now_s - self._last_s)
            self._finish(now_s - self._last_s)
        self._last_s, self._last = now_s, (weight, counts)
        self.done += counts
        return counts

    def _finish(self, took_s: float) -> None:
        weight, counted = self._last
        hit = len(self._times) == HIT_LINES and sum(self._times) < HIT_LINES * HIT_S
        self._seconds[hit] += took_s
        self._weighed[hit] += weight
        if counted:
            self._recent.append((hit, weight))
            self._left -= weight

    @property
    def seconds_left(self) -> float | None:
        """Seconds that are left after the last line, or None while that cannot be told."""
        if self._started_s is None or self._last_s - self._started_s < FIRST_S or self._left <= 0 or not self._recent:
            return None
        hits = sum(weight for hit, weight in self._recent if hit) / sum(weight for _, weight in self._recent)
        pace = {hit: self._seconds[hit] / weight if weight else 0.0 for hit, weight in self._weighed.items()}
        return self._left * (hits * pace[True] + (1 - hits) * pace[False]) + LINK_S
