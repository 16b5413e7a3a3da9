# SPDX-License-Identifier: Apache-2.0
"""Folders of TOML files with rows (`[[name]]`), each row a frozen dataclass: read one way, with one way to say what is
wrong in which row of which file."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vmtailor.base.errors import UserInputError

T = TypeVar("T")
#: Looks at a raw row, and raises ValueError where something in it is wrong.
Check = Callable[[dict[str, Any]], None]


def texts(name: str, folder: Traversable | Path | None = None) -> Iterator[tuple[str, str]]:
    """The files of `data/NAME` of the program, or of `folder`, in their order: what each is called in messages, and its
    text."""
    base = folder if folder is not None else resources.files("vmtailor") / "data" / name
    for file in sorted((f for f in base.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name):
        yield f"{name}/{file.name}", file.read_text(encoding="utf-8")


def document(text: str, origin: str) -> dict[str, Any]:
    """A file as tables. Raises UserInputError that names it."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserInputError(f"{origin} is not TOML: {error}") from error


def rows(tables: dict[str, Any], key: str, kind: type[T], origin: str, check: Check | None = None) -> tuple[T, ...]:
    """The rows `[[key]]` as records, each also looked at by `check`. Raises UserInputError that names file and row."""
    return tuple(_row(row, key, kind, origin, check) for row in tables.get(key, []))


def _row(row: dict[str, Any], key: str, kind: type[T], origin: str, check: Check | None) -> T:
    where = f"{origin}, {key} {row.get('id', row.get('name'))!r}"
    try:
        made = msgspec.convert(row, kind)
        if check is not None:
            check(row)
    except (msgspec.ValidationError, ValueError) as error:
        raise UserInputError(f"{where}: {error}") from error
    if strange := row.keys() - set(kind.__dataclass_fields__):  # type: ignore[attr-defined]
        raise UserInputError(f"{where}: unknown key {', '.join(sorted(strange))}")
    return made


def require_unique(ids: Iterable[str], what: str) -> None:
    """Raise UserInputError when two of these are the same. `what`: such as `rules of data/demand`."""
    seen: set[str] = set()
    for one in ids:
        if one in seen:
            raise UserInputError(f"two {what} have the id {one}", hint="rename one")
        seen.add(one)
