# SPDX-License-Identifier: Apache-2.0
"""Names of files in records that lie in a cache. A record says by the types of its fields which of them name files;
such a field is saved relative to the record's own folder, or to the cache, and is whole again when it is loaded. So a
cache can be moved, and its folders can be copied into another one."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, TypeVar

from vmtailor.base.errors import UserInputError

T = TypeVar("T")
_NAME, _WORDS = "the name of a file", "words with names of files"
#: A field with the absolute path of a file or folder; empty: none.
FileName = Annotated[str, _NAME]
#: A field with words of a command, some of which may name files.
FileWords = Annotated[str, _WORDS]
#: Stands for the cache's own folder in a record.
CACHE = "$CACHE/"

#: The caches that this process has used.
_roots: set[Path] = set()

_Change = Callable[[str, str], str]
_Walk = Callable[[Any, _Change], Any]


def announce(root: Path) -> None:
    """Take note of a cache: names in records below `root` are saved relative to it from now on."""
    _roots.add(root)


def relative(record: T, path: Path) -> T:
    """Return a record as it is saved at `path`: names in its own folder, and in the cache, without what is before them.
    A record outside of every known cache stays as it is."""
    root = _root_of(path)
    if root is None:
        return record
    own, top = f"{path.parent}/", f"{root}/"

    def change(kind: str, text: str) -> str:
        if kind == _WORDS:
            return text.replace(top, CACHE)
        if text.startswith(own):
            return text.removeprefix(own)
        return CACHE + text.removeprefix(top) if text.startswith(top) else text

    return _changed(record, change)


def resolved(record: T, path: Path) -> T:
    """Return a record that was loaded from `path` with its names made whole. A record outside of every known cache
    stays as it is. Raises UserInputError for a name that leads out of the cache."""
    root = _root_of(path)
    return record if root is None else within(record, root, path.parent)


def within(record: T, root: Path, folder: Path | None = None) -> T:
    """Return a record with its names made whole, for the cache at `root`. `folder`: where names of its own folder are;
    without one they stay as they are. Raises UserInputError for a name that leads out of there."""

    def change(kind: str, text: str) -> str:
        if kind == _WORDS:
            return text.replace(CACHE, f"{root}/")
        if text.startswith(CACHE):
            return str(root / _inner(text.removeprefix(CACHE)))
        return str(folder / _inner(text)) if text and folder is not None and not text.startswith("/") else text

    return _changed(record, change)


def _inner(name: str) -> str:
    if not name or "\0" in name or ".." in PurePosixPath(name).parts or name.startswith("/"):
        raise UserInputError("a record names a file outside of the cache", hint="make it again")
    return name


def _root_of(path: Path) -> Path | None:
    return next((root for root in _roots if path.is_relative_to(root)), None)


def _changed(record: T, change: _Change) -> T:
    kind: Any = type(record)
    walk = _walk_of(kind)
    return record if walk is None else walk(record, change)


@cache
def _walk_of(kind: Any) -> _Walk | None:
    """Return a function that changes the names in values of a type; None for a type that can have none."""
    origin = typing.get_origin(kind)
    if origin is Annotated:
        inner, *notes = typing.get_args(kind)
        word = next((note for note in notes if note in (_NAME, _WORDS)), None)
        return (lambda value, change: change(word, value)) if word is not None else _walk_of(inner)
    if origin in (typing.Union, types.UnionType):
        return _of_union(typing.get_args(kind))
    if origin is tuple:
        return _of_tuple(typing.get_args(kind))
    return _of_fields(kind) if dataclasses.is_dataclass(kind) else None


def _of_union(kinds: tuple[Any, ...]) -> _Walk | None:
    """One kind of value among None and others that have no names; records of several classes, by the class."""
    walks = [(one, walk) for one in kinds if (walk := _walk_of(one)) is not None]

    def one_of(value: Any, change: _Change) -> Any:
        for one, inner in walks:
            if isinstance(value, one) if isinstance(one, type) else value is not None:
                return inner(value, change)
        return value

    return one_of if walks else None


def _of_tuple(kinds: tuple[Any, ...]) -> _Walk | None:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        one = _walk_of(kinds[0])
        return None if one is None else lambda value, change: tuple(one(item, change) for item in value)
    walks = [_walk_of(kind) for kind in kinds]
    if not any(walks):
        return None
    return lambda value, change: tuple(
        item if walk is None else walk(item, change) for item, walk in zip(value, walks, strict=True)
    )


def _of_fields(kind: Any) -> _Walk | None:
    hints = typing.get_type_hints(kind, include_extras=True)
    walks = {
        field.name: walk for field in dataclasses.fields(kind) if (walk := _walk_of(hints[field.name])) is not None
    }

    def fields_of(record: Any, change: _Change) -> Any:
        return dataclasses.replace(
            record, **{name: inner(getattr(record, name), change) for name, inner in walks.items()}
        )

    return fields_of if walks else None
