# SPDX-License-Identifier: Apache-2.0
"""One row of the table of options: its names, its help, what it applies to, and if a result depends on it.

The records of `pipeline/options.py` have one field for each option, made by `option`. The command line, the refusals,
the keys of the cache and the reference are made from these rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, field, fields
from enum import Enum
from typing import TYPE_CHECKING, Any

from vmtailor.base.cache.store import digest
from vmtailor.base.errors import UserInputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class OptionSubject(Enum):
    """A kind of thing that a verb works on; the value is how a refusal names it, and what it advises."""

    IMAGE = ("an image", "leave it out: it is for a system with an init of its own")
    TREE = ("a system with an init of its own", "leave it out: it is for images")
    DISK = ("a system on a disk", "leave it out: it is for images")

    @property
    def phrase(self) -> str:
        return self.value[0]

    @property
    def hint(self) -> str:
        return self.value[1]


ANY = frozenset(OptionSubject)
IMAGES = frozenset({OptionSubject.IMAGE})
SYSTEMS = frozenset({OptionSubject.TREE, OptionSubject.DISK})
#: What is fetched before it is known if it is an image or a system.
FETCHED = frozenset({OptionSubject.IMAGE, OptionSubject.TREE})


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of the command line, whatever the verbs that have it.

    `unkeyed`: the reason why no result depends on it; empty where one does, so that the cache's key has it. `hint`: the
    next command for who gave it where it does not apply; empty for the hint of the kind of subject."""

    name: str
    help: str = ""
    subjects: frozenset[OptionSubject] = ANY
    unkeyed: str = ""
    hint: str = ""


def option(row: Option, default: Any = MISSING, *, factory: Callable[[], Any] | None = None) -> Any:
    """Return the field of a record that holds this option's value."""
    if factory is not None:
        return field(default_factory=factory, metadata={"option": row})
    return field(default=default, metadata={"option": row})


def internal(unkeyed: str, default: Any = MISSING, *, factory: Callable[[], Any] | None = None) -> Any:
    """Return a field that is no option of the user's, and that no result depends on, for the reason given."""
    if factory is not None:
        return field(default_factory=factory, metadata={"unkeyed": unkeyed})
    return field(default=default, metadata={"unkeyed": unkeyed})


def row_of(one: Field[Any]) -> Option | None:
    """Return the row of the option that a field holds, or None for an internal field."""
    row = one.metadata.get("option")
    assert row is None or isinstance(row, Option)
    return row


def unkeyed(one: Field[Any]) -> str:
    """Return the reason why no result depends on a field; empty where the key has it."""
    row = row_of(one)
    return str(one.metadata.get("unkeyed", "")) if row is None else row.unkeyed


def given(record: DataclassInstance) -> tuple[tuple[Option, str], ...]:
    """Return the options of a record whose values differ from their defaults, each with the words that give it."""
    return tuple(
        (row, _spelled(row, value)) for one, row in _rows(record) if _differs(one, value := getattr(record, one.name))
    )


def refuse(record: DataclassInstance, kind: OptionSubject, subject: str) -> None:
    """Raise UserInputError for options that this kind of subject has no use for. `subject`: as it was given."""
    others = [(row, words) for row, words in given(record) if kind not in row.subjects]
    if others:
        names = ", ".join(words for _, words in others)
        hint = next((row.hint for row, _ in others if row.hint), kind.hint)
        raise UserInputError(f"{names}: not for {kind.phrase}, and {subject} is one", hint=hint)


def result_key(record: DataclassInstance) -> str:
    """Return the digest of everything in the record that a result depends on."""
    return digest(*(f"{one.name}={getattr(record, one.name)!r}" for one in fields(record) if not unkeyed(one)))


def _rows(record: DataclassInstance) -> Iterator[tuple[Field[Any], Option]]:
    for one in fields(record):
        row = row_of(one)
        if row is not None:
            yield one, row


def _spelled(row: Option, value: object) -> str:
    if value is False:
        return f"--no-{row.name.removeprefix('--')}"
    return f"{row.name} {value.value}" if isinstance(value, Enum) else row.name


def _differs(one: Field[Any], value: object) -> bool:
    if one.default is not MISSING:
        return bool(value != one.default)
    return one.default_factory is MISSING or bool(value != one.default_factory())
