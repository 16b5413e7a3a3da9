# SPDX-License-Identifier: Apache-2.0
"""Learn from a log itself what stands before its messages: the words of capturing programs, and the fields of vendors'
kernels. A piece that nearly all lines have, at the place before what a kernel says, is no part of a message."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from vmtailor.analysis.bootlog import stamps
from vmtailor.base.text import is_number

#: Bytes of a line within which a prefix ends, and pieces that it has at most.
MOST, PIECES = 160, 48
#: Prefixes of different shapes that one log may have.
SHAPES = 4
#: Lines that a prefix is learned from, and lines that are looked through for them.
LINES, LOOKED_AT = 600, 20_000
#: Lines that need the prefix: with stamps behind it, and without.
LEAST, LEAST_UNSTAMPED = 3, 2

_STAMPED_BY_HOST = re.compile(
    rb"\[?\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d|\[(?:[^\[\]\n:]{1,60} )?\d\d:\d\d:\d\d[^\[\]\n]{0,16}\]"
)
#: A group in brackets, a number, a word, space, or a single sign.
_PIECE = re.compile(rb"\[[^\[\]\n]{0,80}\]|\d+|[A-Za-z_\x80-\xff]+|[ \t]+|[^\n]")
_WORD = re.compile(rb"[A-Za-z_\x80-\xff]")
_ANY_OF = {
    b"[": rb"\[[^\[\]\n]{0,80}+\]", b"0": rb"\d{1,20}+", b"a": rb"[A-Za-z_\x80-\xff]{1,80}+", b" ": rb"[ \t]{1,40}+",
}  # fmt: skip
#: One field behind a stamp: `[0: swapper: 0]`, `(0)`, `I[0: …]`, `<0>`, with a number in it.
_FIELD = (
    rb"[ \t]{0,8}+[-.]?(?:[A-Za-z](?=\[))?"
    rb"(?:\[(?=[^\[\]\n\d]{0,64}\d)[^\[\]\n]{1,64}\]|\((?=[^()\n\d]{0,64}\d)[^()\n]{1,64}\)|<\d{1,4}>)"
)
_NAME = rb"\[[A-Za-z][^\[\]\n]{0,64}\]"
_FIELDS = re.compile(rb"(?:" + _FIELD + rb"){1,3}")
_ONE_FIELD = re.compile(_FIELD)
_KERNEL_BEGINS = re.compile(rb"Linux version \d|Booting Linux ")


@dataclass(frozen=True)
class Layers:
    """Hold what stands before the messages of a log, from outside to inside; None where there is nothing of the kind.

    `before`: words before everything; `outer`: the stamp of the host; `between`: words after it; `field`: what a
    vendor's kernel says after its own stamp."""

    before: re.Pattern[bytes] | None = None
    outer: stamps.Outer | None = None
    between: re.Pattern[bytes] | None = None
    field: re.Pattern[bytes] | None = None


def without(prefix: re.Pattern[bytes] | None, line: bytes) -> bytes:
    """Return a line without a prefix that it has."""
    match = prefix.match(line) if prefix is not None else None
    return line[match.end() :] if match else line


def layers_of(lines: Sequence[bytes]) -> Layers:
    """Return what stands before the messages of these lines, with which a log begins."""
    sample = lines[:LINES]
    layers = Layers(outer=stamps.detect_outer(sample))
    if layers.outer is None and stamps.has_stamps(sample) * 10 <= len(sample):
        before = _learned(sample, _begins_content)
        sample = [without(before, line) for line in sample]
        layers = Layers(before, stamps.detect_outer(sample) if before else None)
    if layers.outer is not None:
        rests = [match[match.re.groups] for line in sample if (match := layers.outer.regex.match(line))]
        if not layers.outer.identified:
            layers = replace(layers, between=_learned(rests, _begins_message))
    return replace(layers, field=_field_of(_messages(lines, layers)))


def _messages(lines: Iterable[bytes], layers: Layers) -> list[bytes]:
    """Return what stands behind the kernel's own stamps, from the kernel's first line on, where there is one."""
    found: list[bytes] = []
    begun = False
    for line in islice(lines, LOOKED_AT):
        content = without(layers.before, line)
        outer = layers.outer.regex.match(content) if layers.outer else None
        match = stamps.KERNEL.match(without(layers.between, outer[outer.re.groups]) if outer else content)
        if match is None:
            continue
        if not begun and _KERNEL_BEGINS.search(match[4], 0, MOST):
            found, begun = [], True
        if len(found) < LINES:
            found.append(match[4])
        elif begun:
            break
    return found


def _field_of(messages: Sequence[bytes]) -> re.Pattern[bytes] | None:
    """Return the fields that nearly all messages begin with: groups in brackets with a number in them, or whatever
    stands before the words of a kernel."""
    counts: Counter[int] = Counter()
    for message in messages:
        match = _FIELDS.match(message)
        counts.update(range(1, 1 + len(_ONE_FIELD.findall(match[0])) if match else 1))
    most = max((number for number, count in counts.items() if count * 5 >= 4 * len(messages)), default=0)
    if most and len(messages) >= LEAST_UNSTAMPED:
        numbered = rb"(?:" + _FIELD + rb"){%d}" % most
        named = sum(1 for message in messages if re.match(numbered + _NAME, message)) * 5 >= 4 * len(messages)
        return re.compile(numbered + (rb"(?:" + _NAME + rb")?" if named else b"") + rb" ?")
    return _learned(messages, _begins_words)


def _begins_content(line: bytes) -> tuple[int, bool] | None:
    """Return the place in a line at which its stamp begins, the host's or the kernel's (True), or words (False)."""
    host = _STAMPED_BY_HOST.search(line, 0, MOST)
    return (host.start(), True) if host else _begins_message(line)


def _begins_message(line: bytes) -> tuple[int, bool] | None:
    """Return the place at which the kernel's own stamp begins (True), or words of a kernel (False)."""
    own, words = stamps.INNER.search(line, 0, 2 * MOST), _begins_words(line)
    return (own.start(), True) if own and (words is None or own.start() < words[0]) else words


def _begins_words(line: bytes) -> tuple[int, bool] | None:
    match = stamps.TELLING.search(line, 0, 2 * MOST)
    return (match.start(), False) if match else None


def _learned(lines: Sequence[bytes], begins: Callable[[bytes], tuple[int, bool] | None]) -> re.Pattern[bytes] | None:
    """Return the prefix that stands before most of what `begins` finds. One that no stamp shows must have a sign or a
    number in it, and stand on nearly all lines."""
    filled = [line for line in lines if line.strip()]
    places = [(line[: place[0]], place[1]) for line in filled if (place := begins(line)) and place[0] < MOST]
    shapes: dict[tuple[bytes, ...], list[list[bytes]]] = {}
    for prefix, _ in places:
        pieces = _PIECE.findall(prefix)
        if 0 < len(pieces) <= PIECES:
            shapes.setdefault(tuple(_kind(piece) for piece in pieces), []).append(pieces)
    often = sorted(shapes.values(), key=len, reverse=True)[:SHAPES]
    often = [alike for alike in often if len(alike) * 10 >= len(places)]
    count = sum(len(alike) for alike in often)
    if not often or count * 2 <= len(places):
        return None
    pattern = re.compile(b"|".join(_pattern(alike) for alike in often))
    if sum(1 for _, stamped in places if stamped) >= LEAST:
        return pattern if count >= LEAST else None
    signs = all(any(kind not in (b"a", b" ") for kind in map(_kind, alike[0])) for alike in often)
    everywhere = sum(1 for line in filled if pattern.match(line)) * 5 >= 4 * len(filled)
    return pattern if count >= LEAST_UNSTAMPED and signs and everywhere else None


def _kind(piece: bytes) -> bytes:
    """Return the kind of a piece: one of _ANY_OF, or a sign itself."""
    first = piece[:1]
    if len(piece) > 1 and first == b"[":
        return first
    if is_number(first):
        return b"0"
    if first in b" \t":
        return b" "
    return b"a" if _WORD.match(first) else b"sign " + first


def _pattern(alike: Sequence[Sequence[bytes]]) -> bytes:
    """Return the pattern of prefixes of one shape: what is the same in all stands as it is, numbers may be any."""
    pattern = b""
    for column in zip(*alike, strict=True):
        kind = _kind(column[0])
        same = kind != b"0" and len(set(column)) == 1
        pattern += re.escape(column[0]) if same else _ANY_OF[kind]
    return pattern
