# SPDX-License-Identifier: Apache-2.0
"""Name the one option that decides about a place in the source: of all that its condition needs, the most specific."""

from __future__ import annotations

import posixpath
from collections.abc import Callable

from vmtailor.analysis.ksource.expr import UNKNOWN, And, Equals, Expr, Or, Symbol, disjunction

#: symbol → the folders whose Kconfig files define it.
FoldersOf = Callable[[str], frozenset[str]]
#: A longer list of alternatives names no option.
_MOST_ALTERNATIVES = 3


def needed_symbols(condition: Expr) -> list[str]:
    """Return the symbols that must be set wherever a condition holds, the most general first."""
    if isinstance(condition, Symbol | Equals):
        return [condition.name]
    if isinstance(condition, And):
        return list(dict.fromkeys(name for one in condition.operands for name in needed_symbols(one)))
    if isinstance(condition, Or):
        each = [needed_symbols(one) for one in condition.operands]
        return [name for name in each[0] if all(name in other for other in each[1:])]
    return []


def own_option(file: Expr, line: Expr, path: str, folders_of: FoldersOf) -> tuple[str, ...]:
    """Return the option that decides about a line of a file: one, alternatives, or none where every kernel has it.

    Of the conditions around the line counts one that is defined beside the file; `PCI` around a line of a network
    driver does not. Folders of a Makefile come before files: the last symbol is the file's own."""
    if isinstance(file, Or):  # a way to be linked that cannot be read is no more likely than the one that can
        file = disjunction(*(one for one in file.operands if one != UNKNOWN))
    around = needed_symbols(line)
    of_file = needed_symbols(file)
    beside = [name for name in around if any(_is_beside(folder, path) for folder in folders_of(name))]
    if beside:
        return (beside[-1],)
    if of_file:
        return (of_file[-1],)
    if isinstance(file, Or):
        each = [needed_symbols(one) for one in file.operands]
        if all(each) and len(each) <= _MOST_ALTERNATIVES:
            return tuple(dict.fromkeys(names[-1] for names in each))
    return (around[-1],) if around else ()


def _is_beside(folder: str, path: str) -> bool:
    """Return whether a Kconfig file's folder is that of a source, or above it within its subsystem (an
    architecture's is for all of it)."""
    here = posixpath.dirname(path)
    is_subsystem = folder.count("/") >= 1 and not folder.startswith("arch/")
    return folder == here or (is_subsystem and here.startswith(folder + "/"))
