# SPDX-License-Identifier: Apache-2.0
"""One Makefile and what it includes, read line by line into variables, under all configurations at once.

Make is not executed. Both branches of a condition are read, each under its condition.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass

from vmtailor.analysis.ksource.expr import FALSE, TRUE, UNKNOWN, Expr, conjunction, disjunction, negation
from vmtailor.analysis.ksource.make_functions import FUNCTIONS
from vmtailor.analysis.ksource.make_lines import Assignment, Branch, Include, lines
from vmtailor.analysis.ksource.make_values import NOT_KNOWN, KindOf, MakeScope, Reader, Word, under

#: Words of variables that stand for themselves: name → words.
Given = dict[str, Sequence[Word]]

_MOST_INCLUDED = 4
#: Variables that Makefile.build sets before it reads a folder's Makefile.
_DECLARED = ("obj-y", "obj-m", "lib-y", "lib-m", "always-y", "always-m", "targets", "subdir-y", "subdir-m")


def read_makefile(text: str, folder: str, read: Reader, kind_of: KindOf, given: Given | None = None) -> MakeScope:
    """Return the variables of the Makefile of a folder (`fs/ext4`, empty for the root), and of the files that it
    includes.

    `given`: variables from outside, such as those that the top Makefile exports; any other is empty."""
    known: Given = {
        "srctree": [Word(".", TRUE)], "objtree": [Word(".", TRUE)],
        "src": [Word(folder or ".", TRUE)], "obj": [Word(folder or ".", TRUE)],
        "need-builtin": NOT_KNOWN, "need-modorder": NOT_KNOWN, **(given or {}),
    }  # fmt: skip
    scope = MakeScope(kind_of, lambda name: known.get(name, ()), FUNCTIONS, read)
    scope.declare(*_DECLARED)
    _Walk(scope, read).text(text, TRUE, 0)
    return scope


@dataclass(slots=True)
class _Level:
    """One open condition: that of its present branch, and the negation of all branches before."""

    branch: Expr
    not_before: Expr


class _Walk:
    def __init__(self, scope: MakeScope, read: Reader) -> None:
        self._scope = scope
        self._read = read

    def text(self, text: str, base: Expr, depth: int) -> None:
        """Take the lines of a file that is read under the condition `base`."""
        levels: list[_Level] = []
        for line in lines(text):
            here = conjunction(base, *(level.branch for level in levels))
            if isinstance(line, Branch):
                self._branch(line, levels, here)
            elif here == FALSE:
                continue
            elif isinstance(line, Include):
                self._include(line, here, depth)
            else:
                self._assign(line, here)

    def _branch(self, line: Branch, levels: list[_Level], here: Expr) -> None:
        if line.keyword == "endif":
            if levels:
                levels.pop()
        elif not line.is_else:
            # A condition in a branch that is never read is not asked: it may compare what is not there.
            condition = self._condition(line) if here != FALSE else FALSE
            levels.append(_Level(condition, negation(condition)))
        elif levels:
            top = levels[-1]
            condition = TRUE if line.keyword == "else" else self._condition(line)
            top.branch = conjunction(top.not_before, condition)
            top.not_before = conjunction(top.not_before, negation(condition))

    def _condition(self, line: Branch) -> Expr:
        if line.left is None:
            return UNKNOWN
        if line.keyword in ("ifdef", "ifndef"):
            found = self._defined(line.left)
        elif line.right is None:
            return UNKNOWN
        else:
            found = self._equal(line.left, line.right)
        return negation(found) if line.keyword in ("ifndef", "ifneq") else found

    def _defined(self, name: str) -> Expr:
        each = self._scope.texts(name)
        return disjunction(*(
            conjunction(condition, UNKNOWN if text is None else self._scope.defined(text)) for condition, text in each
        ))  # fmt: skip

    def _equal(self, left: str, right: str) -> Expr:
        if not left or not right:
            return negation(self._scope.nonempty(left or right))
        pairs = []
        others = self._scope.texts(right)
        for condition, text in self._scope.texts(left):
            for also, other in others:
                if text is None or other is None:
                    pairs.append(conjunction(condition, also, UNKNOWN))
                elif text == other:
                    pairs.append(conjunction(condition, also))
        return disjunction(*pairs)

    def _include(self, line: Include, here: Expr, depth: int) -> None:
        for word in self._scope.words(line.text) if depth < _MOST_INCLUDED else ():
            text = self._read(posixpath.normpath(word.text)) if word.text is not None else None
            if text is not None:
                self.text(text, conjunction(here, word.condition), depth + 1)

    def _assign(self, line: Assignment, here: Expr) -> None:
        if "$" not in line.name:
            self._scope.set(line.name, line.operator, line.value, here)
            return
        for condition, name in self._scope.texts(line.name):
            if name is not None:
                self._scope.set(name.strip(), line.operator, line.value, conjunction(here, condition))
            else:
                self._to_some_list(line, conjunction(here, condition))

    def _to_some_list(self, line: Assignment, here: Expr) -> None:
        """A name whose end is not known (`obj-$(shell …)`): its words may be in the list built in, or in no list."""
        start = line.name.partition("$")[0]
        if start.endswith("-"):
            doubtful = conjunction(here, UNKNOWN)
            for ending in ("y", "m"):
                self._scope.add_words(start + ending, under(doubtful, self._scope.words(line.value)))
