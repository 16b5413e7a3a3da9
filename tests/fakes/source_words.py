# SPDX-License-Identifier: Apache-2.0
"""The words that the program's code uses: its names and its texts, without comments and docstrings."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import vmtailor

PACKAGE = Path(vmtailor.__file__).parent


def words(tree: ast.AST) -> list[tuple[int, str]]:
    """Return each name and each text of a module, with its line."""
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in prose:
                found.append((node.lineno, text))
            case ast.Constant(value=bytes(data)):
                found.append((node.lineno, data.decode("latin-1")))
            case ast.Name(id=name) | ast.Attribute(attr=name):
                found.append((node.lineno, name))
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.append((node.lineno, name))
            case ast.keyword(arg=str(name), lineno=line):
                found.append((line, name))
            case ast.arg(arg=name, lineno=line):
                found.append((line, name))
            case ast.alias(name=name, lineno=line):
                found.append((line, name))
    return found


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the syntax tree of each file of the package. Tests that look at all of them share one process."""
    return {path: ast.parse(path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))}


@cache
def _words() -> dict[Path, list[tuple[int, str]]]:
    return {path: words(tree) for path, tree in trees().items()}


def using(pattern: re.Pattern[str], *, outside: str) -> list[str]:
    """Return the places whose names or texts match a pattern, but for files below a folder of the package."""
    return [
        f"{path.relative_to(PACKAGE)}:{line}: {word}"
        for path, found in _words().items()
        if not path.is_relative_to(PACKAGE / outside)
        for line, word in found
        if pattern.search(word)
    ]
