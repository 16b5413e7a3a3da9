# SPDX-License-Identifier: Apache-2.0
"""Read the journal as `journalctl -o json`, `-o export` and `dmesg --json` print it: as the plain log it stands for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from vmtailor.analysis.bootlog import kernel_messages
from vmtailor.analysis.bootlog.boot_record import Observed
from vmtailor.analysis.bootlog.log_lines import Content, in_pieces, joined
from vmtailor.base.notation import decoded_json
from vmtailor.base.text import is_number


def read_dmesg(content: Content) -> Observed | None:
    """Read `dmesg --json`."""
    document = content.document
    return _read_log(
        content, dmesg_as_log(document.get("dmesg", ()) if isinstance(document, dict) else ()), merged=False
    )


def read_json(content: Content) -> Observed | None:
    """Read `journalctl -o json`: an object a line, or a single one."""
    return _read_log(content, entries_as_log(content.lines() if content.document is None else [content.data]))


def read_export(content: Content) -> Observed | None:
    """Read `journalctl -o export`."""
    return _read_log(content, export_as_log(content.data)) or Observed(content.path)


def _read_log(content: Content, log: bytes, *, merged: bool = True) -> Observed | None:
    """Return what the plain log says that a file stands for; None where it has no line."""
    if not log:
        return None
    observed = kernel_messages.read(Content(content.path, in_pieces(log), content.boot), merged=merged)
    observed.format, observed.is_log = "", True
    return observed


def entries_as_log(lines: Iterable[bytes]) -> bytes:
    """Return entries of the journal as lines with the kernel's stamp. What is not an entry is dropped."""
    return joined(line_of(entry) for entry in map(decoded_json, lines) if isinstance(entry, dict))


def line_of(entry: Mapping[str, object]) -> bytes:
    """Return one entry as a line with the kernel's stamp; empty when it has no message or no stamp."""
    message = _text(entry.get("MESSAGE"))
    at = entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry.get("__MONOTONIC_TIMESTAMP")
    if message is None or not isinstance(at, str) or not is_number(at) or len(at) > 15:
        return b""
    ident = _text(entry.get("SYSLOG_IDENTIFIER")) or ""
    pid = _text(entry.get("_PID")) or _text(entry.get("SYSLOG_PID")) or ""
    # Messages from before the journal ran came through the kernel, including the service manager's own.
    if ident != "kernel" and (ident or entry.get("_TRANSPORT") != "kernel"):
        message = f"{ident}[{pid}]: {message}" if pid else f"{ident}: {message}"
    return _line(int(at), message)


def dmesg_as_log(entries: Iterable[object]) -> bytes:
    """Return entries of `dmesg --json` as lines."""
    log = bytearray()
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        at, message = entry.get("time"), entry.get("msg")
        if (
            isinstance(at, bool)
            or not isinstance(at, (int, float))
            or not isinstance(message, str)
            or not 0 <= at < 1e9
        ):
            continue
        log += _line(round(at * 1e6), message)
    return bytes(log)


def _line(at_us: int, message: str) -> bytes:
    text = message.encode("utf-8", "replace").replace(b"\n", b" ")
    return b"[%5d.%06d] %s\n" % (at_us // 1_000_000, at_us % 1_000_000, text)


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(v, int) and 0 <= v < 256 for v in value):
        return bytes(value).decode("utf-8", "replace")
    return None


_NAME = re.compile(rb"[A-Z_][A-Z0-9_]{0,63}")
#: The only fields that are kept.
_WANTED = frozenset(
    {
        "MESSAGE", "_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP", "SYSLOG_IDENTIFIER", "SYSLOG_PID", "_PID",
        "_TRANSPORT",
    }
)  # fmt: skip


def export_as_log(data: bytes) -> bytes:
    """Return entries as lines with the kernel's stamp."""
    return joined(line_of(entry) for entry in entries(data))


def entries(data: bytes) -> Iterator[dict[str, object]]:
    """Yield the entries, with the fields that a log needs. One that is cut off is given as far as it goes; after damage
    the next one begins behind the next blank line."""
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
