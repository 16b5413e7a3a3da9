# SPDX-License-Identifier: Apache-2.0
"""Environment variables as container engines take them, from options and files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.booting import given_environment
from vmtailor.booting.given_environment import GivenEnvironment
from vmtailor.model.option import Option


def variables(files: Sequence[Path], options: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return names and values; later ones win, so options win over files. Raises UserInputError."""
    texts = [text for path in files for text in _lines(path)]
    return tuple(variable for text in (*texts, *options) for variable in _variable(text))


def given(options: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return names and values of variables for a container that is fitted. Raises UserInputError."""
    return variables((), options)


def names(asked: Sequence[str]) -> tuple[str, ...]:
    """Return names of variables whose values nobody may read. Raises UserInputError, without the value, for a name
    with one."""
    for name in asked:
        if not name or "=" in name or "\0" in name:
            raise UserInputError(
                f"--secret-env takes a name alone, not '{plain(name.partition('=')[0])[:64]}=…'",
                hint="put the value into a variable of your environment",
            )
    return tuple(dict.fromkeys(asked))


#: Variables of a container that is fitted, or verified.
ENV = Option(
    name="--env", short="-e", many=True, metavar="NAME=VALUE", read=given, help="Give the container this variable."
)
SECRET_ENV = Option(
    name="--secret-env", many=True, metavar="NAME", read=names,
    help="Give the container your variable of this name, and keep its value out of what is written.",
)  # fmt: skip
#: Values of secret variables that were not found in the environment of this process.
_known: dict[str, str] = {}


def know(values: Mapping[str, str]) -> None:
    """Take the values of secret variables from here before the environment of this process is asked."""
    _known.update(values)


def begin(plain_ones: Sequence[tuple[str, str]], secret: Sequence[str]) -> None:
    """Give every container that this process boots from now on plain variables, and secret ones by their names. Raises
    UserInputError for one without a value."""
    found = []
    for name in secret:
        value = _known.get(name, os.environ.get(name))
        if value is None:
            raise UserInputError(f"the secret variable {name} has no value", hint=f"export {name} first")
        found.append((name, value))
    for name, value in (*plain_ones, *found):
        if "\0" in value or "\0" in name:
            raise UserInputError(f"the variable {plain(name)[:64]} holds a NUL", hint="no variable can hold one")
    given_environment.begin(GivenEnvironment(tuple(plain_ones), tuple(found)))


def _variable(text: str) -> tuple[tuple[str, str], ...]:
    """Return a variable: NAME=VALUE sets it; NAME alone passes ours on if it is set, as container engines do."""
    name, equals, value = text.partition("=")
    if not name or "\0" in text:
        raise UserInputError(f"'{text}' is not a variable", hint="write it as NAME=VALUE")
    if equals:
        return ((name, value),)
    return ((name, os.environ[name]),) if name in os.environ else ()


def _lines(path: Path) -> list[str]:
    """Return the variables of a file: a line each, blanks before it dropped; empty lines and those that begin with # do
    not count. Values are taken as they are, quotation marks included."""
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UserInputError(f"the file of variables {path} cannot be read: {why}", hint="check --env-file") from error
    found = []
    for number, line in enumerate(text.split("\n"), start=1):
        variable = line.lstrip().removesuffix("\r")
        if not variable or variable.startswith("#"):
            continue
        name = variable.partition("=")[0]
        if not name or any(c.isspace() for c in name):
            raise UserInputError(
                f"{path}, line {number}: '{name}' is not a valid variable name", hint="write each line as NAME=VALUE"
            )
        found.append(variable)
    return found
