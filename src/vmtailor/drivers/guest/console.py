# SPDX-License-Identifier: Apache-2.0
"""A console as it came, each line with the host's time."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field

#: A guest that prints without end is cut off here.
MAX_CONSOLE = 64 << 20
#: Longest line that is kept.
MAX_LINE = 65536


@dataclass
class Console:
    """Bytes as they came, and for each line the host time (seconds since the start) of its first byte."""

    raw: bytearray = field(default_factory=bytearray)
    lines: list[tuple[float, str]] = field(default_factory=list)
    _partial: str = ""
    _partial_at: float = 0.0
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )

    def take(self, data: bytes, at: float) -> str:
        """Add what was read, and return it as text."""
        if len(self.raw) < MAX_CONSOLE:
            self.raw += data
        text = self._decoder.decode(data)
        *whole, rest = text.split("\n")
        for piece in whole:
            start = self._partial_at if self._partial else at
            if len(self.raw) < MAX_CONSOLE:
                self.lines.append((start, (self._partial + piece).rstrip("\r")))
            self._partial = ""
        if rest and not self._partial:
            self._partial_at = at
        self._partial = (self._partial + rest)[-MAX_LINE:]
        return text

    def timed(self) -> list[tuple[float, str]]:
        """Return all lines, the unfinished one included."""
        return [*self.lines, (self._partial_at, self._partial.rstrip("\r"))] if self._partial else list(self.lines)
