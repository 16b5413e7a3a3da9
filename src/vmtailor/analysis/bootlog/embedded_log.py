# SPDX-License-Identifier: Apache-2.0
"""Read console logs that stand within something else: a cloud's JSON or XML, a JSON object a line, base64, text whose
line ends are escaped."""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from itertools import islice

from vmtailor.analysis.bootlog import kernel_messages
from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.log_lines import MAX_TEXT, Content, in_pieces, joined
from vmtailor.base.notation import decoded_json

#: How deep a console's text lies in a document at most, and how many values are looked at.
_DEPTH, _VALUES = 6, 100_000
#: Bytes of base64 that are enough to judge it by, and the fewest that a log has.
_JUDGED, _FEWEST = 4096, 160
_SPACE = b" \t\r\n\v\f"
_BASE64 = re.compile(rb"[A-Za-z0-9+/\s]*+={0,2}\s*+")
_ELEMENT = re.compile(rb"<(?:\w{1,20}:)?output>([^<]*+)", re.IGNORECASE)
#: Line ends as JSON, Python and shells write them, before something that a console says.
_ESCAPED_END = re.compile(rb"\\n(?:<\d{1,3}>)?\[ {0,5}\d{1,6}\.\d{3,6}\]")
_ESCAPE = re.compile(rb'\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|([nrtbf"/\'\\]))')
_SIGNS = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"", b"f": b""}
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?")


def read_document(content: Content) -> Observed | None:
    """Read the console's text in a document of JSON: its longest string, where that is a log. None elsewhere."""
    values = islice(_values(content.document, _DEPTH), _VALUES)
    texts = (value for value in values if isinstance(value, str) and len(value) >= _FEWEST)
    log = max(texts, key=len, default="").encode("utf-8", "replace")
    return _read(content, unpacked(log) or log, "JSON")


def read_lines(content: Content) -> Observed | None:
    """Read a JSON object a line, as container engines and collectors store what was printed. None elsewhere."""
    entries = map(decoded_json, content.lines())
    return _read(content, joined(_line_of(entry) for entry in entries if isinstance(entry, dict)), "JSON")


def _line_of(entry: dict[object, object]) -> bytes:
    """Return what an object says: its field of that name, behind the moment that another one gives."""
    said = next((entry[name] for name in ("log", "message", "msg", "MESSAGE", "line", "text") if name in entry), None)
    if not isinstance(said, str):
        return b""
    moment = next((v for v in entry.values() if isinstance(v, str) and _MOMENT.fullmatch(v)), "")
    line = f"{moment} {said}" if moment else said
    return line.rstrip("\r\n").replace("\n", " ").encode("utf-8", "replace") + b"\n"


def is_base64(content: Content) -> bool:
    """Return whether a file is base64 of a log, by itself or in the element that a cloud gives a console's text in."""
    return unpacked(_packed(content.sample), _JUDGED) is not None


def read_base64(content: Content) -> Observed | None:
    """Read base64 of a log."""
    return _read(content, unpacked(_packed(content.data)) or b"", "base64")


def _packed(data: bytes) -> bytes:
    element = _ELEMENT.search(data) if data.lstrip()[:1] == b"<" else None
    return (element[1] if element else data).strip(b'" \t\r\n')


def unpacked(data: bytes, limit: int = MAX_TEXT) -> bytes | None:
    """Return the log that base64 stands for, as far as it goes; None where it is no base64, or no log's."""
    head = data[:_JUDGED]
    if len(head) < _FEWEST or not _BASE64.fullmatch(head):
        return None
    text = data[:limit].translate(None, _SPACE)
    try:
        log = binascii.a2b_base64(text[: len(text) // 4 * 4])
    except binascii.Error:
        return None
    return log if _is_log(log[:_JUDGED]) else None


def is_escaped(content: Content) -> bool:
    """Return whether a file is text whose line ends are escaped, more of them than are not."""
    hits = len(_ESCAPED_END.findall(content.sample))
    return hits >= 3 and hits > content.sample.strip().count(b"\n")


def read_escaped(content: Content) -> Observed | None:
    """Read text whose line ends are escaped."""
    data, log, at = content.data, bytearray(), 0
    for match in _ESCAPE.finditer(data):
        log += data[at : match.start()] + _sign(match)
        at = match.end()
    return _read(content, log + data[at:], "escaped")


def _sign(match: re.Match[bytes]) -> bytes:
    digits = match[1] or match[2]
    if digits:
        return chr(int(digits, 16)).encode("utf-8", "replace")
    return _SIGNS.get(match[3], match[3])


def _is_log(data: bytes) -> bool:
    """Return whether the beginning of unpacked text is a console's: lines of text, some of them known."""
    printed = sum(byte >= 0x20 or byte in b"\t\r\n\x1b" for byte in data)
    return b"\n" in data and printed * 100 >= 95 * len(data)


def _values(document: object, depth: int) -> Iterator[object]:
    """Yield all values of a document, in its order."""
    yield document
    if depth and isinstance(document, (dict, list)):
        for inner in document.values() if isinstance(document, dict) else document:
            yield from _values(inner, depth - 1)


def _read(content: Content, log: bytes | bytearray, within: str) -> Observed | None:
    """Return what a console's text says; None where it says nothing that is known."""
    if b"\n" not in log:
        return None
    observed = kernel_messages.read(Content(content.path, in_pieces(log), content.boot))
    if not observed.kernel_seen:
        return None
    observed.format = f"{observed.format} ({within})"
    return observed
