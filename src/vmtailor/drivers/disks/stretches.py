# SPDX-License-Identifier: Apache-2.0
"""The bytes of a partition or a volume, wherever they lie on a disk image."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.holes import copy_parts


@dataclass(frozen=True)
class Stretches:
    """A file system's place: parts of the file `raw`, (offset, length) in bytes, in the order of the file system.
    `name`: what messages call it."""

    raw: Path
    parts: tuple[tuple[int, int], ...]
    name: str
    _starts: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes = itertools.accumulate((length for _, length in self.parts), initial=0)
        object.__setattr__(self, "_starts", list(sizes))

    @property
    def size_bytes(self) -> int:
        return self._starts[-1]

    @property
    def offset(self) -> int | None:
        """Return where the bytes begin in the file; None where they lie in several places."""
        return self.parts[0][0] if len(self.parts) == 1 else None

    def read(self, start: int, count: int) -> bytes:
        """Return `count` bytes from `start` on. Raises UserInputError for bytes beyond the end."""
        if start < 0 or count < 0 or start + count > self.size_bytes:
            raise UserInputError(f"{self.name} is damaged: it refers to what lies beyond its end")
        found = bytearray()
        with self.raw.open("rb") as file:
            number = bisect.bisect_right(self._starts, start) - 1
            while count:
                offset, length = self.parts[number]
                inside = start - self._starts[number]
                size = min(count, length - inside)
                file.seek(offset + inside)
                data = file.read(size)
                if len(data) != size:
                    raise UserInputError(
                        f"{self.name} is cut off: the image ends before it", hint="get the image again"
                    )
                found += data
                start, count, number = start + size, count - size, number + 1
        return bytes(found)

    def copied(self, to: Path) -> None:
        """Write all bytes to a file of their own, with holes where the image has them."""
        copy_parts(self.raw, self.parts, to)


def whole(raw: Path, size_bytes: int, name: str) -> Stretches:
    """Return the place of what fills a disk."""
    return Stretches(raw, ((0, size_bytes),), name)


def joined(parts: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return parts with those that follow each other as one."""
    found: list[tuple[int, int]] = []
    for offset, length in parts:
        if found and sum(found[-1]) == offset:
            found[-1] = (found[-1][0], found[-1][1] + length)
        else:
            found.append((offset, length))
    return tuple(found)
