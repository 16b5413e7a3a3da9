# SPDX-License-Identifier: Apache-2.0
"""Result files of our QEMU plugins (native/tcg-plugin/chunks.h): a magic word, then chunks.

A chunk is, all little-endian: tag (4 bytes), count (u32), bytes of payload (u64), payload."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TypeVar

from vmtailor.base.errors import UserInputError

R = TypeVar("R")
_CHUNK = struct.Struct("<4sIQ")
_MAGIC_BYTES = 8

#: Takes the tag, the count and the payload of a chunk.
Take = Callable[[bytes, int, memoryview], None]


def read(data: bytes, magic: bytes, origin: str, take: Take, finish: Callable[[], R]) -> R:
    """Give each chunk to `take`, and return what `finish` makes of them. A file that lacks its end is read as far as it
    goes. Raises UserInputError for other files, and when one is damaged: `take` or `finish` raised ValueError,
    IndexError or struct.error."""
    if data[:_MAGIC_BYTES] != magic:
        raise UserInputError(
            f"{origin} is not a file of the plugin", hint="make it again with this version of vmtailor"
        )
    try:
        for tag, count, payload in _chunks(data):
            take(tag, count, payload)
        return finish()
    except (ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise UserInputError(f"{origin} is damaged: {error}", hint="make it again") from error


def texts(payload: memoryview, count: int) -> list[str]:
    """Return the texts of a chunk, each of which a zero byte ends. Raises ValueError unless there are so many."""
    found = bytes(payload).split(b"\0")
    if len(found) != count + 1:
        raise ValueError(f"{count} names announced, {len(found) - 1} found")
    return [text.decode() for text in found[:-1]]


def _chunks(data: bytes) -> Iterator[tuple[bytes, int, memoryview]]:
    at, view = _MAGIC_BYTES, memoryview(data)
    while at + _CHUNK.size <= len(data):
        tag, count, size = _CHUNK.unpack_from(data, at)
        at += _CHUNK.size
        if size > len(data) - at:  # cut off: QEMU died while it wrote
            return
        yield tag, count, view[at : at + size]
        at += size
