# SPDX-License-Identifier: Apache-2.0
"""Contents of frames, from bytes to records, and text between them. A guest may say anything: what makes no sense
becomes empty fields."""

from __future__ import annotations

import re
from dataclasses import replace

from vmtailor.base.text import is_number
from vmtailor.drivers.guest.wire import HEADER_BYTES, MAGIC, MAX_PAYLOAD, FromGuest
from vmtailor.model.guest import Answer, GuestMark, GuestNote, StepResult

_MOST = 2**63
#: Init sends a mark after a tenth of a second at the latest. Of a guest that says more, the rest is not believed.
_MOST_AGE_S = 1.0
#: The head of a frame: mark, type, sequence, length, tag.
_HEAD = re.compile(MAGIC + b"[%s].(..).{8}" % "".join(FromGuest).encode(), re.S)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _number(text: str, otherwise: int) -> int:
    try:
        value = int(text[:20], 10)
    except ValueError:
        return otherwise
    return value if -_MOST < value < 2**64 else otherwise


def kernel_text(line: bytes) -> str:
    """Return what is left of a serial line without its frames: the kernel's words. For error messages, so the frames'
    tags are not checked; bytes that are none of ours stay."""
    parts, at = [], 0
    while found := _HEAD.search(line, at):
        length = int.from_bytes(found[1], "little")
        is_frame = length <= MAX_PAYLOAD
        parts.append(line[at : found.start() if is_frame else found.start() + 1])
        at = found.start() + (HEADER_BYTES + length if is_frame else 1)
    # The last frame may have been cut off before its head was whole.
    rest = line[at:]
    cut = rest.rfind(MAGIC, -HEADER_BYTES)
    return _text(b"".join((*parts, rest if cut < 0 else rest[:cut])))


def parse_marks(payload: bytes, host_s: float) -> tuple[GuestMark, ...]:
    """Parse the marks of a frame that was heard at `host_s`; none when it is nothing of the kind.

    A line for each: `NAME CYCLES MONOTONIC REALTIME`. From the second on, the numbers say how much more they are than
    those before; the last one may be left out where it is the same as the one before it. A last line with a number
    alone: the frame was sent so many microseconds after the last mark."""
    lines = _text(payload).split("\n")
    waited_us = _number(lines.pop(), 0) if len(lines) > 1 and is_number(lines[-1]) else 0
    found: list[GuestMark] = []
    cycles = monotonic = realtime = 0
    for line in lines:
        name, *words = line.split(" ")
        if not name or len(words) not in (2, 3) or not all(is_number(word) for word in words):
            return ()
        more = [_number(word, 0) for word in words]
        cycles, monotonic, realtime = cycles + more[0], monotonic + more[1], realtime + more[-1]
        if max(cycles, monotonic, realtime) >= 2**64:
            return ()
        found.append(GuestMark(name=name[:64], cycles=cycles, monotonic_ns=monotonic, realtime_ns=realtime))
    ages = (waited_us / 1e6 + (monotonic - mark.monotonic_ns) / 1e9 for mark in found)
    return tuple(replace(mark, host_s=host_s - min(age, _MOST_AGE_S)) for mark, age in zip(found, ages, strict=True))


def parse_note(payload: bytes) -> GuestNote:
    """Parse `SYMBOL NUL TEXT`."""
    symbol, separator, text = payload.partition(b"\0")
    if not separator:
        return GuestNote("", _text(payload))
    return GuestNote(_text(symbol), _text(text).rstrip("\n"))


def parse_exit(payload: bytes) -> tuple[int, int, str]:
    """Parse `STATUS SIGNAL WHY`: exit status, signal (0: none), why it could not be executed."""
    words = [*_text(payload).split(" ", 2), "", "", ""]
    return _number(words[0], 255) & 255, _number(words[1], 0), words[2].strip()


def _answer(items: dict[str, str], name: str) -> Answer:
    return Answer(
        status=_number(items.get(f"{name}.status", ""), -1),
        exit_code=_number(items.get(f"{name}.exit", ""), -1),
        length=_number(items.get(f"{name}.length", ""), 0),
        sha256=items.get(f"{name}.sha256", ""),
        head=items.get(f"{name}.head", ""),
        error=items.get(f"{name}.error", ""),
    )


def parse_result(payload: bytes) -> StepResult:
    """Parse `KEY=VALUE NUL ...`; missing keys have defaults."""
    items: dict[str, str] = {}
    for item in payload.split(b"\0"):
        key, _, value = item.partition(b"=")
        items.setdefault(_text(key), _text(value))
    done = max(0, _number(items.get("done", ""), 0))
    return StepResult(
        step=_number(items.get("step", ""), -1),
        kind=items.get("kind", ""),
        done=done,
        right=min(done, max(0, _number(items.get("right", ""), 0))),
        same=items.get("same") == "1",
        virtual_ns=_number(items.get("ns", ""), 0),
        first=_answer(items, "first"),
        wrong=_answer(items, "wrong") if "wrong.status" in items else None,
        why=items.get("why", ""),
    )
