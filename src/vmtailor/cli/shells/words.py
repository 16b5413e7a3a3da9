# SPDX-License-Identifier: Apache-2.0
"""The words of the command line, described for a shell: verbs, options, arguments, and the words of each value."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from pathlib import Path

from vmtailor.base import manual
from vmtailor.cli.signature import Parameter
from vmtailor.cli.verbs import VERBS, Verb
from vmtailor.model.guest_mounts import GROUPS
from vmtailor.model.margin import NONE, Margin
from vmtailor.model.option import Option, Suggests

#: Names of arguments that are a bundle's folder.
_BUNDLES = ("BUNDLE", "FOLDER", "RUN")
#: Prefixes of image references; a path may follow the first five directly.
IMAGE_WORDS = (
    "oci:", "oci-archive:", "docker-archive:", "rootfs:", "disk:", "docker://", "docker-daemon:", "containers-storage:",
)  # fmt: skip
#: Prefixes of references to artefacts: bundles and family kernels.
ARTEFACT_WORDS = ("oci:", "oci-archive:", "docker://")
#: Signals that are sent by hand.
_SIGNALS = ("HUP", "INT", "QUIT", "KILL", "USR1", "USR2", "TERM", "WINCH")
_DATA = resources.files("vmtailor") / "data"


@dataclass(frozen=True)
class Value:
    """The words that a value may be: of a kind that the shell looks up, or those in `words`, where `kind` is NOTHING.

    `commas`: several values may stand in one word, between commas."""

    kind: Suggests
    words: tuple[str, ...] = ()
    commas: bool = False


@dataclass(frozen=True)
class Flag:
    """An option. `value`: None for a switch; `many`: it may be repeated; `says`: the first sentence of its help."""

    names: tuple[str, ...]
    value: Value | None
    many: bool
    says: str


@dataclass(frozen=True)
class Argument:
    """An argument. `many`: the last one, which takes all that follow."""

    name: str
    value: Value
    many: bool


@dataclass(frozen=True)
class Words:
    """The words of a verb. `mixed`: options may stand behind arguments."""

    verb: str
    says: str
    flags: tuple[Flag, ...]
    arguments: tuple[Argument, ...]
    mixed: bool


#: The program's own options.
PROGRAM_FLAGS = (
    Flag(("--debug",), None, False, "Log every command that is run, and show tracebacks."),
    Flag(("--version",), None, False, "Print the version and exit."),
    Flag(("-h", "--help"), None, False, "Show help and exit."),
)


def all_words() -> tuple[Words, ...]:
    """Return the words of every verb. Loads them all."""
    return tuple(words_of(verb) for verb in VERBS)


def words_of(verb: Verb) -> Words:
    """Return the words of a verb."""
    rows = verb.parameters()
    help_flag = Flag(verb.help_names, None, False, "Show help and exit.")
    return Words(
        verb=verb.name,
        says=verb.help,
        flags=(*(_flag(one) for one in rows if not one.row.is_argument), help_flag),
        arguments=_arguments(one.row for one in rows if one.row.is_argument),
        mixed=verb.mixed,
    )


def _flag(one: Parameter) -> Flag:
    names = (*([one.row.short] if one.row.short else []), *one.names)
    value = None if one.row.type is bool else value_of(one.row)
    return Flag(names, value, one.row.many, first_sentence(one.row.help))


def _arguments(rows: Iterable[Option]) -> tuple[Argument, ...]:
    """Return a verb's arguments. Where one of many stands before the last, every place but the first may be the last's,
    so that is offered there: a reference may be a path, too."""
    rows = tuple(rows)
    several = any(row.many for row in rows)
    return tuple(Argument(row.name, value_of(row), several and row is rows[-1]) for row in rows)


def value_of(row: Option) -> Value:
    """Return what a row's value may be."""
    suggests = row.suggests
    if isinstance(suggests, tuple):
        return Value(Suggests.NOTHING, suggests, row.commas)
    if suggests is None:
        return _of_type(row)
    words = _fixed(suggests)
    kind = Suggests.NOTHING if words else suggests
    return Value(kind, words, row.commas or suggests is Suggests.KEPT)


def _of_type(row: Option) -> Value:
    if isinstance(row.type, type) and issubclass(row.type, Enum):
        return Value(Suggests.NOTHING, tuple(str(one.value) for one in row.type))
    if row.type is not Path:
        return Value(Suggests.NOTHING)
    return Value(Suggests.FOLDERS if row.name in _BUNDLES else Suggests.FILES)


def _fixed(kind: Suggests) -> tuple[str, ...]:
    """Return the words of a kind that are known beforehand; none for a kind that the shell looks up."""
    if kind is Suggests.MARGINS:
        return (NONE, *(one.value for one in Margin), "+".join(one.value for one in Margin))
    if kind is Suggests.PAGES:
        return (*manual.pages(), *(verb.name for verb in VERBS))
    if kind in (Suggests.MONITORS, Suggests.CHANGES, Suggests.TARGETS):
        return _rows(kind.value)
    return {Suggests.KEPT: tuple(GROUPS), Suggests.SIGNALS: _SIGNALS}.get(kind, ())


def _rows(folder: str) -> tuple[str, ...]:
    files = (one.name for one in (_DATA / folder).iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml")))


def first_sentence(text: str) -> str:
    """Return the first sentence of a help text, which shells show beside an option."""
    return re.split(r"(?<=\.)\s+(?=[A-Z\"'`])", " ".join(text.split()), maxsplit=1)[0]
