# SPDX-License-Identifier: Apache-2.0
"""The package's regular expressions, found over its syntax trees, and inputs made from the structure of each."""

import ast
import functools
import importlib
import itertools
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from re import _constants as sre  # type: ignore[attr-defined]  # typeshed leaves the parser's own names out
from re import _parser  # type: ignore[attr-defined]  # the same
from typing import Any

import vmtailor

ROOT = Path(vmtailor.__file__).parent
_ONLY_PATTERNS = {"search", "match", "fullmatch", "finditer"}  # texts have the others, too
METHODS = ("search", "match", "fullmatch", "finditer", "findall", "split", "sub", "subn")
DEAR_S = 0.00006  # of 1 KB; a pattern that never goes back takes less
ENDLESS_S = 0.1
BOUNDED = 300  # a repetition of at most this many is a factor, no growth
_CATEGORIES = {"CATEGORY_DIGIT": "0", "CATEGORY_SPACE": " \n", "CATEGORY_WORD": "a0_"}
_OTHERS = "a 0\n-\"\\./<>=:,;()[]{}#'A_\0"


@dataclass(frozen=True)
class Site:
    """Where the package asks for a pattern: a call of `re.compile`, or of another function of `re`."""

    file: str
    line: int
    called: str
    methods: tuple[str, ...]
    tree: ast.expr = field(compare=False, repr=False)
    flags: tuple[ast.expr, ...] = field(compare=False, repr=False, default=())

    def pattern(self) -> re.Pattern[str] | re.Pattern[bytes] | None:
        """Return the pattern when it follows from the names of its module alone, else None."""
        module = importlib.import_module("vmtailor." + self.file.removesuffix(".py").replace("/", "."))
        code = ast.Expression(ast.Call(ast.Name("_compile_", ast.Load()), [self.tree, *self.flags], []))
        ast.fix_missing_locations(code)
        try:
            found = eval(compile(code, self.file, "eval"), {**vars(module), "_compile_": re.compile})  # our own source
        except (NameError, AttributeError):
            return None
        assert isinstance(found, re.Pattern)
        return found


@functools.cache
def sites() -> list[Site]:
    """Return every place of the package that asks for a pattern, with the methods by which it is used."""
    trees = {str(p.relative_to(ROOT)): ast.parse(p.read_text("utf-8")) for p in sorted(ROOT.rglob("*.py"))}
    named: dict[str, set[str]] = {}
    for tree in trees.values():
        for name, method in _uses(tree):
            if not name.startswith("_"):
                named.setdefault(name, set()).add(method)
    return [site for file, tree in trees.items() for site in _sites_of(file, tree, named)]


def _sites_of(file: str, tree: ast.Module, named: dict[str, set[str]]) -> Iterator[Site]:
    names = {id(call): name for name, call in _assigned(tree)}
    private: dict[str, set[str]] = {}
    for name, method in _uses(tree):
        private.setdefault(name, set()).add(method)
    anonymous = {m for name, found in private.items() if name not in names.values() for m in found} & _ONLY_PATTERNS
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "re"):
            continue
        called = node.func.attr
        if called == "compile":
            methods = _how(names.get(id(node), ""), private, named) or anonymous or {"search"}
            flags = node.args[1:2]
        elif called in METHODS:
            methods = {called}
            at = 3 + (called in ("sub", "subn")) if called in ("sub", "subn", "split") else 2
            flags = node.args[at : at + 1]
        else:
            continue
        flags += [word.value for word in node.keywords if word.arg == "flags"]
        anchored = tuple(sorted(methods & {"match", "fullmatch"}))
        how = anchored if len(anchored) == len(methods) else ("finditer", *anchored[:1])
        yield Site(file, node.lineno, called, how, node.args[0], tuple(flags))


def _how(name: str, private: dict[str, set[str]], named: dict[str, set[str]]) -> set[str]:
    return private.get(name, set()) | named.get(name, set()) if name else set()


def _assigned(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Yield each name of a module that is given a pattern, or a table of them, and each call inside."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and isinstance(node.value, ast.Call):
                    yield target.id, node.value


def _uses(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield (the last name before the dot, the method) of each use of a method that patterns have."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            below = node.value
            if isinstance(below, ast.Name) and below.id != "re":
                yield below.id, node.attr
            elif isinstance(below, ast.Attribute):
                yield below.attr, node.attr
            elif not isinstance(below, ast.Name | ast.Constant):
                yield "", node.attr


# Inputs. A path to a repetition is what has to stand before it; what it repeats is the pump.


@dataclass(frozen=True)
class Input:
    """A text that makes a pattern go back: a part that is repeated, between two that are not."""

    head: str
    pump: str
    end: str

    def text(self, size: int) -> str:
        """Return it with about `size` characters."""
        return self.head + self.pump * (size // len(self.pump)) + self.end


def inputs(pattern: re.Pattern[str] | re.Pattern[bytes]) -> list[Input]:
    """Return the texts that make a pattern go back as far as its repetitions let it."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = _parser.parse(text, pattern.flags & ~re.UNICODE)
    first = "".join(dict.fromkeys(_literals(tree)))
    made: dict[Input, None] = {}
    for before, body, after in _repetitions(list(tree), "", ""):
        for pump in _pumps(body, before[:1] + after[:1] + first):
            for head in dict.fromkeys((before, "")):
                for end in dict.fromkeys(("", "\n\0", after)):
                    made[Input(head, pump, end)] = None
            for joined in dict.fromkeys((before + pump, before + pump + " ", before + pump + "\n")):
                made[Input("", joined, "")] = None
                made[Input("", joined, after)] = None
            made[Input("", before + pump + after[:-1], "")] = None
    return list(made)


def _literals(items: object) -> Iterator[str]:
    for op, value in items:  # type: ignore[attr-defined]  # the parser's own tree
        if op in (sre.LITERAL, sre.NOT_LITERAL):
            yield chr(value)
        elif op is sre.IN:
            for kind, what in value:
                if kind is sre.LITERAL:
                    yield chr(what)
        else:
            for below in _below(op, value):
                yield from _literals(below)


def _below(op: object, value: object) -> list[Any]:
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return [value[2]]  # type: ignore[index]  # the parser's own tree, here and below
    if op is sre.SUBPATTERN:
        return [value[3]]  # type: ignore[index]
    if op is sre.BRANCH:
        return list(value[1])  # type: ignore[index]
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        return [value[1]]  # type: ignore[index]
    if op is sre.ATOMIC_GROUP:
        return [value]
    return []


def _repetitions(items: list, before: str, after: str) -> Iterator[tuple[str, list, str]]:  # type: ignore[type-arg]
    """Yield (an example of what stands before, what is repeated, an example of what follows) per repetition."""
    for at, (op, value) in enumerate(items):
        rest = _example(items[at + 1 :]) + after
        head = before + _example(items[:at])
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            _, most, body = value
            if most > BOUNDED:
                yield head, list(body), rest
            yield from _repetitions(list(body), head, rest)
        else:
            for below in _below(op, value):
                yield from _repetitions(list(below), head, rest)


def _example(items: object, wanted: str = "") -> str:
    """Return a short text of the shape of `items`, with `wanted` in place of a class that accepts it."""
    made = []
    for op, value in items:  # type: ignore[attr-defined]
        if op is sre.LITERAL:
            made.append(chr(value))
        elif op in (sre.NOT_LITERAL, sre.IN, sre.ANY):
            made.append(next((c for c in wanted + _OTHERS if _accepts(op, value, c)), "") or _of_class(value))
        elif op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            made.append(_example(value[2], wanted) * max(value[0], 1))
        elif op is sre.BRANCH:
            made.append(next(filter(None, (_example(b, wanted) for b in value[1])), ""))
        elif op in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
            made.append(_example(_below(op, value)[0], wanted))
    return "".join(made)


def _of_class(value: list) -> str:  # type: ignore[type-arg]
    for kind, what in value:
        if kind is sre.LITERAL:
            return chr(what)
        if kind is sre.RANGE:
            return chr(what[0])
    return "a"


def _accepts(op: object, value: object, character: str) -> bool:
    code = ord(character)
    if op is sre.LITERAL:
        return code == value
    if op is sre.NOT_LITERAL:
        return code != value
    if op is sre.ANY:
        return True
    negated = False
    for kind, what in value:  # type: ignore[attr-defined]
        if kind is sre.NEGATE:
            negated = True
        elif (kind is sre.LITERAL and what == code) or (kind is sre.RANGE and what[0] <= code <= what[1]):
            return not negated
        elif kind is sre.CATEGORY:
            name = str(what)
            inside = _in_category(name.replace("NOT_", ""), character)
            if inside != ("NOT_" in name):
                return not negated
    return negated


def _in_category(name: str, character: str) -> bool:
    if "DIGIT" in name:
        return character.isdecimal()
    if "SPACE" in name:
        return character.isspace()
    return character.isalnum() or character == "_"


def _pumps(body: list, wanted: str) -> list[str]:  # type: ignore[type-arg]
    """Return at most seven texts that a repetition may take, those first that the rest of the pattern knows, too."""
    made: dict[str, None] = {}
    for character in wanted + _OTHERS:
        made.setdefault(_example(body, character), None)
        for branch in (b for op, value in body for b in (_below(op, value) if op is sre.BRANCH else ())):
            made.setdefault(_example(branch, character), None)
    return [text for text in itertools.islice(made, 8) if text]


# Times.


class TooLongError(Exception):
    pass


def stop(*_: object) -> None:
    raise TooLongError


def goes_back(pattern: re.Pattern[str] | re.Pattern[bytes], method: str) -> Input | None:
    """Return an input whose cost grows faster than its length, or None."""
    return next((given for given in inputs(pattern) if _grows(pattern, method, given)), None)


def _grows(pattern: re.Pattern[str] | re.Pattern[bytes], method: str, given: Input) -> bool:
    """Return whether the last two doublings cost each nearly three times as much, where 1 KB is dear at all.

    A host whose processor is taken away only adds to a time, so the least of up to three rounds counts: a cost that
    doubles is let be at once, and one that grows is asked three times."""
    if _seconds(pattern, method, given, 1000) < DEAR_S:
        return False
    least: dict[int, float] = {}
    for _ in range(3):
        for size, tries in ((1000, 2), (2000, 3), (4000, 3), (8000, 2)):
            least[size] = min(least.get(size, ENDLESS_S), _seconds(pattern, method, given, size, tries))
            if least[1000] < DEAR_S:
                return False
            if least[size] > ENDLESS_S / 2:
                break
        if list(least.values())[-1] > ENDLESS_S / 2:
            continue
        if any(later < 2.3 * earlier for earlier, later in itertools.pairwise(list(least.values())[1:])):
            return False
    spent = list(least.values())
    return spent[-1] > ENDLESS_S / 2 or all(later > 2.8 * earlier for earlier, later in itertools.pairwise(spent[1:]))


def _seconds(
    pattern: re.Pattern[str] | re.Pattern[bytes], method: str, given: Input, size: int, tries: int = 1
) -> float:
    """Return the least processor time of some tries; each is stopped after a tenth of a second."""
    text = given.text(size)
    call = _call(pattern, method, text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace"))
    spent = []
    for _ in range(tries):
        signal.setitimer(signal.ITIMER_PROF, ENDLESS_S)
        begin = time.thread_time()
        with suppress(TooLongError):
            call()
        spent.append(time.thread_time() - begin)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return min(spent)


def processor_s(call: Callable[[], object], tries: int = 3) -> float:
    """Return the least processor time, in seconds, that a call took."""
    spent = []
    for _ in range(tries):
        begin = time.thread_time()
        call()
        spent.append(time.thread_time() - begin)
    return min(spent)


def _call(pattern: re.Pattern, method: str, text: str | bytes) -> Callable[[], object]:  # type: ignore[type-arg]
    if method in ("sub", "subn"):
        return lambda: pattern.sub(text[:0], text)
    if method == "finditer":
        return lambda: [None for _ in pattern.finditer(text)]
    return lambda: getattr(pattern, method)(text)
