# SPDX-License-Identifier: Apache-2.0
"""The text of .config files and of fragments for them. Pure: no kernel source is needed to read or write one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.regular_file import read_regular
from vmtailor.model.kernel import LostSymbol

#: Bytes of a configuration; the largest of a distribution has 300 KB.
FILE_BYTES = 8 << 20
_GIVE = "give a kernel configuration, such as /boot/config-RELEASE"
_SET = re.compile(r"^CONFIG_([A-Za-z0-9_]+)=(.*)$")
_UNSET = re.compile(r"^# CONFIG_([A-Za-z0-9_]+) is not set$")
_NAME = re.compile(r"^[A-Za-z0-9_]+$")
_PLAIN = re.compile(r"^([ymn]|-?\d+|0[xX][0-9a-fA-F]+)$")


def read(path: Path) -> bytes:
    """The content of a configuration that the user named. Raises UserInputError for what is none."""
    data = read_regular(path, "the configuration", FILE_BYTES, hint=_GIVE)
    if b"\0" in data or not any(line.startswith((b"CONFIG_", b"# CONFIG_")) for line in data.splitlines()):
        raise UserInputError(f"{path} is no kernel configuration: it has no line CONFIG_NAME=VALUE", hint=_GIVE)
    return data


def parse(text: str) -> dict[str, str]:
    """Names without CONFIG_ → values: y, m, n (for `is not set`), a number, or a string without its quotes."""
    symbols = {}
    for line in text.splitlines():
        if match := _SET.match(line):
            symbols[match[1]] = _unquote(match[2])
        elif match := _UNSET.match(line):
            symbols[match[1]] = "n"
    return symbols


def render(symbols: Mapping[str, str]) -> str:
    """The lines of a .config. Raises UserInputError for a name that cannot be one (it would end up in a makefile)."""
    lines = []
    for name, value in symbols.items():
        if not _NAME.match(name) or "\n" in value:
            raise UserInputError(f"'{name}={value}' is no configuration symbol", hint="write NAME=y, without CONFIG_")
        if value == "n":
            lines.append(f"# CONFIG_{name} is not set")
        elif _PLAIN.match(value):
            lines.append(f"CONFIG_{name}={value}")
        else:
            escaped = value.replace("\\", "\\\\").replace('"', '\\"')
            lines.append(f'CONFIG_{name}="{escaped}"')
    return "".join(f"{line}\n" for line in lines)


def lost(wanted: Mapping[str, str], resolved: Mapping[str, str]) -> tuple[LostSymbol, ...]:
    """What did not resolve as requested, in the order requested. A symbol that .config does not name is `n`."""
    return tuple(
        LostSymbol(name, value, resolved.get(name, "n"))
        for name, value in wanted.items()
        if not _same(value, resolved.get(name, "n"))
    )


def _same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return int(one, 0) == int(other, 0)
    except ValueError:
        # An empty string and a string symbol that is out of sight are the same to the code.
        return {one, other} == {"", "n"}


def _unquote(value: str) -> str:
    if len(value) >= 2 and value[0] == '"' and value[-1] == '"':
        return re.sub(r"\\(.)", r"\1", value[1:-1])
    return value
