# SPDX-License-Identifier: Apache-2.0
"""Find the files of an image that each file leads to: as the loader finds libraries, the kernel interpreters, and a
shell programs. A file is also linked to a program when it imports what only that program exports."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from vmtailor.analysis.reach.contents import Contents, FileKind
from vmtailor.model.image import DEFAULT_PATH, ImageConfig

_DEFAULT_FOLDERS = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/usr/local/lib")
_CONFIGURATION_BYTES = 1 << 16
_MOST_CONFIGURATIONS = 200


class Files(Protocol):
    """The files of an image, without unpacking it; a flat archive is one."""

    @property
    def files(self) -> Mapping[str, int]:
        """Absolute path → bytes of every regular file."""

    @property
    def modes(self) -> Mapping[str, int]: ...

    @property
    def capable(self) -> frozenset[str]:
        """Return the files with capabilities of their own."""

    def content(self, path: str, start: int = 0, most: int | None = None) -> bytes: ...

    def resolve(self, path: str) -> str: ...


@dataclass(frozen=True)
class Led:
    """A file that another leads to, and how: `needed by /usr/bin/x`."""

    path: str
    how: str


@dataclass
class Links:
    """`contents`: what the programs, libraries and scripts of the image say, by path."""

    files: Files
    contents: Mapping[str, Contents]
    config: ImageConfig
    _found: dict[tuple[str, str], str] = field(default_factory=dict)

    def _at(self, path: str) -> str:
        """Return the program, library or script at a path, links followed; empty when there is none."""
        found = self.files.resolve(path)
        return found if found in self.contents else ""

    # ---- libraries

    @cached_property
    def _folders(self) -> tuple[str, ...]:
        """Return the folders that are searched for libraries: the environment's, those of the loader's configuration,
        its own."""
        named = [part for part in dict(self.config.env).get("LD_LIBRARY_PATH", "").split(":") if part.startswith("/")]
        todo, seen = ["/etc/ld.so.conf"], set[str]()
        while todo and len(seen) < _MOST_CONFIGURATIONS:
            path = self.files.resolve(todo.pop(0))
            if path in seen:
                continue
            seen.add(path)
            text = self.files.content(path, most=_CONFIGURATION_BYTES).decode("utf-8", "surrogateescape")
            for line in text.splitlines():
                words = line.partition("#")[0].split()
                if words[:1] == ["include"]:
                    todo += [match for pattern in words[1:] for match in self._matching(pattern)]
                elif words and words[0].startswith("/"):
                    named.append(words[0])
        for path in self.files.files:
            if path.startswith("/etc/ld-musl-") and path.endswith(".path"):
                text = self.files.content(path, most=_CONFIGURATION_BYTES).decode("utf-8", "surrogateescape")
                named += [part for part in text.replace("\n", ":").split(":") if part.startswith("/")]
        return tuple(dict.fromkeys([*named, *_DEFAULT_FOLDERS]))

    def _matching(self, pattern: str) -> list[str]:
        """Return the files that an include names, where only its last part is a pattern."""
        folder, _, last = pattern.rpartition("/")
        ending = last.rpartition("*")[2]
        return [p for p in sorted(self.files.files) if posixpath.dirname(p) == folder and p.endswith(ending)]

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for path, one in self.contents.items():
            if one.kind is FileKind.ELF:
                found[posixpath.basename(path)].append(path)
                if one.soname and one.soname != posixpath.basename(path):
                    found[one.soname].append(path)
        return found

    def library(self, name: str, origin: str) -> str:
        """Return the library that a file at `origin` gets by a name; empty when the image has none. One that lies where
        no loader would look counts as well: another program may load it first."""
        if "/" in name:
            return self._at(name)
        runpath = self.contents[origin].runpath if origin in self.contents else ()
        key = (name, posixpath.dirname(origin) if runpath else "")
        if key not in self._found:
            here = posixpath.dirname(origin)
            own = [part.replace("${ORIGIN}", here).replace("$ORIGIN", here) for part in runpath]
            places = (self._at(posixpath.normpath(f"{folder}/{name}")) for folder in (*own, *self._folders))
            found = next((place for place in places if place), "")
            self._found[key] = found or next(iter(self._by_name.get(name, ())), "")
        return self._found[key]

    def needed(self, path: str) -> list[str]:
        found = (self.library(name, path) for name in self.contents[path].needed)
        return [one for one in dict.fromkeys(found) if one]

    def scope(self, path: str) -> list[str]:
        """Return a file, its interpreter, and all libraries that it needs, directly or not."""
        found, todo = dict.fromkeys([path]), [path]
        if self.contents[path].interpreter and (loader := self._at(self.contents[path].interpreter)):
            found[loader] = None
        while todo:
            for one in self.needed(todo.pop(0)):
                if one not in found:
                    found[one] = None
                    todo.append(one)
        return list(found)

    # ---- programs

    def program(self, name: str) -> str:
        """Return the program that a command runs; empty when the image has no such program."""
        if "/" in name:
            path = name if name.startswith("/") else f"{self.config.working_dir}/{name}"
            return self._at(path)
        folders = dict(self.config.env).get("PATH", DEFAULT_PATH).split(":")
        places = (self._at(f"{folder}/{name}") for folder in folders if folder.startswith("/"))
        return next((place for place in places if place), "")

    def leads_to(self, path: str) -> Iterator[Led]:
        """Return the files that a file leads to by itself."""
        one = self.contents[path]
        if one.kind is FileKind.SCRIPT:
            words = [one.interpreter]
            if posixpath.basename(one.interpreter) == "env":
                # `env -S NAME=value program`: the first word that is neither an option nor a variable
                words += [w for w in one.interpreter_words if not w.startswith("-") and "=" not in w][:1]
            for word in words:
                if word and (found := self.program(word)):
                    yield Led(found, f"interpreter of {path}")
            for word in one.programs:
                if found := self.program(word):
                    yield Led(found, f"named in {path}")
            return
        if one.interpreter and (found := self._at(one.interpreter)):
            yield Led(found, f"interpreter of {path}")
        for found in self.needed(path):
            yield Led(found, f"needed by {path}")
        for word in one.programs:
            if found := self.program(word):
                yield Led(found, f"named in {path}")

    # ---- what can be loaded

    @cached_property
    def _loadable(self) -> dict[str, frozenset[str]]:
        """Return libraries that nobody needs → what they import that nothing they need exports."""
        needed_by_any = {found for path in self.contents for found in self.needed(path)}
        found = {}
        for path, one in self.contents.items():
            if one.kind is FileKind.ELF and one.library and one.functions is None and path not in needed_by_any:
                own = {name for other in self.scope(path) for name in self._exports[other]}
                found[path] = frozenset(one.imports) - own
        return found

    @cached_property
    def _exports(self) -> dict[str, frozenset[str]]:
        return {path: frozenset(one.exports) for path, one in self.contents.items()}

    def plugins(self, fresh: Iterable[str], known: set[str]) -> Iterator[Led]:
        """Return the files that can be loaded into those of `fresh`. Such a file imports what only they export, or
        needs a library of theirs that lies beside it, away from where all libraries lie."""
        hosts = [p for p in fresh if self.contents[p].kind is FileKind.ELF and self.contents[p].functions is None]
        exported = {name: path for path in hosts for name in self._exports[path] if not _always(name)}
        beside = {path for path in hosts if self._apart(path)}
        for path, missing in self._loadable.items():
            if path in known:
                continue
            host = next((exported[name] for name in sorted(missing) if name in exported), "")
            if not host and beside and self._apart(path):
                near = (one for one in self.needed(path) if one in beside)
                host = next((one for one in near if _near(path, one)), "")
            if host and host != path:
                yield Led(path, f"loadable into {host}")

    def _apart(self, path: str) -> bool:
        return self.contents[path].library and posixpath.dirname(path) not in {
            self.files.resolve(folder) for folder in self._folders
        }


def _near(path: str, host: str) -> bool:
    return posixpath.dirname(path).startswith(posixpath.dirname(host))


def _always(name: str) -> bool:
    """Return the symbols that linkers and compilers put into every file, and that no file exports for others."""
    return name.startswith(("_ITM_", "__gmon", "__cxa_", "_init", "_fini", "__bss", "_edata", "_end", "__data"))
