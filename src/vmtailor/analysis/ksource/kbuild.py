# SPDX-License-Identifier: Apache-2.0
"""Which file of a kernel tree is compiled under which condition, from its Makefiles.

Make is not executed: assignments, `ifdef`/`ifeq` over configuration symbols and the few functions that kernel
Makefiles use on lists of objects are read textually. What is not understood is passed over, so that a file may come
out with a weaker condition than it has, never with a wrong symbol.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from vmtailor.analysis.ksource.expr import (
    FALSE,
    TRUE,
    UNKNOWN,
    Expr,
    Symbol,
    conjunction,
    disjunction,
    negation,
)

#: Reads a file of the tree by its path below the root; None when it is not there.
Reader = Callable[[str], str | None]

_ASSIGNMENT = re.compile(
    r"\s*(?:override\s+|export\s+)?(?P<name>[\w.$(),%/-]+?(?:\s*,\s*[\w$()]+)*)\s*"
    r"(?P<op>[:+?]?:?=)\s*(?P<value>.*)$"
)
_CONFIG = re.compile(r"\$[({]CONFIG_(\w+)[)}]")
_SUBST_M = re.compile(r"\$\(subst\s+m,\s*y\s*,\s*(\$[({]CONFIG_\w+[)}])\s*\)")
_LISTS = ("obj", "lib", "core", "drivers", "net", "libs", "virt", "init")
_SUFFIX = re.compile(rf"({'|'.join(_LISTS)})-")
_FUNCTION = re.compile(r"(addprefix|addsuffix|subst|patsubst|strip|sort|filter|filter-out|if|foreach|wildcard)\b")


@dataclass(frozen=True)
class Word:
    """One word of a list, with the condition under which it is in it."""

    text: str
    condition: Expr


@dataclass
class _Makefile:
    """The lists of one Makefile: variable → words. `foo-$(CONFIG_X)` is kept as words of `foo-y` under X."""

    lists: dict[str, list[Word]] = field(default_factory=dict)

    def add(self, name: str, words: list[Word], replace: bool) -> None:
        if replace:
            self.lists[name] = words
        else:
            self.lists.setdefault(name, []).extend(words)


def logical_lines(text: str) -> Iterator[str]:
    """Lines with continuations joined, comments and recipes left out."""
    for line in text.replace("\\\n", " ").split("\n"):
        if not line.startswith("\t") or "=" in line:
            yield line.partition("#")[0].rstrip()


def _condition(keyword: str, rest: str) -> Expr:
    """The condition of ifdef, ifndef, ifeq, ifneq."""
    if keyword in ("ifdef", "ifndef"):
        name = rest.strip()
        found: Expr = Symbol(name[7:]) if name.startswith("CONFIG_") else UNKNOWN
        return negation(found) if keyword == "ifndef" else found
    match = re.match(r"\s*\((.*),([^,]*)\)\s*$", rest) or re.match(r"\s*[\"'](.*)[\"']\s+[\"'](.*)[\"']\s*$", rest)
    if match is None:
        return UNKNOWN
    left, right = (_SUBST_M.sub(r"\1", part.strip()) for part in match.groups())
    if right.startswith("$"):
        left, right = right, left
    names = _CONFIG.findall(left)
    if not names or _CONFIG.sub("", left).strip():
        return UNKNOWN
    each = [Symbol(n) for n in names]
    if right and set(right) <= {"y", "m"} and len(right) == len(names):
        found = conjunction(*each)
    elif right == "" or (right == "n" and len(names) == 1):
        found = negation(disjunction(*each))
    elif set(right) <= {"y", "m"}:
        found = disjunction(*each)
    else:
        return UNKNOWN
    return negation(found) if keyword == "ifneq" else found


def _name(raw: str) -> tuple[str, Expr]:
    """`foo-$(CONFIG_X)` → (`foo-y`, X); `foo-objs` and `foo-m` → `foo-y`."""
    raw = _SUBST_M.sub(r"\1", raw.strip())
    names = _CONFIG.findall(raw)
    base = _CONFIG.sub("", raw)
    if names:
        base = base if base.endswith("-") else base + "-"
        return (base + "y" if "$" not in base else base), conjunction(*(Symbol(n) for n in names))
    for ending in ("-objs", "-m"):
        if base.endswith(ending):
            return base.removesuffix(ending) + "-y", TRUE
    return base, TRUE


def _closing(text: str, start: int) -> int:
    """Index of the bracket that closes the one at `start`."""
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] in "({") - (text[index] in ")}")
        if depth == 0:
            return index
    return len(text) - 1


class _Expander:
    """Turns the right side of an assignment into words with conditions."""

    def __init__(self, makefile: _Makefile, folder: str) -> None:
        self._lists = makefile.lists
        self._folder = folder

    def words(self, text: str, depth: int = 0) -> list[Word]:
        if "$" not in text:
            return [Word(w, TRUE) for w in text.split()]
        if depth > 8:
            return []
        found: list[Word] = []
        for piece in _pieces(text):
            found += self._piece(piece, depth)
        return found

    def _piece(self, piece: str, depth: int) -> list[Word]:
        start = piece.find("$")
        if start < 0:
            return [Word(piece, TRUE)]
        if start + 1 >= len(piece) or piece[start + 1] not in "({":
            return []
        end = _closing(piece, start + 1)
        inner = piece[start + 2 : end]
        before, after = piece[:start], piece[end + 1 :]
        return [
            Word(before + w.text + tail.text, conjunction(w.condition, tail.condition))
            for w in self._inner(inner.strip(), depth + 1)
            for tail in (self._piece(after, depth + 1) if after else [Word("", TRUE)])
        ]

    def _inner(self, inner: str, depth: int) -> list[Word]:
        if inner in ("obj", "src", "srctree"):
            return [Word("." if inner != "srctree" else "/", TRUE)]
        if inner in ("SRCARCH", "ARCH"):
            return [Word("x86", TRUE)]
        if inner == "BITS":
            return [Word("64", TRUE)]
        if inner.startswith("CONFIG_"):
            return [Word("y", Symbol(inner[7:]))]
        match = _FUNCTION.match(inner)
        if match is None:
            return self._lists.get(_name(inner)[0], [])
        arguments = _arguments(inner[match.end() :].strip())
        return self._call(match.group(1), arguments, depth)

    def _call(self, function: str, arguments: list[str], depth: int) -> list[Word]:
        if function in ("strip", "sort"):
            return self.words(arguments[0], depth)
        if function in ("addprefix", "addsuffix") and len(arguments) == 2:
            parts = [(w.text, w.condition) for w in self.words(arguments[0], depth)]
            return [
                Word(p + w.text if function == "addprefix" else w.text + p, conjunction(c, w.condition))
                for p, c in parts
                for w in self.words(arguments[1], depth)
            ]
        if function in ("subst", "patsubst") and len(arguments) == 3:
            old, new = arguments[0].replace("%", ""), arguments[1].replace("%", "")
            prefix = function == "patsubst" and arguments[0].endswith("%")
            return [
                Word(
                    new + w.text.removeprefix(old) if prefix else w.text.replace(old, new) if old else w.text,
                    w.condition,
                )
                for w in self.words(arguments[2], depth)
            ]
        if function in ("filter", "filter-out") and len(arguments) == 2:
            return self.words(arguments[1], depth)
        if function == "if" and len(arguments) >= 2:
            tests = [w.condition for w in self.words(arguments[0], depth)]
            condition = disjunction(*tests) if tests else UNKNOWN
            chosen = [Word(w.text, conjunction(condition, w.condition)) for w in self.words(arguments[1], depth)]
            other = self.words(arguments[2], depth) if len(arguments) > 2 else []
            return chosen + [Word(w.text, conjunction(negation(condition), w.condition)) for w in other]
        return []


def _pieces(text: str) -> list[str]:
    """Split at blanks outside brackets."""
    pieces, depth, start = [], 0, 0
    for index, char in enumerate(text + " "):
        depth += (char in "({") - (char in ")}")
        if char.isspace() and depth <= 0:
            if index > start:
                pieces.append(text[start:index])
            start = index + 1
    return pieces


def _arguments(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char in "({") - (char in ")}")
        if char == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()]


def read_makefile(text: str, folder: str, read: Reader, lists: _Makefile | None = None, depth: int = 0) -> _Makefile:
    """The lists of one Makefile of folder `folder`, files it includes with it."""
    makefile = lists or _Makefile()
    expander = _Expander(makefile, folder)
    stack: list[tuple[Expr, Expr]] = []  # (present branch, negation of the branches before)
    for line in logical_lines(text):
        words = line.split(None, 1)
        keyword = words[0] if words else ""
        rest = words[1] if len(words) > 1 else ""
        if keyword.startswith(("ifeq(", "ifneq(")):
            keyword, rest = keyword.partition("(")[0], line.strip()[len(keyword.partition("(")[0]) :]
        if keyword in ("ifdef", "ifndef", "ifeq", "ifneq"):
            found = _condition(keyword, rest)
            stack.append((found, negation(found)))
        elif keyword == "else" and stack:
            _, before = stack[-1]
            more = rest.split(None, 1)
            found = _condition(more[0], more[1] if len(more) > 1 else "") if more and more[0].startswith("if") else TRUE
            stack[-1] = (conjunction(before, found), conjunction(before, negation(found)))
        elif keyword == "endif" and stack:
            stack.pop()
        elif keyword in ("include", "-include") and depth < 3:
            for word in expander.words(rest):
                inside = word.text.lstrip("/") if word.text.startswith("/") else posixpath.join(folder, word.text)
                path = posixpath.normpath(inside)
                included = read(path)
                if included is not None:
                    read_makefile(included, folder, read, makefile, depth + 1)
        elif "=" in line and (match := _ASSIGNMENT.match(_SUBST_M.sub(r"\1", line))):
            name, condition = _name(match["name"])
            condition = conjunction(*(branch for branch, _ in stack), condition)
            value = [Word(w.text, conjunction(condition, w.condition)) for w in expander.words(match["value"])]
            makefile.add(name, value, replace=match["op"] != "+=" and condition == TRUE)
    return makefile


def file_conditions(read: Reader, arch: str = "x86") -> dict[str, Expr]:
    """Source path without its ending (`fs/eventpoll`) → condition, for the whole tree.

    The same for objects from C and from assembler. Files reached in several ways have the disjunction of them.
    """
    found: dict[str, Expr] = {}
    seen: dict[str, Expr] = {}
    pending: list[tuple[str, Expr]] = []

    def visit(folder: str, makefile: _Makefile, condition: Expr, top: bool) -> None:
        for name, words in makefile.lists.items():
            if not _SUFFIX.match(name) or not name.endswith("-y"):
                continue
            if name.split("-")[0] not in ("obj", "lib") and not top:
                continue
            for word in words:
                here = conjunction(condition, word.condition)
                path = posixpath.normpath(posixpath.join("" if top else folder, word.text))
                if word.text.endswith("/"):
                    pending.append((path, here))
                elif word.text.endswith(".o"):
                    _objects(makefile, folder if not top else "", word.text, here, found, path=frozenset())

    for path, folder in (("Makefile", ""), ("Kbuild", ""), (f"arch/{arch}/Makefile", f"arch/{arch}")):
        text = read(path)
        if text is not None:
            visit(folder, read_makefile(text, folder, read), TRUE, True)
    if not any(folder == f"arch/{arch}" for folder, _ in pending):
        pending.append((f"arch/{arch}", TRUE))
    while pending:
        folder, condition = pending.pop(0)
        before = seen.get(folder, FALSE)
        combined = disjunction(before, condition)
        if combined == before or len(folder) > 200:
            continue
        seen[folder] = combined
        text = read(f"{folder}/Kbuild")
        text = text if text is not None else read(f"{folder}/Makefile")
        if text is not None:
            visit(folder, read_makefile(text, folder, read), condition, False)
    return found


def _objects(
    makefile: _Makefile, folder: str, target: str, condition: Expr, found: dict[str, Expr], *, path: frozenset[str]
) -> None:
    """Note the sources of one object: itself, and the parts of a composite one."""
    stem = target.removesuffix(".o")
    if stem in path:
        return
    parts = makefile.lists.get(f"{stem}-y", [])
    for part in parts:
        if part.text.endswith(".o"):
            _objects(makefile, folder, part.text, conjunction(condition, part.condition), found, path=path | {stem})
    source = posixpath.normpath(posixpath.join(folder, stem))
    found[source] = disjunction(found.get(source, FALSE), condition)
