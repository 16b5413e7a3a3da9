# SPDX-License-Identifier: Apache-2.0
"""Environment variables as container engines take them, from options and files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vmtailor.base.errors import UserInputError


def variables(files: Sequence[Path], options: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Return names and values; later ones win, so options win over files. Raises UserInputError."""
    texts = [text for path in files for text in _lines(path)]
    return tuple(variable for text in (*texts, *options) for variable in _variable(text))


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
