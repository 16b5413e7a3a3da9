# SPDX-License-Identifier: Apache-2.0
"""Records on disk: frozen dataclasses as versioned JSON. `schema` comes first: `vmtailor/NAME/VERSION`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import portable
from vmtailor.base.files.regular_files import read_regular, write_atomic
from vmtailor.base.notation import encoded_json
from vmtailor.base.text import plain

T = TypeVar("T")
#: Schemas of older versions that are still read, each with what makes its document one of this version.
Older = Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]
#: Longest record that is read.
MOST_BYTES = 1 << 30


def schema_of(kind: type[Any]) -> str:
    """Return the schema line of a record class: it must carry a class attribute SCHEMA such as `vmtailor/trace/1`."""
    return str(kind.SCHEMA)


def to_bytes(record: Any) -> bytes:
    """Return one record as an indented JSON document, `schema` first, with a line feed at its end."""
    document = {"schema": schema_of(type(record)), **msgspec.to_builtins(record)}
    return msgspec.json.format(encoded_json(document), indent=1) + b"\n"


def from_bytes(
    kind: type[T], data: bytes, origin: str = "record", *, hint: str = "make it again with this version of vmtailor"
) -> T:
    """Read a record back, of this version or of one in its class's OLDER. Raises UserInputError, with `hint`, when it
    is of another schema, or when it is damaged."""
    try:
        document = msgspec.json.decode(data)
        if not isinstance(document, dict):
            raise msgspec.ValidationError("not an object")
        found = document.pop("schema", None)
        older: Older = getattr(kind, "OLDER", {})
        if isinstance(found, str) and found in older:
            document = older[found](document)
        elif found != schema_of(kind):
            raise UserInputError(f"{origin} has schema {found!r}, this version reads {schema_of(kind)!r}", hint=hint)
        return msgspec.convert(document, kind)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        # A validation error quotes the value, which may be somebody else's.
        raise UserInputError(f"{origin} is damaged: {plain(str(error))}", hint="make it again") from error


def save(record: Any, path: Path, *, private: bool = False) -> None:
    """Write a record so that a reader sees the old file or the new one, never half of it. Its names of files are
    relative where it lies in a cache (base/files/portable.py). `private` as for `write_atomic`."""
    write_atomic(path, to_bytes(portable.relative(record, path)), private=private)


def load(kind: type[T], path: Path) -> T:
    """Read a record from a file, its names of files absolute. Raises UserInputError when it is missing, no file, of
    another schema or damaged."""
    try:
        data = read_regular(path, "the record", MOST_BYTES, hint="check the path")
    except UserInputError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            raise UserInputError(f"{path} does not exist", hint="check the path") from None
        raise
    return portable.resolved(from_bytes(kind, data, str(path)), path)
