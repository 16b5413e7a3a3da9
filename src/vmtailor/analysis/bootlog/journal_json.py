# SPDX-License-Identifier: Apache-2.0
"""`journalctl -o json` and `dmesg --json`, turned into the plain log they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from vmtailor.base.notation import decoded_json


def as_log(lines: Iterable[bytes]) -> bytes:
    """Entries of the journal as lines with the kernel's stamp. What is not an entry is dropped."""
    rows: list[bytes] = []
    for line in lines:
        entry = decoded_json(line)
        if isinstance(entry, dict):
            rows.append(line_of(entry))
    return b"".join(rows)


def line_of(entry: Mapping[str, object]) -> bytes:
    """One entry as a line with the kernel's stamp; empty when it has no message or no stamp."""
    message = _text(entry.get("MESSAGE"))
    at = entry.get("_SOURCE_MONOTONIC_TIMESTAMP") or entry.get("__MONOTONIC_TIMESTAMP")
    if message is None or not isinstance(at, str) or not (at.isascii() and at.isdigit()) or len(at) > 15:
        return b""
    ident = _text(entry.get("SYSLOG_IDENTIFIER")) or ""
    pid = _text(entry.get("_PID")) or _text(entry.get("SYSLOG_PID")) or ""
    # What was said before the journal ran came through the kernel, the service manager's own words among it.
    if ident != "kernel" and (ident or entry.get("_TRANSPORT") != "kernel"):
        message = f"{ident}[{pid}]: {message}" if pid else f"{ident}: {message}"
    return _line(int(at), message)


def dmesg_as_log(entries: Iterable[object]) -> bytes:
    """Entries of `dmesg --json` as lines."""
    rows: list[bytes] = []
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
        rows.append(_line(round(at * 1e6), message))
    return b"".join(rows)


def _line(at_us: int, message: str) -> bytes:
    text = message.encode("utf-8", "replace").replace(b"\n", b" ")
    return b"[%5d.%06d] %s\n" % (at_us // 1_000_000, at_us % 1_000_000, text)


def _text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(v, int) and 0 <= v < 256 for v in value):
        return bytes(value).decode("utf-8", "replace")
    return None
