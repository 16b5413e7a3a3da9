# SPDX-License-Identifier: Apache-2.0
"""The conditions under which the files of a kernel tree are compiled, from its Makefiles."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from vmtailor.analysis.ksource.expr import FALSE, TRUE, UNKNOWN, Expr, conjunction, disjunction, negation, without
from vmtailor.analysis.ksource.kconfig import kind_of, kinds
from vmtailor.analysis.ksource.make_lines import exported
from vmtailor.analysis.ksource.make_values import NOT_KNOWN, KindOf, MakeScope, Reader, Word, present
from vmtailor.analysis.ksource.makefile import Given, read_makefile
from vmtailor.base.notation import module_name

#: Lists of folders of the top Makefile and of the architecture's, whose paths begin at the root.
_TOP_LISTS = ("core", "drivers", "net", "libs", "virt", "init", "head")
#: Variables for reading the top Makefile as `make` without targets does, in the folder of the results.
_MAKE: Given = {
    "MAKECMDGOALS": (), "sub_make_done": [Word("1", TRUE)], "MAKEFLAGS": [Word("--no-print-directory", TRUE)],
    "CURDIR": [Word("/objects", TRUE)], "abs_objtree": [Word("/objects", TRUE)],
    "abs_srctree": [Word("/sources", TRUE)], "M": (), "KBUILD_ABS_SRCTREE": (),
}  # fmt: skip
_MOST_VISITS = 16


@dataclass(frozen=True, slots=True)
class Compiled:
    """The conditions under which a file is compiled into the kernel, and into a module."""

    builtin: Expr = FALSE
    module: Expr = FALSE

    @property
    def at_all(self) -> Expr:
        return disjunction(self.builtin, self.module)

    def __or__(self, other: Compiled) -> Compiled:
        return Compiled(disjunction(self.builtin, other.builtin), disjunction(self.module, other.module))


@dataclass(frozen=True, slots=True)
class _Reached:
    """When make goes into a folder: for the kernel, and at all (for modules and libraries)."""

    builtin: Expr = FALSE
    at_all: Expr = FALSE

    def __or__(self, other: _Reached) -> _Reached:
        return _Reached(disjunction(self.builtin, other.builtin), disjunction(self.at_all, other.at_all))


@dataclass
class _Folder:
    """The lists of one folder: source or folder → condition, without regard to when make goes there.

    `built` and `modular` are sources by way of obj-y and obj-m, `library` those of lib-y, `below` the folders;
    `modules` the objects themselves that may become modules; `objects`: source → the objects that it is linked into."""

    built: dict[str, Expr] = field(default_factory=dict)
    modular: dict[str, Expr] = field(default_factory=dict)
    library: dict[str, Expr] = field(default_factory=dict)
    below: dict[str, _Reached] = field(default_factory=dict)
    modules: dict[str, Expr] = field(default_factory=dict)
    objects: dict[str, set[str]] = field(default_factory=dict)


def _note(into: dict[str, Expr], name: str, condition: Expr) -> None:
    if condition != FALSE:
        into[name] = disjunction(into.get(name, FALSE), condition)


def _merged(words: Sequence[Word]) -> dict[str, Expr]:
    """Word → condition. A word that is not known may be any of the others."""
    found: dict[str, Expr] = {}
    doubt: list[Expr] = []
    for word in words:
        if word.text is None:
            doubt.append(conjunction(word.condition, UNKNOWN))
        else:
            _note(found, word.text, word.condition)
    return {text: disjunction(condition, *doubt) for text, condition in found.items()} if doubt else found


def _listed(scope: MakeScope, folder: str) -> _Folder:
    """Take the lists of a folder's Makefile as scripts/Makefile.build does."""
    found = _Folder()
    built, modular = _merged(scope.value("obj-y")), _merged(scope.value("obj-m"))
    for name in {**built, **modular}:
        yes = built.get(name, FALSE)
        only_module = without(modular.get(name, FALSE), yes)
        if name.endswith("/"):
            path = posixpath.normpath(posixpath.join(folder, name))
            below = found.below.get(path, _Reached())
            found.below[path] = below | _Reached(yes, disjunction(yes, modular.get(name, FALSE)))
        elif name.endswith(".o"):
            if modular.get(name, FALSE) != FALSE:
                found.modules[_path(folder, name.removesuffix(".o"))] = disjunction(yes, modular[name])
            for source, condition in _sources(scope, name, ("-objs", "-y")):
                _note(found.built, _path(folder, source), conjunction(yes, condition))
                found.objects.setdefault(_path(folder, source), set()).add(name.removesuffix(".o"))
            for source, condition in _sources(scope, name, ("-objs", "-y", "-m")) if only_module != FALSE else ():
                _note(found.modular, _path(folder, source), conjunction(only_module, condition))
                found.objects.setdefault(_path(folder, source), set()).add(name.removesuffix(".o"))
    for variable in ("lib-y", "lib-m", "extra-y"):
        for name, condition in _merged(scope.value(variable)).items():
            if name.endswith(".o"):
                _note(found.library, _path(folder, name.removesuffix(".o")), condition)
    for variable in ("subdir-y", "subdir-m"):
        for name, condition in _merged(scope.value(variable)).items():
            path = posixpath.normpath(posixpath.join(folder, name))
            found.below[path] = found.below.get(path, _Reached()) | _Reached(FALSE, condition)
    return found


def _path(folder: str, stem: str) -> str:
    # foo.stub.o is foo.o with its symbols renamed (drivers/firmware/efi/libstub).
    return posixpath.normpath(posixpath.join(folder, stem.removesuffix(".stub")))


def _sources(scope: MakeScope, target: str, endings: tuple[str, ...]) -> Iterator[tuple[str, Expr]]:
    """Yield the sources of an object with their conditions: the parts of a composite one, or itself."""
    stem = target.removesuffix(".o")
    parts = [word for ending in endings for word in scope.value(stem + ending)]
    composite = disjunction(present(parts), present(scope.value(stem + "-")))
    for text, condition in _merged(parts).items():
        if text.endswith(".o"):
            yield text.removesuffix(".o"), condition
    yield stem, negation(composite)


def _top_folders(scope: MakeScope) -> Iterator[tuple[str, _Reached]]:
    """Yield folders in the lists of a top Makefile."""
    for name in _TOP_LISTS:
        for ending in ("-y", "-m"):
            for text, condition in _merged(scope.value(name + ending)).items():
                if text.endswith("/"):
                    yield posixpath.normpath(text), _Reached(condition if ending == "-y" else FALSE, condition)


class _Tree:
    def __init__(self, read: Reader, arch: str) -> None:
        self._read = read
        self._arch = arch
        self._kind_of: KindOf = kind_of(kinds(read, arch))
        self._given: Given = {name: [Word(arch, TRUE)] for name in ("SRCARCH", "ARCH")}
        self._given |= dict.fromkeys(("ARCH_CORE", "ARCH_LIB", "ARCH_DRIVERS"), ())  # the lists of the top
        self._given |= {"BITS": [Word("64", TRUE)], "KBUILD_EXTMOD": ()}
        self._folders: dict[str, _Folder] = {}
        self._reached: dict[str, _Reached] = {}
        self._visits: dict[str, int] = {}

    def compiled(self) -> dict[str, Compiled]:
        for folder, reached in self._top():
            self._visit(folder, reached)
        found: dict[str, Compiled] = {}
        for folder, reached in self._reached.items():
            lists = self._folders[folder]
            for path, condition in lists.built.items():
                one = Compiled(conjunction(reached.builtin, condition), FALSE)
                found[path] = found.get(path, Compiled()) | one
            for path, condition in lists.modular.items():
                one = Compiled(FALSE, conjunction(reached.at_all, condition))
                found[path] = found.get(path, Compiled()) | one
            for path, condition in lists.library.items():
                one = Compiled(conjunction(reached.at_all, condition), FALSE)
                found[path] = found.get(path, Compiled()) | one
        return {path: one for path, one in found.items() if one.at_all != FALSE}

    def objects(self) -> dict[str, frozenset[str]]:
        """Return the objects of each source, once `compiled` has been asked."""
        found: dict[str, set[str]] = {}
        for folder in self._reached:
            for path, names in self._folders[folder].objects.items():
                found.setdefault(path, set()).update(names)
        return {path: frozenset(names) for path, names in found.items()}

    def modules(self) -> dict[str, Expr]:
        for folder, reached in self._top():
            self._visit(folder, reached)
        found = {
            path: conjunction(reached.at_all, condition)
            for folder, reached in self._reached.items()
            for path, condition in self._folders[folder].modules.items()
        }
        return {path: condition for path, condition in found.items() if condition != FALSE}

    def _top(self) -> Iterator[tuple[str, _Reached]]:
        """Yield the folders that the top Makefile and the architecture's name, and the root."""
        always = _Reached(TRUE, TRUE)
        arch = f"arch/{self._arch}"
        scopes = [s for path in ("Makefile", f"{arch}/Makefile") if (s := self._scope(path, "", _MAKE)) is not None]
        for path in ("Makefile", f"{arch}/Makefile"):
            outside = exported(self._read(path) or "") - self._given.keys() - {"BITS", "srctree", "objtree"}
            self._given |= dict.fromkeys(outside, NOT_KNOWN)
        for scope in scopes:
            if "BITS" in scope.names():
                self._given["BITS"] = scope.value("BITS")
        for scope in scopes:
            yield from _top_folders(scope)
        yield "", always
        if arch not in self._reached:
            yield arch, always

    def _scope(self, path: str, folder: str, more: Given | None = None) -> MakeScope | None:
        text = self._read(path)
        given = {**self._given, **(more or {})}
        return None if text is None else read_makefile(text, folder, self._read, self._kind_of, given)

    def _visit(self, folder: str, reached: _Reached) -> None:
        pending = [(folder, reached)]
        while pending:
            folder, reached = pending.pop(0)
            before = self._reached.get(folder)
            combined = reached if before is None else before | reached
            visits = self._visits.get(folder, 0)
            if combined == before or len(folder) > 200 or visits > _MOST_VISITS:
                continue
            self._visits[folder] = visits + 1
            self._reached[folder] = combined
            if folder not in self._folders:
                below = folder + "/" if folder else ""
                scope = self._scope(f"{below}Kbuild", folder)
                if scope is None and folder:
                    scope = self._scope(f"{below}Makefile", folder)
                self._folders[folder] = _Folder() if scope is None else _listed(scope, folder)
            for path, when in self._folders[folder].below.items():
                builtin = conjunction(combined.builtin, when.builtin)
                at_all = conjunction(combined.at_all, when.at_all)
                if at_all != FALSE:
                    pending.append((path, _Reached(builtin, at_all)))


def compiled_files(read: Reader, arch: str) -> dict[str, Compiled]:
    """Return source path without its ending (`fs/eventpoll`) → the condition to compile it, for the whole tree.

    Objects come from C and from assembler. Files reached in several ways have the disjunction of them."""
    return _Tree(read, arch).compiled()


def file_conditions(read: Reader, arch: str) -> dict[str, Expr]:
    """Source path without its ending → the condition under which it is compiled, for the kernel or for a module."""
    return {path: one.at_all for path, one in compiled_files(read, arch).items()}


def linked_files(read: Reader, arch: str) -> tuple[dict[str, Expr], dict[str, frozenset[str]]]:
    """Return `file_conditions`, and source path without its ending → the names of the objects that it is linked into,
    which KBUILD_MODNAME stands for."""
    tree = _Tree(read, arch)
    conditions = {path: one.at_all for path, one in tree.compiled().items()}
    return conditions, tree.objects()


def modules(read: Reader, arch: str) -> dict[str, Expr]:
    """Path of a module without its ending (`fs/overlayfs/overlay`) → the condition under which there is one, in the
    kernel or as a file."""
    return _Tree(read, arch).modules()


_CONTINUED = re.compile(r"\\\n")
_OBJECTS = re.compile(r"^obj-\$\(CONFIG_(\w+)\)\s*[+:]?=([^\n#]*)", re.M)


def symbol_of_module(module: str, read: Callable[[str], str | None]) -> str | None:
    """Return the symbol of a module (`crypto/af_alg`, its path in the tree without ending), or None when no Makefile
    says.

    `read` gives the text of a file of the tree. Dashes and underscores are one, as in names of modules."""
    folder, name = posixpath.split(module)
    wanted = module_name(name) + ".o"
    for makefile in ("Kbuild", "Makefile"):
        text = _CONTINUED.sub(" ", read(posixpath.join(folder, makefile)) or "")
        for match in _OBJECTS.finditer(text):
            if wanted in map(module_name, match.group(2).split()):
                return match.group(1)
    return None
