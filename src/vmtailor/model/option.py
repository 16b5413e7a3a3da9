# SPDX-License-Identifier: Apache-2.0
"""One row of the table of options: its names, its help, what it applies to, and if a result depends on it.

A record of options has one field for each, made by `option`. The command line, the refusals, the keys of the cache and
the reference are made from these rows; rows that several verbs share stand in `model/option_rows.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from enum import Enum, unique
from typing import TYPE_CHECKING, Any

from vmtailor.base.cache.store import digest
from vmtailor.base.errors import UserInputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@unique
class OptionSubject(Enum):
    """A kind of thing that a verb works on; the value is how a refusal names it, and what it advises."""

    IMAGE = ("the image {}", "leave it out: it is for a system with an init of its own")
    TREE = ("{}, a system with an init of its own", "leave it out: it is for images")
    DISK = ("{}, a disk of a system with an init of its own", "leave it out: it is for images")
    CONTAINER = ("{}, the bundle of a container", "leave it out: it is for systems with an init of their own")
    SYSTEM = (
        "{}, the bundle of a system with an init of its own",
        "leave it out: the system has its own kernel, and starts what it is there for",
    )
    TRACED_FOLDER = ("the work folder {}, whose records say it", "give it to vmtailor trace IMAGE -o FOLDER")
    PLANNED_FOLDER = (
        "the work folder {}, whose records say it",
        "vmtailor plan takes --keep, --drop, --margin, --terminal; everything else is for vmtailor trace",
    )
    BUILT_FOLDER = (
        "the work folder {}, whose records say it",
        "--keep, --drop, --margin and --terminal are for vmtailor plan; everything else is for vmtailor trace",
    )
    FITTED = (
        "{}, a bundle with a kernel, a root and an exercise of its own",
        "leave it out: vmtailor fit chooses its machine",
    )
    MACHINE = ("{}", "leave it out")
    EXERCISED = (
        "a boot of {} with --exercise, which says when the system is ready and what is right",
        "leave it out, or boot without --exercise",
    )
    WATCHED = (
        "a boot of {} with --requests, which starts the disk's own kernel in a way of its own",
        "give the disk, --requests and --ready",
    )

    def phrase(self, subject: str) -> str:
        """Return the words for one subject of this kind."""
        return str(self.value[0]).format(subject)

    @property
    def hint(self) -> str:
        return str(self.value[1])


@unique
class Suggests(Enum):
    """A kind of words that a shell suggests for the value of an option or argument."""

    NOTHING = "nothing"
    FILES = "files"
    FOLDERS = "folders"
    IMAGES = "images"
    #: References to bundles and family kernels, which no engine's store has.
    ARTEFACTS = "artefacts"
    MACHINES = "machines"
    VOLUMES = "volumes"
    #: A folder of the host or a volume, up to the first colon.
    MOUNTS = "mounts"
    #: A file of the host, or a machine and a colon.
    COPIES = "copies"
    MONITORS = "monitors"
    TARGETS = "targets"
    MARGINS = "margins"
    KEPT = "kept"
    SIGNALS = "signals"
    CHANGES = "changes"
    PAGES = "pages"


ANY = frozenset(OptionSubject)
IMAGES = frozenset({OptionSubject.IMAGE})
SYSTEMS = frozenset({OptionSubject.TREE, OptionSubject.DISK})
#: Subjects that are fetched before it is known if they are images or systems.
FETCHED = frozenset({OptionSubject.IMAGE, OptionSubject.TREE})
FITS = IMAGES | SYSTEMS


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option, or one argument (its name begins without a dash), of the command line.

    `type`: of one value as it is given; `read` turns what was given into the field's value, and raises UserInputError.
    `many`: it may be repeated; `commas`: one value may also hold several, between commas, or as `parts` takes it
    apart. `former`: names that it had,
    understood and hidden. `verbs`: those of its record's verbs that have it; empty for all. `unkeyed`: the reason why
    no result depends on it; empty where one does, so that the cache's key has it. `hint`: the next command for who
    gave it where it does not apply; empty for the hint of the kind of subject. `suggests`: a kind of words, or the
    words, that a shell offers for a value; None for those of its type."""

    name: str
    help: str
    type: Any = str
    short: str = ""
    former: tuple[str, ...] = ()
    metavar: str = ""
    least: float | None = None
    most: float | None = None
    many: bool = False
    commas: bool = False
    parts: Callable[[str], Sequence[str]] | None = None
    read: Callable[[Any], Any] | None = None
    verbs: frozenset[str] = frozenset()
    subjects: frozenset[OptionSubject] = ANY
    unkeyed: str = ""
    hint: str = ""
    suggests: Suggests | tuple[str, ...] | None = None

    @property
    def is_argument(self) -> bool:
        return not self.name.startswith("-")

    def value(self, given: Any) -> Any:
        """Return the field's value for what was given on the command line. Raises UserInputError."""
        if self.many:
            taken = self.parts or (lambda text: text.split(","))
            words = (part.strip() for text in given for part in taken(text)) if self.commas else given
            given = tuple(dict.fromkeys(word for word in words if word)) if self.commas else tuple(words)
        return given if self.read is None else self.read(given)


def option(row: Option, default: Any = MISSING, **changes: Any) -> Any:
    """Return the field of a record that holds this option's value. `changes`: what differs from the shared row."""
    return field(default=default, metadata={"option": replace(row, **changes) if changes else row})


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


def rows_of(record: DataclassInstance | type[DataclassInstance]) -> Iterator[tuple[Field[Any], Option]]:
    """Yield the fields of a record that hold options, each with its row."""
    for one in fields(record):
        row = row_of(one)
        if row is not None:
            yield one, row


def unkeyed(one: Field[Any]) -> str:
    """Return the reason why no result depends on a field; empty where the key has it."""
    row = row_of(one)
    return str(one.metadata.get("unkeyed", "")) if row is None else row.unkeyed


def given(record: DataclassInstance) -> tuple[tuple[Option, str], ...]:
    """Return the options of a record whose values differ from their defaults, each with the words that give it; those
    too that the record says were given (`asked`)."""
    asked = getattr(record, "asked", ())
    return tuple(
        (row, _spelled(row, value))
        for one, row in rows_of(record)
        if one.default is not MISSING and ((value := getattr(record, one.name)) != one.default or one.name in asked)
    )


def refuse(record: DataclassInstance, kind: OptionSubject, subject: object) -> None:
    """Raise UserInputError for options that this kind of subject has no use for. `subject`: as it was given."""
    others = [(row, words) for row, words in given(record) if kind not in row.subjects]
    if others:
        hint = next((row.hint for row, _ in others if row.hint), kind.hint)
        raise refusal(tuple(words for _, words in others), kind, subject, hint)


def refusal(names: tuple[str, ...], kind: OptionSubject, subject: object, hint: str = "") -> UserInputError:
    """Return the error for options that do not apply to a subject."""
    do = "does" if len(names) == 1 else "do"
    return UserInputError(f"{', '.join(names)} {do} not go with {kind.phrase(str(subject))}", hint=hint or kind.hint)


def result_key(record: DataclassInstance) -> str:
    """Return the digest of everything in the record that a result depends on."""
    return digest(*(f"{one.name}={getattr(record, one.name)!r}" for one in fields(record) if not unkeyed(one)))


def _spelled(row: Option, value: object) -> str:
    if value is False:
        return f"--no-{row.name.removeprefix('--')}"
    return f"{row.name} {value.value}" if isinstance(value, Enum) else row.name
