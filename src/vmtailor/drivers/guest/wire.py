# SPDX-License-Identifier: Apache-2.0
"""Frames on the line between guest and host (docs/reference/guest-init.md, native/common/wire.h).

    0xF5 0x54 | type | sequence | length (2, little endian) | tag (8) | payload (at most 2048 bytes)

The tag is the start of SHA-256(key, type, sequence, length, payload). Whatever is no frame is console text. Bytes come
from a guest that nobody trusts: nothing here fails on them, and no more than one frame is held.

On a virtio port, which `run` uses, the host's end is native/supervise.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass
from enum import StrEnum

from vmtailor.model.boots.workload import KEY_BYTES

MAGIC = b"\xf5\x54"
HEADER_BYTES = 14
MAX_PAYLOAD = 2048
TAG_BYTES = 8
#: Tags frames while there is no key: before init has read the run volume, and where there is none.
OPEN_KEY = bytes(KEY_BYTES)

_HEAD = struct.Struct("<2sBBH8s")


class FromGuest(StrEnum):
    """Types of frames to the host."""

    HELLO = "H"
    STDOUT = "O"
    STDERR = "E"
    MARK = "M"  # lines of name, cycles, monotonic ns, real time ns (guest_text.parse_marks)
    NOTE = "N"  # symbol NUL text
    FATAL = "F"  # symbol NUL text
    EXIT = "X"  # status, signal, why it could not be executed
    RESULT = "R"  # key=value NUL ...
    FILE = "D"  # name NUL part of the content
    CREDIT = "C"  # so many bytes of standard input were taken
    # About a further process, whose number comes first.
    FURTHER_STDOUT = "o"
    FURTHER_STDERR = "p"
    FURTHER_EXIT = "y"  # as EXIT
    FURTHER_CREDIT = "c"  # as CREDIT
    BYE = "Q"  # all is said; on a port alone


#: The frame that lets a guest go on: the load from the host is done.
GO = "g"
#: Frames that are accepted under the open key, before init has its own.
_EARLY = frozenset({FromGuest.HELLO, FromGuest.MARK, FromGuest.NOTE, FromGuest.FATAL, FromGuest.FILE})


@dataclass(frozen=True)
class Frame:
    """One whole frame. `type` is a single letter."""

    type: str
    payload: bytes
    sequence: int


def _tag(key: bytes, kind: int, sequence: int, payload: bytes) -> bytes:
    head = bytes((kind, sequence)) + len(payload).to_bytes(2, "little")
    return hashlib.sha256(key + head + payload).digest()[:TAG_BYTES]


def encode(kind: str, payload: bytes, sequence: int, key: bytes = OPEN_KEY) -> bytes:
    """Return one frame as bytes. Raises ValueError for a payload that is too long."""
    if len(payload) > MAX_PAYLOAD:
        raise ValueError(f"a frame holds {MAX_PAYLOAD} bytes, not {len(payload)}")
    tag = _tag(key, ord(kind), sequence & 255, payload)
    return _HEAD.pack(MAGIC, ord(kind), sequence & 255, len(payload), tag) + payload


class Decoder:
    """Takes bytes off the line as they come; gives frames and console text.

    `key`: the run's own; None where the guest has no run volume. After the first frame with it, no other counts, so a
    container that writes to the line cannot speak for init. `damaged` counts what began like a frame and was none;
    `lost` the gaps in the sequence."""

    def __init__(self, key: bytes | None = None) -> None:
        if key is not None and len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes")
        self.damaged = 0
        self.lost = 0
        self._key = key
        self._keyed_seen = False
        self._held = b""
        self._next: int | None = None

    def feed(self, data: bytes) -> tuple[list[Frame], bytes]:
        """Return the frames that are whole now, and the console text between them."""
        buffer = self._held + data
        frames: list[Frame] = []
        text: list[bytes] = []
        at = 0
        while at < len(buffer):
            start = buffer.find(MAGIC[0], at)
            if start < 0:
                start = len(buffer)
            text.append(buffer[at:start])
            at = start
            found = self._frame_at(buffer, at)
            if found is None:  # more must come first
                break
            if isinstance(found, Frame):
                frames.append(found)
                at += HEADER_BYTES + len(found.payload)
            else:
                text.append(buffer[at : at + 1])
                at += 1
        self._held = buffer[at:]
        return frames, b"".join(text)

    def flush(self) -> tuple[list[Frame], bytes]:
        """Return the rest once the line has closed: what began like a frame and never became whole is text, and what
        stands in it counts."""
        frames: list[Frame] = []
        text = b""
        while self._held:
            text += self._held[:1]
            left, self._held = self._held[1:], b""
            more, part = self.feed(left)
            frames += more
            text += part
        return frames, text

    def _frame_at(self, buffer: bytes, at: int) -> Frame | bool | None:
        """Return a frame at this place; False: there is none; None: cannot be told yet."""
        head = buffer[at : at + HEADER_BYTES]
        if not MAGIC.startswith(head[:2]):
            return False
        if len(head) < HEADER_BYTES:
            return None
        _, kind, sequence, length, tag = _HEAD.unpack(head)
        payload = buffer[at + HEADER_BYTES : at + HEADER_BYTES + length]
        if length <= MAX_PAYLOAD and len(payload) < length:
            return None
        frame = self._verified(kind, sequence, tag, payload) if length <= MAX_PAYLOAD else None
        if frame is None:
            self.damaged += 1
            return False
        self._count(frame)
        return frame

    def _verified(self, kind: int, sequence: int, tag: bytes, payload: bytes) -> Frame | None:
        name = chr(kind)
        if self._key is not None and hmac.compare_digest(tag, _tag(self._key, kind, sequence, payload)):
            if not self._keyed_seen:
                self._keyed_seen, self._next = True, None
            return Frame(name, payload, sequence)
        if self._keyed_seen or (self._key is not None and name not in _EARLY):
            return None
        if hmac.compare_digest(tag, _tag(OPEN_KEY, kind, sequence, payload)):
            return Frame(name, payload, sequence)
        return None

    def _count(self, frame: Frame) -> None:
        # Each program of the guest (stage 1, init) begins at 0.
        if self._next is not None and frame.type != FromGuest.HELLO:
            self.lost += (frame.sequence - self._next) & 255
        self._next = (frame.sequence + 1) & 255
