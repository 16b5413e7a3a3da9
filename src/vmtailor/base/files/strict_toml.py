# SPDX-License-Identifier: Apache-2.0
"""TOML → frozen dataclasses, where each field must be known, and each that has no default must be there."""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from vmtailor.base.errors import UserInputError

_T = TypeVar("_T")


def read(text: str, kind: type[_T], origin: str) -> _T:
    """Read a whole file as one dataclass. Raises UserInputError that names `origin`, the table and the field."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserInputError(f"{origin} is not TOML: {error}") from error
    if strange := sorted(_unknown(kind, document, "")):
        raise UserInputError(f"{origin}: unknown field {', '.join(strange)}", hint="is it spelt as in the others?")
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise UserInputError(f"{origin}: {error}", hint="the other files of its folder have every field") from error


def _unknown(kind: Any, value: Any, where: str) -> Iterator[str]:
    """The fields of a table, and of the tables in it, that no dataclass has."""
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        for name, inner in value.items():
            path = f"{where}.{name}" if where else name
            if name in hints:
                yield from _unknown(hints[name], inner, path)
            else:
                yield path
    elif isinstance(value, list):
        for inner in value:
            for part in typing.get_args(kind):
                yield from _unknown(part, inner, where)
    elif isinstance(kind, types.UnionType):
        for part in typing.get_args(kind):
            yield from _unknown(part, value, where)
