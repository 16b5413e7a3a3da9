# SPDX-License-Identifier: Apache-2.0
"""`journalctl -o export`: entries of `NAME=value` lines with a blank line between them. A value that is not plain text
comes as its name alone on a line, eight bytes of its length (little-endian), its bytes, and a line feed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from vmtailor.analysis.bootlog.journal_json import line_of

#: An entry begins with its cursor, or, from other writers of the format, with its time.
_START = re.compile(rb"\s*__(?:CURSOR|REALTIME_TIMESTAMP|MONOTONIC_TIMESTAMP)=[^\n]*\n")
_STAMP = re.compile(rb"^__MONOTONIC_TIMESTAMP=\d{1,15}$", re.MULTILINE)
_NAME = re.compile(rb"[A-Z_][A-Z0-9_]{0,63}")
#: The only fields that are kept.
_WANTED = frozenset(
    {
        "MESSAGE", "_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP", "SYSLOG_IDENTIFIER", "SYSLOG_PID", "_PID",
        "_TRANSPORT",
    }
)  # fmt: skip


def recognise(sample: bytes) -> bool:
    """Whether a file begins as an export does."""
    return bool(_START.match(sample) and _STAMP.search(sample))


def as_log(data: bytes) -> bytes:
    """Entries as lines with the kernel's stamp."""
    return b"".join(line_of(entry) for entry in entries(data))


def entries(data: bytes) -> Iterator[dict[str, object]]:
    """The entries, with the fields that a log needs. One that is cut off is given as far as it goes; after damage the
    next one begins behind the next blank line."""
    entry: dict[str, object] = {}
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        line, at = data[at:end], end + 1
        if not line:
            if entry:
                yield entry
            entry = {}
            continue
        name, equals, value = line.partition(b"=")
        if not _NAME.fullmatch(name):
            continue
        if not equals:
            size = int.from_bytes(data[at : at + 8], "little")
            if size > len(data) - at - 8:  # cut off, or no length at all
                continue
            value, at = data[at + 8 : at + 8 + size], at + 9 + size
        if (key := name.decode("ascii")) in _WANTED:
            entry.setdefault(key, value.decode("utf-8", "replace"))
    if entry:
        yield entry
