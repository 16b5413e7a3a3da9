# SPDX-License-Identifier: Apache-2.0
"""The text of .config files and of fragments for them. Pure: no kernel source is needed to read or write one."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import read_regular

#: Bytes of a configuration; the largest of a distribution has 300 KB.
FILE_BYTES = 8 << 20
_GIVE = "give a kernel configuration: /boot/config-RELEASE, a .config, or a copy of /proc/config.gz"
_SET = re.compile(r"^CONFIG_([A-Za-z0-9_]+)=(.*)$")
_UNSET = re.compile(r"^# CONFIG_([A-Za-z0-9_]+) is not set$")
_NAME = re.compile(r"^[A-Za-z0-9_]+$")
#: As kconfig writes them: y, m, numbers, and strings in which quote and backslash are escaped.
_STRICT_SET = re.compile(
    r"CONFIG_([A-Za-z0-9_]{1,128})=([ymn]|-?\d{1,20}|0[xX][0-9a-fA-F]{1,16}|"
    r'"(?:[^"\\\x00-\x1f\x7f-\x9f\u2028\u2029]|\\["\\]){0,4096}")'
)
_AS_KCONFIG = "the configuration of a bundle is as the kernel's make wrote it; fit the image again"
_PLAIN = re.compile(r"^([ymn]|-?\d+|0[xX][0-9a-fA-F]+)$")


def read(path: Path) -> bytes:
    """Return the content of a configuration that the user named: plain, or compressed as /proc/config.gz is. Raises
    UserInputError for a file of another kind."""
    data = plain(read_regular(path, "the configuration", FILE_BYTES, hint=_GIVE), path)
    if b"\0" in data or not any(line.startswith((b"CONFIG_", b"# CONFIG_")) for line in data.splitlines()):
        raise UserInputError(f"{path} is not a kernel configuration: it has no line CONFIG_NAME=VALUE", hint=_GIVE)
    return data


def plain(data: bytes, path: Path) -> bytes:
    """Content of a configuration, unpacked where it is compressed. Raises UserInputError for what is damaged, or has
    no end."""
    if data[:2] != b"\x1f\x8b":
        return data
    unpacker = zlib.decompressobj(wbits=31)
    try:
        found = unpacker.decompress(data, FILE_BYTES + 1)
    except zlib.error as error:
        raise UserInputError(f"{path} is damaged: {error}", hint=_GIVE) from error
    if len(found) > FILE_BYTES or not unpacker.eof:
        raise UserInputError(f"{path} is damaged, or too large for a configuration", hint=_GIVE)
    return found


def parse(text: str) -> dict[str, str]:
    """Return names without CONFIG_ → values: y, m, n (for `is not set`), a number, or a string without its quotes."""
    symbols = {}
    for line in text.splitlines():
        if match := _SET.match(line):
            symbols[match[1]] = _unquote(match[2])
        elif match := _UNSET.match(line):
            symbols[match[1]] = "n"
    return symbols


def parse_strictly(data: bytes, origin: str) -> dict[str, str]:
    """Return names → values of a file that somebody else may have written. It must be exactly in kconfig's own form, so
    that nobody reads more in it than we do. Raises UserInputError, naming the line, for any other form."""
    symbols: dict[str, str] = {}
    try:
        # Only a line feed ends a line: kconfig knows no other.
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise UserInputError(f"{origin} is not a configuration: it is not UTF-8", hint=_AS_KCONFIG) from error
    for number, line in enumerate(lines, 1):
        if set_ := _STRICT_SET.fullmatch(line):
            name, value = set_[1], _unquote(set_[2])
        elif unset := _UNSET.fullmatch(line):
            name, value = unset[1], "n"
        elif not line or (line.startswith("#") and line.isprintable() and "CONFIG_" not in line):
            continue
        else:
            raise UserInputError(f"{origin}: line {number} is none of a configuration", hint=_AS_KCONFIG)
        if name in symbols:
            raise UserInputError(f"{origin}: line {number} sets CONFIG_{name} once more", hint=_AS_KCONFIG)
        symbols[name] = value
    return symbols


def render(symbols: Mapping[str, str]) -> str:
    """Return the lines of a .config. Raises UserInputError for a name that cannot be one (it would end up in a
    makefile)."""
    lines = []
    for name, value in symbols.items():
        if not _NAME.match(name) or "\n" in value:
            raise UserInputError(
                f"'{name}={value}' is not a configuration symbol", hint="write NAME=y, without CONFIG_"
            )
        if value == "n":
            lines.append(f"# CONFIG_{name} is not set")
        elif _PLAIN.match(value):
            lines.append(f"CONFIG_{name}={value}")
        else:
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'CONFIG_{name}="{escaped}"')
    return "".join(f"{line}\n" for line in lines)


def _unquote(value: str) -> str:
    if len(value) >= 2 and value[0] == '"' and value[-1] == '"':
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value
