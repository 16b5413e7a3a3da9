# SPDX-License-Identifier: Apache-2.0
"""TOML files read into frozen dataclasses: one whole document, or folders of files with rows (`[[name]]`).

A folder of rows is read into one dataclass, whose fields are its tables:

    @dataclass(frozen=True)
    class Rules:
        calls: tuple[CallRule, ...] = toml_files.table("call", CallRule)

    rules = toml_files.load(Rules, FOLDER)  # all files of data/FOLDER
"""

from __future__ import annotations

import dataclasses
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vmtailor.base import near_names
from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain

_T = TypeVar("_T")


def read_strictly(text: str, kind: type[_T], origin: str) -> _T:
    """Read a whole file as one dataclass. Raises UserInputError that names `origin`, the table and the field."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserInputError(f"{origin} is not TOML: {error}") from error
    if strange := unknown_fields(kind, document):
        raise unknown(f"{origin}: unknown field", strange, "compare its spelling with the other files of the folder")
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise UserInputError(f"{origin}: {error}", hint="the other files of its folder have every field") from error


def unknown_fields(kind: Any, document: Mapping[str, Any]) -> dict[str, str]:
    """Return the fields of a document, and of the tables in it, that no dataclass has, by their whole names. Each has
    the field whose name is spelled like it; empty where there is none."""
    return dict(sorted(_unknown(kind, document, "")))


def misspelt(strange: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return the names that are not known, in order, each with the known one that is spelled like it, or nothing."""
    names = list(known)
    return {one: next(iter(near_names.nearest(one, names, 1)), "") for one in sorted(strange)}


def unknown(what: str, strange: Mapping[str, str], hint: str = "") -> UserInputError:
    """Return the error for names that are not known. `what`: its beginning, such as `x.toml: unknown key`."""
    meant = " and ".join(one for one in dict.fromkeys(strange.values()) if one)
    question = f"did you mean {meant}?" if meant else ""
    named = ", ".join(plain(one) for one in strange)
    return UserInputError(f"{what} {named[:_MOST_NAMED]}", hint=" ".join(part for part in (question, hint) if part))


def _unknown(kind: Any, value: Any, where: str) -> Iterator[tuple[str, str]]:
    if dataclasses.is_dataclass(kind) and isinstance(value, dict):
        hints = typing.get_type_hints(kind)
        for name, inner in value.items():
            path = f"{where}.{name}" if where else name
            if name in hints:
                yield from _unknown(hints[name], inner, path)
            else:
                yield path, misspelt([name], hints)[name]
    elif isinstance(value, list):
        for inner in value:
            for part in typing.get_args(kind):
                yield from _unknown(part, inner, where)
    elif isinstance(kind, types.UnionType):
        for part in typing.get_args(kind):
            yield from _unknown(part, value, where)


T = TypeVar("T")
#: Looks at a raw row, and raises ValueError where something in it is wrong.
Check = Callable[[dict[str, Any]], None]
#: Characters of unknown names that a message shows, at most.
_MOST_NAMED = 300
#: Key of a field's metadata.
_TABLE = "table"


def own_table(name: str) -> dict[str, Any]:
    """Return the tables of the program's own file `data/NAME.toml`."""
    return tomllib.loads((resources.files("vmtailor") / "data" / f"{name}.toml").read_text("utf-8"))


def texts(name: str, folder: Traversable | Path | None = None) -> Iterator[tuple[str, str]]:
    """Yield the files of `data/NAME` of the program, or of `folder`, in order: the name for messages, and the text."""
    base = folder if folder is not None else resources.files("vmtailor") / "data" / name
    for file in sorted((f for f in base.iterdir() if f.name.endswith(".toml")), key=lambda f: f.name):
        yield f"{name}/{file.name}", file.read_text(encoding="utf-8")


def document(text: str, origin: str) -> dict[str, Any]:
    """Return a file as tables. Raises UserInputError that names it."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserInputError(f"{origin} is not TOML: {error}") from error


def table(key: str, kind: type[T], check: Check | None = None) -> tuple[T, ...]:
    """Return a field of a dataclass: the rows `[[key]]` as records of a kind, each also checked by `check`."""
    return dataclasses.field(default=(), metadata={_TABLE: (key, kind, check)})


def _tables(kind: type[Any]) -> dict[str, tuple[str, type[Any], Check | None]]:
    """Return the fields of a dataclass that are tables: key, kind and check of their rows."""
    return {one.name: one.metadata[_TABLE] for one in dataclasses.fields(kind) if _TABLE in one.metadata}


def read(kind: type[T], text: str, origin: str) -> T:
    """Return the rows of one file, as a dataclass of tables. Raises UserInputError that names file and row."""
    raw, tables = document(text, origin), _tables(kind)
    known = {key for key, _, _ in tables.values()}
    if strange := raw.keys() - known:
        raise unknown(f"{origin}: unknown table", misspelt(strange, known))
    return kind(
        **{
            name: tuple(_row(row, key, made, origin, check) for row in raw.get(key, []))
            for name, (key, made, check) in tables.items()
        }
    )


def load(kind: type[T], name: str, folder: Traversable | Path | None = None) -> T:
    """Return the rows of all files of `data/NAME`, or of `folder`, as a dataclass of tables.

    Raises UserInputError for a malformed row, or where two rows have one id."""
    files = [read(kind, text, origin) for origin, text in texts(name, folder)]
    joined = {field: tuple(row for file in files for row in getattr(file, field)) for field in _tables(kind)}
    every = (row for rows in joined.values() for row in rows)
    require_unique((row.id for row in every if hasattr(row, "id")), f"rows of data/{name}")
    return kind(**joined)


def _row(row: dict[str, Any], key: str, kind: type[T], origin: str, check: Check | None) -> T:
    where = f"{origin}, {key} {row.get('id', row.get('name'))!r}"
    known = set(kind.__dataclass_fields__)  # type: ignore[attr-defined]
    if strange := row.keys() - known:  # before what is then missing
        raise unknown(f"{where}: unknown key", misspelt(strange, known))
    try:
        made = msgspec.convert(row, kind)
        if check is not None:
            check(row)
    except (msgspec.ValidationError, ValueError) as error:
        raise UserInputError(f"{where}: {error}") from error
    return made


def require_unique(ids: Iterable[str], what: str) -> None:
    """Raise UserInputError when two of these are the same. `what`: such as `rules of data/demand`."""
    seen: set[str] = set()
    for one in ids:
        if one in seen:
            raise UserInputError(f"two {what} have the id {one}", hint="rename one")
        seen.add(one)
