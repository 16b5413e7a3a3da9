# SPDX-License-Identifier: Apache-2.0
"""Notations: amounts of memory, version numbers, names of kernel modules, and JSON."""

from __future__ import annotations

import math
import re
from typing import Any

import msgspec

from vmtailor.base.text import encodable

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_FORM = re.compile(r"([0-9]{1,15})(\.[0-9]{1,9})?\s*([KMGT]?)((?:i?B)?)", re.IGNORECASE | re.ASCII)
#: A number without a unit is of MiB, unless it is as large as this: container engines take plain numbers for bytes, and
#: nothing has so many MiB.
_SURELY_BYTES = 8 << 20


def parse_size(text: str, *, needs_unit: bool = False, decimals: bool = False) -> int | None:
    """Return the bytes of a size such as `256M`, `1 GiB`, `2t`, `64` (MiB), `134217728b`; None for other text.
    `needs_unit`: a plain number is not a size; `decimals`: `1.5G` is one."""
    match = _FORM.fullmatch(text.strip())
    if match is None or (needs_unit and not match[3]) or (match[2] and not (decimals and match[3])):
        return None
    number, unit = int(match[1]), match[3].upper()
    if not unit and not match[4] and number < _SURELY_BYTES:
        unit = "M"
    return number * _UNITS[unit] + _part(match[2], unit)


def parse_docker_size(text: str) -> int | None:
    """Return the bytes of a size as container engines read it: a plain number is of bytes; None for other text."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        return None
    unit = match[3].upper()
    return int(match[1]) * _UNITS[unit] + _part(match[2], unit)


def _part(decimals: str | None, unit: str) -> int:
    """Return the bytes of the decimals of a size, such as `.5`."""
    return int(decimals[1:]) * _UNITS[unit] // 10 ** len(decimals[1:]) if decimals else 0


def size_text(size: int) -> str:
    """Return a size as options take it: 16G, 500M. A size that is no whole number of MiB is in bytes."""
    for unit in ("G", "M"):
        if size >= _UNITS[unit] and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]}{unit}"
    return f"{size} bytes"


def mebibytes(size: int) -> str:
    """Return a size in MiB, for records and messages: 256 MiB, 0.5 MiB."""
    return f"{size >> 20} MiB" if size % (1 << 20) == 0 else f"{size / (1 << 20):g} MiB"


#: Longer numbers are of no version, and of a stranger.
_LEADING = re.compile(r"\d{1,9}(?:\.\d{1,9})*", re.ASCII)


def version_key(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with, for comparison: `6.12.117-1~deb12` → (6, 12, 117). The result is
    () when it begins with none."""
    match = _LEADING.match(version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def module_name(name: str) -> str:
    """Return a module's name as the kernel has it: virtio_blk may live in virtio-blk.ko. The kernel treats dash and
    underscore alike, also in aliases."""
    return name.replace("-", "_")


def decoded_json(data: bytes | str) -> Any | None:
    """Return the value of a JSON text; None where it is no JSON, no UTF-8, or nested deeper than can be read."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def encoded_json(value: Any) -> bytes:
    """Return anything that msgspec can encode as JSON; text that UTF-8 cannot carry (a file name may be any bytes) is
    shown by number."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(value)))


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {_encodable(key): _encodable(inner) for key, inner in value.items()}
    return [_encodable(inner) for inner in value] if isinstance(value, list | tuple) else value


def finite_json(value: object) -> float | None:
    """Return a number of a JSON document as a float; None where it is no number, or beyond what a float can be."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None
