# SPDX-License-Identifier: Apache-2.0
"""Frames on a virtio port, as the host's native end has them: a port carries frames alone and loses nothing, and none
but init can have it open. The payload is not in the tag, and may be a block."""

from __future__ import annotations

import hashlib
import hmac
import struct
from enum import StrEnum

from vmtailor.drivers.guest.wire import HEADER_BYTES, MAGIC, TAG_BYTES, Frame, FromGuest
from vmtailor.model.boots.workload import KEY_BYTES

#: The longest payload on a port.
MAX_BLOCK = 32768

_HEAD = struct.Struct("<2sBBH8s")


class ToGuest(StrEnum):
    """Types of frames to the guest."""

    STDIN = "i"
    STDIN_END = "e"
    SIGNAL = "s"  # number
    WINDOW = "w"  # rows, columns
    GO = "g"  # the load from the host is done
    # On a port alone.
    GREETING = "h"  # this port is the host's
    TAKEN = "c"  # so many bytes of output were taken
    HEARD = "b"  # all is heard, the last word too
    FURTHER = "x"  # number, part of an order
    FURTHER_STDIN = "j"  # number, data
    FURTHER_STDIN_END = "k"
    FURTHER_SIGNAL = "q"
    FURTHER_WINDOW = "v"
    FURTHER_TAKEN = "u"  # so many bytes of output were taken


#: Frames from the guest about further processes.
FURTHER = frozenset(
    {FromGuest.FURTHER_STDOUT, FromGuest.FURTHER_STDERR, FromGuest.FURTHER_EXIT, FromGuest.FURTHER_CREDIT}
)


def _tag_of(key: bytes, kind: int, sequence: int, length: int) -> bytes:
    head = bytes((kind, sequence)) + length.to_bytes(2, "little")
    return hashlib.sha256(key + head).digest()[:TAG_BYTES]


def encode_on_port(kind: str, payload: bytes, sequence: int, key: bytes) -> bytes:
    """Return one frame on a port as bytes. Raises ValueError for a payload that is too long."""
    if len(payload) > MAX_BLOCK:
        raise ValueError(f"a frame on a port holds {MAX_BLOCK} bytes, not {len(payload)}")
    tag = _tag_of(key, ord(kind), sequence & 255, len(payload))
    return _HEAD.pack(MAGIC, ord(kind), sequence & 255, len(payload), tag) + payload


class PortDecoder:
    """Takes bytes off a port as they come, and gives frames, as `Decoder` does; there is no text.

    After bytes that begin no frame with the key, nothing can be told any more: `damaged` is 1 then."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        self.damaged = 0
        self.lost = 0
        self._key = key
        self._held = b""
        self._next: int | None = None

    def feed(self, data: bytes) -> tuple[list[Frame], bytes]:
        """Return the frames that are whole now, and no text."""
        if self.damaged:
            return [], b""
        buffer = self._held + data if self._held else data
        frames: list[Frame] = []
        at = 0
        while len(buffer) - at >= HEADER_BYTES:
            magic, kind, sequence, length, tag = _HEAD.unpack_from(buffer, at)
            known = _tag_of(self._key, kind, sequence, length)
            if magic != MAGIC or length > MAX_BLOCK or not hmac.compare_digest(tag, known):
                self.damaged, self._held = 1, b""
                return frames, b""
            end = at + HEADER_BYTES + length
            if end > len(buffer):
                break
            frames.append(Frame(chr(kind), buffer[at + HEADER_BYTES : end], sequence))
            self._count(frames[-1])
            at = end
        self._held = buffer[at:]
        return frames, b""

    def flush(self) -> tuple[list[Frame], bytes]:
        """Return nothing: a frame that was cut off is none."""
        self._held = b""
        return [], b""

    def _count(self, frame: Frame) -> None:
        if self._next is not None and frame.type != FromGuest.HELLO:
            self.lost += (frame.sequence - self._next) & 255
        self._next = (frame.sequence + 1) & 255
