# SPDX-License-Identifier: Apache-2.0
"""Lists in TOML, our own form (docs/reference/fleet-list.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import tomli_w

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import toml_files
from vmtailor.base.files.regular_files import read_regular
from vmtailor.base.text import plain
from vmtailor.drivers.image.documents import shown
from vmtailor.fleet.lists import list_exercises, list_text
from vmtailor.fleet.lists.list_text import ListText
from vmtailor.fleet.lists.sizes import SizeError, span_of
from vmtailor.fleet.model.entry import FleetEntry, FleetList, ListForm, ValueFrom, Variable
from vmtailor.model import architecture, option_values
from vmtailor.model.option_rows import CPUS
from vmtailor.stages import exercise_file

T = TypeVar("T")
HINT = "vmtailor help fleet-list shows every key"
_PRIORITY_MAX = 1_000_000
_DIGEST = "sha256:"


@dataclass(frozen=True)
class _Wishes:
    """Keys of an image that `[defaults]` has, too. None: not said."""

    margins: str | list[str] | None = None
    memory: str | None = None
    cpus: int | None = None
    architecture: str | None = None
    machine: str | None = None
    kernel: str | None = None
    keep: list[str] | None = None
    drop: list[str] | None = None
    priority: int | None = None
    limit: str | float | None = None


@dataclass(frozen=True)
class _Image(_Wishes):
    reference: str = ""
    name: str = ""
    digest: str = ""
    exercise: str | dict[str, Any] = ""
    entrypoint: list[str] | None = None
    cmd: list[str] | None = None
    privileged: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    env_file: str | list[str] = ""


@dataclass(frozen=True)
class _Document:
    image: list[_Image] = field(default_factory=list)
    defaults: _Wishes = field(default_factory=_Wishes)


def read(whole: ListText) -> FleetList:
    """Return the list in a TOML file. Raises UserInputError that names the image and the key."""
    document = _document(whole)
    list_text.require_few(len(document.image), whole.path)
    entries, places = [], []
    for number, row in enumerate(document.image, 1):
        entry = _entry(row, document.defaults, f"{whole.path}: image {number}", whole)
        entries.append(entry)
        places.append((entry.name, f"image {number}"))
    list_text.require_apart(places, whole.path)
    return FleetList(path=whole.path, form=ListForm.TOML, sha256=whole.sha256, entries=tuple(entries))


def values_of(whole: ListText, number: int) -> dict[str, str]:
    """Return the values of the variables that a list holds for its image of this number, from 0. They are for its
    container alone, never for a record, a log or a page."""
    return dict(_document(whole).image[number].environment)


def _document(whole: ListText) -> _Document:
    try:
        tables = exercise_file.decoded(whole.text.encode())
    except RecursionError:
        raise UserInputError(f"{whole.path} is not TOML that can be read: it is nested too deep", hint=HINT) from None
    except ValueError as error:
        raise UserInputError(f"{whole.path} is not TOML: {plain(str(error))[:300]}", hint=HINT) from error
    if strange := toml_files.unknown_fields(_Document, tables):
        raise toml_files.unknown(f"{whole.path}: not known:", strange, HINT)
    try:
        return msgspec.convert(tables, _Document)
    except msgspec.ValidationError as error:
        raise UserInputError(f"{whole.path}: {plain(str(error))[:300]}", hint=HINT) from None


def _entry(row: _Image, defaults: _Wishes, where: str, whole: ListText) -> FleetEntry:
    if not row.reference:
        raise UserInputError(f"{where} has no reference", hint=HINT)
    reference = list_text.reference_of(row.reference, whole.folder, where)
    name = list_text.require_name(row.name or list_text.name_from(reference), where)
    where = f"{where} ({name})"
    wishes = _Wishes(**{
        one.name: getattr(defaults if getattr(row, one.name) is None else row, one.name) for one in fields(_Wishes)
    })  # fmt: skip
    text, origin = _exercise(row.exercise, where, whole)
    if text:
        list_exercises.require_sound(text, origin, system=reference.startswith("disk:"))
    said = [wishes.margins] if isinstance(wishes.margins, str) else wishes.margins
    return FleetEntry(
        name=name,
        reference=reference,
        digest=_digest(row.digest, reference, where),
        exercise=text,
        exercise_origin=origin,
        margins=None if said is None else _checked(option_values.margins, said, f"{where}: margins"),
        **_machine(wishes, where),
        kernel=wishes.kernel or "",
        keep=tuple(wishes.keep or ()),
        drop=tuple(wishes.drop or ()),
        entrypoint=None if row.entrypoint is None else tuple(row.entrypoint),
        cmd=None if row.cmd is None else tuple(row.cmd),
        privileged=row.privileged,
        priority=_priority(wishes.priority or 0, where),
        limit_s=None if wishes.limit is None else _limit(wishes.limit, where),
        environment=_variables(row),
    )


def _machine(wishes: _Wishes, where: str) -> dict[str, Any]:
    if wishes.architecture:
        _checked(architecture.named, wishes.architecture, f"{where}: architecture")
    if wishes.machine and wishes.machine not in architecture.every_board():
        known = ", ".join(architecture.every_board())
        raise UserInputError(f"{where}: no machine {shown(wishes.machine, 40)} is known", hint=f"known: {known}")
    if wishes.cpus is not None and not CPUS.least <= wishes.cpus <= CPUS.most:  # type: ignore[operator]
        raise UserInputError(f"{where}: cpus must be from {CPUS.least} to {CPUS.most}", hint=HINT)
    memory = wishes.memory
    return {
        "architecture": wishes.architecture or "",
        "machine": wishes.machine or "",
        "cpus": wishes.cpus,
        "memory_bytes": None if memory is None else _checked(option_values.parse_memory, memory, f"{where}: memory"),
    }


def _checked(read_: Callable[[Any], T], value: Any, where: str) -> T:
    """Return a value as an option of `fit` would read it, with the place in its error."""
    try:
        return read_(value)
    except UserInputError as error:
        raise UserInputError(f"{where}: {error.message}", hint=error.hint) from error


def _digest(given: str, reference: str, where: str) -> str:
    held = list_text.digest_of(reference)
    if not given:
        return held
    if not list_text.digest_of(f"@{given}"):
        raise UserInputError(f"{where}: digest must be {_DIGEST} and 64 hexadecimal digits in lower case", hint=HINT)
    if held and held != given:
        raise UserInputError(f"{where}: reference and digest name two images", hint="leave one of the two out")
    if not reference.startswith("docker://"):
        raise UserInputError(f"{where}: digest is for an image of a registry", hint="leave it out")
    return given


def _exercise(given: str | dict[str, Any], where: str, whole: ListText) -> tuple[str, str]:
    """Return the text of an exercise and its origin: a file beside the list, or a table in it."""
    if isinstance(given, dict):
        return tomli_w.dumps(given), f"{where}: exercise"
    if not given:
        return "", ""
    path = whole.folder / Path(given)
    data = read_regular(path, f"the exercise of {where},", exercise_file.FILE_BYTES, hint=HINT)
    try:
        return data.decode("utf-8-sig"), str(path)
    except UnicodeDecodeError as error:
        raise UserInputError(f"{path} is not text in UTF-8", hint="save it as UTF-8") from error


def _priority(given: int, where: str) -> int:
    if abs(given) > _PRIORITY_MAX:
        raise UserInputError(f"{where}: priority must be from -{_PRIORITY_MAX} to {_PRIORITY_MAX}", hint=HINT)
    return given


def _limit(given: str | float, where: str) -> float:
    try:
        seconds = span_of(given, 0.0)
    except SizeError as error:
        raise UserInputError(f"{where}: limit: {error}", hint="write it as 30m or 2h") from error
    if not 1 <= seconds <= 30 * 86400:
        raise UserInputError(f"{where}: limit must be from one second to 30 days", hint="write it as 30m or 2h")
    return seconds


def _variables(row: _Image) -> tuple[Variable, ...]:
    files = [row.env_file] if isinstance(row.env_file, str) else row.env_file
    named = [Variable(plain(name)[:200], ValueFrom.LIST) for name in row.environment]
    return (*named, *(Variable("*", ValueFrom.FILE, plain(one)[:200]) for one in files if one))
