# SPDX-License-Identifier: Apache-2.0
"""Values of variables that a list only names, looked up on the worker that needs them: in its folder of secrets, or in
its own environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files.regular_files import read_regular
from vmtailor.base.text import plain
from vmtailor.fleet.model.entry import FleetEntry, ValueFrom, Variable
from vmtailor.pipeline import run_environment

#: Names the folder of secrets of a worker, to its slots.
FOLDER = "VMTAILOR_SECRETS"
#: Begins the names of a worker's own variables that hold values.
PREFIX = "VMTAILOR_SECRET_"
#: Bytes of one value, or of one file of variables; values of one folder.
_MOST_BYTES, _MOST_FILES = 1 << 17, 1000
_EVERY = "*"


def required(folder: Path) -> Path:
    """Return the absolute path of a folder of secrets. Raises UserInputError where there is none."""
    if not folder.is_dir():
        raise UserInputError(f"--secrets: {folder} is no folder", hint="DIR/SECRET/KEY holds a value")
    return folder.absolute()


def found(entry: FleetEntry, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the values that an entry needs and its list has not. `environment`: of this worker. Raises HostError for
    one that is not here: another worker may have it."""
    own = os.environ if environment is None else environment
    folder = Path(own[FOLDER]) if own.get(FOLDER) else None
    values: dict[str, str] = {}
    for one in entry.environment:
        if one.source in (ValueFrom.LIST, ValueFrom.RUNNING):
            continue
        try:
            pairs = list(_values(one, folder, own))
        except (OSError, UserInputError) as error:
            raise _missing(entry, one, _why(error)) from None
        if not pairs and not one.optional:
            raise _missing(entry, one, "it is not here")
        values |= dict(pairs)
    return values


def _values(one: Variable, folder: Path | None, own: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if one.name != _EVERY and (value := own.get(f"{PREFIX}{one.name}")) is not None:
        yield one.name, value
        return
    path = None if folder is None else _path(one, folder)
    if path is None or not path.exists():
        return
    if not one.name.endswith(_EVERY):
        yield one.name, _text(path)
    elif one.source is ValueFrom.FILE:
        yield from run_environment.variables((path,), ())
    else:  # as Kubernetes mounts it: a file for each key, beside links of its own
        names = sorted(inner.name for inner in path.iterdir() if not inner.name.startswith(".."))
        for name in names[:_MOST_FILES]:
            if (path / name).is_file() and "=" not in name:
                yield f"{one.name.removesuffix(_EVERY)}{name}", _text(path / name)


def _path(one: Variable, folder: Path) -> Path | None:
    """Return the file or the folder with the values of a variable; None where its place leads out of the folder."""
    name, _, key = one.place.partition(", key ")
    parts = [part for part in Path(name).parts if part != os.sep]
    if not parts or ".." in parts or "/" in key or key == "..":
        return None
    if one.source is ValueFrom.FILE and not folder.joinpath(*parts).exists():
        parts = parts[-1:]
    return folder.joinpath(*parts, *([key] if key and one.source is not ValueFrom.FILE else []))


def _text(path: Path) -> str:
    """Return a value as its file has it, without a line's end behind it. Raises UserInputError."""
    try:
        return read_regular(path, "the value", _MOST_BYTES).decode().removesuffix("\n")
    except UnicodeDecodeError as error:
        raise UserInputError(f"{path} is not UTF-8 text") from error


def _why(error: Exception) -> str:
    if isinstance(error, UserInputError):
        return error.message
    return (error.strerror if isinstance(error, OSError) else None) or type(error).__name__


def _missing(entry: FleetEntry, one: Variable, why: str) -> HostError:
    what = f"the variables of {one.source} {one.place}" if one.name.endswith(_EVERY) else f"{one.name} ({one.place})"
    place = plain(one.place.replace(", key ", "/"))
    also = "" if one.name.endswith(_EVERY) else f", or {PREFIX}{one.name} in the worker's environment"
    return HostError(
        f"{entry.name}: {plain(what)} cannot be given to its container on this worker: {why}",
        hint=f"--secrets DIR of fleet worker, or of fleet fit with --on local:N: DIR/{place}{also}",
    )
