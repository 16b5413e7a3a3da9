# SPDX-License-Identifier: Apache-2.0
"""Untrusted bytes → lines: terminal escapes and control characters out, mail's quoting and encodings undone, memory
bounded."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain

from vmtailor.analysis.bootlog.stamps import has_stamps
from vmtailor.base.notation import decoded_json
from vmtailor.base.text import remove_sequences, without_controls

#: A longer line is cut: no log has one, and a file of zeros is one line.
MAX_LINE = 16_384
#: Bytes of a file that are looked at to recognise it.
SAMPLE = 128 << 10
#: Bytes read at most of a file that is no stream of lines: such files are small.
MAX_TEXT = 64 << 20
#: Bytes that are made into lines at a time: each line takes as much memory as many short ones have text.
_PIECE = 256 << 10

_TEXT_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_EQUALS = re.compile(rb"=(?:([0-9A-F]{2})|(\r?\n)|)")
_ENCODED = re.compile(rb"^content-transfer-encoding: *quoted-printable", re.M | re.I)
_QUOTE = re.compile(rb"^(?:[>|:] ?){1,8}(?=\S| {2,})", re.M)


def printable(text: str, limit: int = 400) -> str:
    """Return text that can go to a terminal: no controls, no direction overrides, not too long."""
    return _TEXT_CONTROLS.sub("", text[: 4 * limit])[:limit]


def decode(raw: bytes, limit: int = 400) -> str:
    """Return bytes of a log as printable text."""
    return printable(raw[: 4 * limit].decode("utf-8", "replace"), limit)


def is_quoted_printable(sample: bytes) -> bool:
    """Return whether text is quoted-printable: each `=` is its escape, at least in the body of a mail, and there are
    some; or a header says so."""
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
    """Return whether most lines that carry a stamp stand behind a mail program's `>`."""
    quoted = len(re.findall(rb"^>++ ?+(?:> ?+)*+(?:<\d+>)?\[? *[\w.]", sample, re.M))
    filled = len(re.findall(rb"^.*\S", sample, re.M))
    return 0 < quoted == filled if quoted < 3 else quoted * 3 >= filled


def in_pieces(data: bytes | bytearray) -> Iterator[bytes]:
    """Yield data in pieces of about _PIECE bytes, each of which ends with a line."""
    at = 0
    while at < len(data):
        end = data.find(b"\n", at + _PIECE) + 1 or len(data)
        yield bytes(data[at:end])
        at = end


def joined(lines: Iterable[bytes]) -> bytes:
    """Return lines as one text. `bytes.join` takes 80 bytes more for each, which is much for many short ones."""
    text = bytearray()
    for line in lines:
        text += line
    return bytes(text)


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
        """Yield clean lines without their line feeds. Memory: one chunk and one line."""
        for block in self.blocks(chunks):
            yield from block

    def blocks(self, chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
        """Yield clean lines in lists, a chunk at a time."""
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
        block, count = remove_sequences(block)
        self.escapes += count
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if not block.isascii():
            block = block.replace(b"\xc2\xa0", b" ")
        block = without_controls(block)
        if self.quoted:
            block = _QUOTE.sub(b"", block)
        lines = block.split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        return lines


class Content:
    """The content of one file, as formats are recognised by it and read. `boot` is the one that is asked for, of a log
    with several. `cut`: how a reader saw it end where it should not."""

    def __init__(self, path: str, chunks: Iterator[bytes], boot: int = 0) -> None:
        self.path = path
        self.boot = boot
        self.cut = ""
        head: list[bytes] = []
        size = 0
        for chunk in chunks:
            head.append(chunk)
            size += len(chunk)
            if size >= SAMPLE:
                break
        self.sample = b"".join(head)[:SAMPLE]
        self._chunks: Iterator[bytes] = chain(head, chunks)

    @cached_property
    def clean(self) -> bytes:
        """Return the beginning as clean lines."""
        return b"\n".join(Cleaner(self.sample).lines(iter([self.sample])))

    @cached_property
    def beginning(self) -> str:
        """Return the beginning as text."""
        return self.clean.decode("utf-8", "replace")

    @cached_property
    def is_drawing(self) -> bool:
        """Return whether it begins as an SVG."""
        return self.clean.lstrip()[:1] == b"<" and "<svg" in self.beginning[:6000]

    @cached_property
    def is_json(self) -> bool:
        """Return whether it begins as JSON, and not as a log whose stamps stand in brackets."""
        return self.clean.lstrip()[:1] in (b"[", b"{") and not has_stamps(self.clean.split(b"\n")[:50])

    @cached_property
    def is_prose(self) -> bool:
        """Return whether it is neither JSON nor a log with stamps."""
        return not self.is_json and has_stamps(self.clean.split(b"\n")[:2000]) < 3

    def whole(self, limit: int) -> bytes:
        """Return all bytes, up to a limit."""
        pieces, size = [], 0
        for chunk in self._chunks:
            pieces.append(chunk)
            size += len(chunk)
            if size >= limit:
                break
        data = b"".join(pieces)
        self._chunks = chain([data[limit:]] if size > limit else [], self._chunks)
        return data[:limit]

    @cached_property
    def data(self) -> bytes:
        """Return all bytes, up to MAX_TEXT."""
        return self.whole(MAX_TEXT)

    def stream(self) -> Iterator[bytes]:
        """Return all bytes in pieces, for readers that need one at a time; to be called once."""
        return chain([self.data] if "data" in self.__dict__ else [], self._chunks)

    @property
    def has_more(self) -> bool:
        """Return whether something is left that was not read."""
        return next(self._chunks, b"") != b""

    def lines(self) -> Iterator[bytes]:
        """Yield the clean lines of all that `data` has."""
        return Cleaner(self.sample).lines(in_pieces(self.data))

    @cached_property
    def text(self) -> str:
        """Return all that `data` has, as clean text."""
        return "\n".join(line.decode("utf-8", "replace") for line in self.lines())

    @cached_property
    def drawing(self) -> str:
        """Return all that `data` has, as the text of a drawing."""
        if "</svg>" not in self.text[-1000:]:
            self.cut = "the drawing ends in its middle"
        return self.text

    @cached_property
    def document(self) -> object:
        """Return the document, where it is one of JSON, as far as it goes; None elsewhere."""
        if not self.is_json:
            return None
        document = decoded_json(self.data)
        if document is None and (document := _decoded_as_far(self.data)) is not None:
            self.cut = "the document ends in its middle"
        return document


def _decoded_as_far(data: bytes) -> object:
    """Return JSON whose end was lost: a list of objects, or one of them in an object, as far as its elements go. None
    when it is not that."""
    whole = data[: data.rfind(b"}") + 1]
    start = data.lstrip()[:1]
    for _ in range(2):
        if not whole or start not in (b"[", b"{"):
            return None
        document = decoded_json(whole + (b"]" if start == b"[" else b"]}"))
        if document is not None:
            return document
        whole = whole[: whole.rfind(b"}", 0, len(whole) - 1) + 1]
    return None
