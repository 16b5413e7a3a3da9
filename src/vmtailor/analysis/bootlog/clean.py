# SPDX-License-Identifier: Apache-2.0
"""Untrusted bytes → lines: terminal escapes and control characters out, mail's quoting and encodings undone, memory
bounded."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Iterator

from vmtailor.base import escapes

#: A longer line is cut: no log has one, and a file of zeros is one line.
MAX_LINE = 16_384

_TEXT_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_EQUALS = re.compile(rb"=(?:([0-9A-F]{2})|(\r?\n)|)")
_ENCODED = re.compile(rb"^content-transfer-encoding: *quoted-printable", re.M | re.I)
_QUOTE = re.compile(rb"^(?:[>|:] ?){1,8}(?=\S| {2,})", re.M)


def printable(text: str, limit: int = 400) -> str:
    """Text that can go to a terminal: no controls, no direction overrides, not too long."""
    return _TEXT_CONTROLS.sub("", text[: 4 * limit])[:limit]


def decode(raw: bytes, limit: int = 400) -> str:
    """Bytes of a log as printable text."""
    return printable(raw[: 4 * limit].decode("utf-8", "replace"), limit)


def is_quoted_printable(sample: bytes) -> bool:
    """Whether `=` only occurs as the escape of quoted-printable, and does so, at least in the body of a mail; or a
    header says so."""
    if _ENCODED.search(sample):
        return b"=3D" in sample or b"=20" in sample or b"=\n" in sample or b"=\r\n" in sample
    body = re.split(rb"\r?\n\r?\n", sample, maxsplit=1)[1:]
    return _only_escapes(sample) or (bool(body) and _only_escapes(body[0]))


def _only_escapes(sample: bytes) -> bool:
    hits = _EQUALS.findall(sample)
    escapes = sum(1 for hex_pair, newline in hits if hex_pair or newline)
    telling = sample.count(b"=3D") + sample.count(b"=\n") + sample.count(b"=\r\n")
    return telling >= 2 and escapes >= 0.9 * len(hits)


def is_mail_quoted(sample: bytes) -> bool:
    """Whether most lines that carry a stamp stand behind a mail program's `>`."""
    quoted = len(re.findall(rb"^>+ ?(?:> ?)*(?:<\d+>)?\[? *[\w.]", sample, re.M))
    filled = len(re.findall(rb"^.*\S", sample, re.M))
    return 0 < quoted == filled if quoted < 3 else quoted * 3 >= filled


class Cleaner:
    """Turns chunks of a file into clean lines. `escapes` counts terminal escape sequences taken out."""

    def __init__(self, sample: bytes) -> None:
        if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
            self._encoding: str | None = "utf-16"
        else:
            self._encoding = None
        self.quoted_printable = is_quoted_printable(sample)
        if self.quoted_printable:
            sample = binascii.a2b_qp(sample)
        self.quoted = is_mail_quoted(sample)
        self.escapes = 0
        self.cut = 0
        self.unended = b""  # a last line without a line feed

    def lines(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Clean lines without their line feeds. Memory: one chunk and one line."""
        for block in self.blocks(chunks):
            yield from block

    def blocks(self, chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
        """The same in lists, a chunk at a time."""
        if self._encoding:
            chunks = self._transcode(chunks)
        rest = b""
        for chunk in chunks:
            rest += chunk
            cut = rest.rfind(b"\n") + 1
            while cut and self.quoted_printable and rest[:cut].rstrip(b"\r\n").endswith(b"="):
                cut = rest.rfind(b"\n", 0, cut - 1) + 1
            if cut:
                whole, rest = rest[:cut], rest[cut:]
                yield self._clean(whole)
            if len(rest) > 4 * MAX_LINE:
                self.cut += 1
                yield self._clean(rest[:MAX_LINE])
                rest = rest[-MAX_LINE:]
        if rest:
            self.unended = rest[:MAX_LINE]
            yield self._clean(rest)

    def _transcode(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        import codecs

        decoder = codecs.getincrementaldecoder(self._encoding or "utf-8")("replace")
        for chunk in chunks:
            yield decoder.decode(chunk).encode()

    def _clean(self, block: bytes) -> list[bytes]:
        if self.quoted_printable:
            block = binascii.a2b_qp(block)
        block, count = escapes.count_and_remove(block)
        self.escapes += count
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not block.isascii():
            block = block.replace(b"\xc2\xa0", b" ")
        block = escapes.without_controls(block)
        if self.quoted:
            block = _QUOTE.sub(b"", block)
        lines = block.split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        return lines
