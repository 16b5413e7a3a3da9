# SPDX-License-Identifier: Apache-2.0
"""Which symbols are bool and which tristate, from the text of a tree's Kconfig files (nothing is resolved)."""

from __future__ import annotations

import posixpath
import re

from vmtailor.analysis.ksource.make_values import Kind, KindOf, Reader

_LINE = re.compile(
    r"^[ \t]*(?:(?:menu)?config[ \t]+(?P<name>\w+)[ \t]*(?:#.*)?$"
    r"|(?P<kind>bool|tristate|def_bool|def_tristate|int|hex|string)\b"
    r"|source[ \t]+[\"']?(?P<source>[^\"'\s]+))",
    re.M,
)
_KINDS = {"bool": Kind.BOOL, "def_bool": Kind.BOOL, "tristate": Kind.TRISTATE, "def_tristate": Kind.TRISTATE}


def kinds(read: Reader, arch: str) -> dict[str, Kind]:
    """Symbol → kind, for all symbols that the tree's Kconfig files define. Empty for a tree without them."""
    found: dict[str, Kind] = {}
    pending, seen = ["Kconfig"], {"Kconfig"}
    while pending:
        name = ""
        for match in _LINE.finditer(read(pending.pop()) or ""):
            if match["name"]:
                name = match["name"]
            elif match["kind"] and name:
                kind = _KINDS.get(match["kind"], Kind.OTHER)
                if found.get(name) is not Kind.TRISTATE:
                    found[name] = kind
                name = ""
            elif match["source"]:
                path = posixpath.normpath(match["source"].replace("$(SRCARCH)", arch).replace("$SRCARCH", arch))
                if path not in seen:
                    seen.add(path)
                    pending.append(path)
    return found


def kind_of(known: dict[str, Kind]) -> KindOf:
    """The kind of a symbol. One that no file defines is never m; without any files, every symbol may be."""
    otherwise = Kind.BOOL if known else Kind.TRISTATE
    return lambda name: known.get(name, otherwise)


def tristates(read: Reader, arch: str) -> frozenset[str] | None:
    """The symbols that may be m; None for a tree without Kconfig files."""
    known = kinds(read, arch)
    return frozenset(name for name, kind in known.items() if kind is Kind.TRISTATE) if known else None
