# SPDX-License-Identifier: Apache-2.0
"""The index of a folder lib/modules/RELEASE: the names of its modules, their aliases and dependencies. The files come
from a disk, so damaged lines are skipped."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from vmtailor.base.notation import module_name

#: Most lines of one of these files, and most modules that one name leads to.
MOST_LINES = 500_000
_PREFIX = re.compile(r"[\w-]*:?")
_KO = re.compile(r"\.ko(?:\.\w+)?$")


def _module(path: str) -> str:
    return module_name(_KO.sub("", path.rpartition("/")[2]))


@dataclass
class ModuleIndex:
    """`paths`: module → its path in the kernel's tree without ending; `depends`: module → those that it needs, all the
    way; `builtin`: those that are in the kernel itself."""

    paths: dict[str, str] = field(default_factory=dict)
    depends: dict[str, tuple[str, ...]] = field(default_factory=dict)
    builtin: frozenset[str] = frozenset()
    _aliases: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    @classmethod
    def read(cls, alias: str, dep: str, builtin: str = "") -> ModuleIndex:
        """Parse the text of modules.alias, modules.dep and modules.builtin."""
        found = cls(builtin=frozenset(_module(line) for line in builtin.splitlines()[:MOST_LINES] if line))
        for line in dep.splitlines()[:MOST_LINES]:
            path, colon, needs = line.partition(":")
            if colon:
                name = _module(path)
                found.paths[name] = _KO.sub("", path).removeprefix("kernel/")
                found.depends[name] = tuple(_module(one) for one in needs.split())
        for line in alias.splitlines()[:MOST_LINES]:
            words = line.split()
            if len(words) == 3 and words[0] == "alias":
                found._aliases.setdefault(_first(words[1]), []).append((words[1], module_name(words[2])))
        return found

    def answering(self, name: str) -> tuple[str, ...]:
        """Return the modules that a name leads to: one of that name, or those with an alias of that pattern."""
        plain = module_name(name)
        if plain in self.paths or plain in self.builtin:
            return (plain,)
        rows = self._aliases.get(_first(name), []) + self._aliases.get("", [])
        found = [m for pattern, m in rows if fnmatch.fnmatchcase(name, pattern) or module_name(pattern) == plain]
        return tuple(dict.fromkeys(found))

    def with_needs(self, modules: Iterable[str]) -> frozenset[str]:
        """Return these modules and all that they need."""
        return frozenset(one for module in modules for one in (module, *self.depends.get(module, ())))


def _first(text: str) -> str:
    """Return the part before the first colon, with it, by which aliases are found: `pci:`; empty where there is
    none."""
    head = _PREFIX.match(text)
    return head[0] if head and head[0].endswith(":") else ""
