# SPDX-License-Identifier: Apache-2.0
"""Tell what a function of a C library leads to, by its name, for a file that imports it."""

from __future__ import annotations

from dataclasses import dataclass, field

from vmtailor.analysis.reach.contents import Called
from vmtailor.analysis.reach.file_links import Links

_DEEPEST = 8

Scope = tuple[str, ...]


@dataclass(frozen=True)
class Lead:
    """System calls by number, and paths, in a fixed order."""

    numbers: tuple[int, ...]
    strings: tuple[str, ...]


@dataclass
class CLibraries:
    links: Links
    _tables: dict[Scope, dict[str, Called]] = field(default_factory=dict)
    _leads: dict[tuple[Scope, str], Lead] = field(default_factory=dict)

    def scope(self, path: str) -> Scope:
        """Return the C libraries that a file's imports are found in: those of what it needs. A file that needs none is
        loaded into a program that does, so all of the image count for it."""
        contents = self.links.contents
        own = tuple(p for p in self.links.scope(path) if contents[p].functions is not None)
        if any(p != path for p in own) or contents[path].functions is not None or not contents[path].imports:
            return own
        return tuple(p for p, one in contents.items() if one.functions is not None)

    def lead(self, scope: Scope, name: str) -> Lead:
        key = (scope, name)
        if key not in self._leads:
            table = self._table(scope)
            numbers: dict[int, None] = {}
            strings: dict[str, None] = {}
            seen, fresh = {name}, [name]
            for _ in range(_DEEPEST):
                reached = [table[one] for one in fresh if one in table]
                numbers.update(dict.fromkeys(number for one in reached for number, _ in one.numbers))
                strings.update(dict.fromkeys(text for one in reached for text in one.strings))
                fresh = [other for one in reached for other in one.names if other not in seen]
                seen.update(fresh)
            self._leads[key] = Lead(tuple(numbers), tuple(strings))
        return self._leads[key]

    def _table(self, scope: Scope) -> dict[str, Called]:
        if scope not in self._tables:
            table: dict[str, Called] = {}
            for path in scope:
                one = self.links.contents[path]
                for name, place in (one.functions or {}).items():
                    table.setdefault(name, one.called[place])
            self._tables[scope] = table
        return self._tables[scope]

    def ways(self, path: str) -> list[tuple[str, Lead]]:
        """Return the imports of a file, and where each leads: the shortest ways first."""
        one = self.links.contents[path]
        scope = self.scope(path)
        names = one.imports if one.functions is None else one.own.names
        return sorted(((name, self.lead(scope, name)) for name in names), key=lambda way: (len(way[1].numbers), way[0]))
