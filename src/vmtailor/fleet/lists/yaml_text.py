# SPDX-License-Identifier: Apache-2.0
"""YAML and JSON of people whom nobody knows: bounded in depth and in what aliases make of it, and saying nothing twice.

Scalars are read as YAML 1.2 has them, as Compose and Kubernetes do: `80:80` and `2001-12-14` are texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar

import yaml

from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain
from vmtailor.drivers.image.documents import shown

#: Nested tables and lists, nodes of a file once its aliases are written out, and documents of a file, at most.
DEPTH_MAX, NODES_MAX, DOCUMENTS_MAX = 64, 1_000_000, 10_000
_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.CSafeLoader):  # type: ignore[misc]  # yaml has no types
    """Reads plain data, with scalars of YAML 1.2, and refuses a key that stands twice."""

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else ""
            if name in seen and name != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"{shown(name, 60)} stands twice", key.start_mark)
            seen.add(name)
        made: dict[Any, Any] = super().construct_mapping(node, deep)
        return made

    def construct_yaml_int(self, node: Any) -> int:
        # The library reads 010 as 8, and takes underscores out.
        text = self.construct_scalar(node)
        return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


#: Plain scalars that are no texts: the tag, its form, and the characters that one begins with.
_SCALARS: tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...] = (
    ("bool", re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z"), tuple("tTfF")),
    ("null", re.compile(r"(?:~|null|Null|NULL|)\Z"), ("~", "n", "N", "")),
    ("int", re.compile(r"(?:[-+]?[0-9]{1,40}|0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40})\Z"), tuple("-+0123456789")),
    (
        "float",
        re.compile(
            r"(?:[-+]?(?:\.[0-9]{1,40}|[0-9]{1,40}(?:\.[0-9]{0,40})?)(?:[eE][-+]?[0-9]{1,3})?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z"
        ),
        tuple("-+.0123456789"),
    ),
    ("merge", re.compile(r"<<\Z"), ("<",)),
)

_Loader.add_constructor(f"{_TAG}int", _Loader.construct_yaml_int)
for _name, _form, _first in _SCALARS:
    _Loader.add_implicit_resolver(f"{_TAG}{_name}", _form, _first)


def documents(text: str, origin: str) -> list[Any]:
    """Return the documents of a file of YAML or JSON, without empty ones. Raises UserInputError: damaged, nested too
    deep, larger than it looks, or with a key that stands twice."""
    try:
        if text.lstrip()[:1] in ("{", "[") and "\n---" not in text:
            found = _json(text)
            if found is not None:
                return found
        _require_small(yaml.parse(text, Loader=_Loader), origin)
        return [one for one in yaml.load_all(text, Loader=_Loader) if one is not None]
    except RecursionError:
        raise UserInputError(f"{origin} is nested too deep", hint="write it flatter") from None
    except yaml.YAMLError as error:
        raise UserInputError(f"{origin} is not YAML: {_said(error)}", hint="mend that line") from error
    except (ValueError, TypeError) as error:  # a number of no base, a key that is a list
        raise UserInputError(f"{origin} is not YAML that can be read: {plain(str(error))[:200]}") from error


def _json(text: str) -> list[Any] | None:
    """Return the one document of a file of JSON, which YAML does not read where tabs indent it; None for no JSON."""
    try:
        found = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError:
        return None
    _require_flat(found)
    return [found]


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise ValueError(f"{shown(name, 60)} stands twice")
        made[name] = value
    return made


def _require_flat(whole: Any) -> None:
    layer = [whole]
    for _ in range(DEPTH_MAX):
        layer = [
            inner
            for one in layer
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
        ]
        if not layer:
            return
    raise RecursionError


def _require_small(events: Iterator[Any], origin: str) -> None:
    """Require that a file is flat, and that its aliases do not make it large: each event is looked at once."""
    sizes: dict[str, int] = {}
    open_: list[tuple[str | None, int]] = []  # anchor of each collection around, and nodes before it
    nodes = documents_ = 0
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            sizes.clear()
            documents_ += 1
        elif isinstance(event, yaml.AliasEvent):
            # Zero: of a collection that is still open, and would hold itself.
            size = sizes.get(event.anchor, 0)
            if not size and any(anchor == event.anchor for anchor, _ in open_):
                raise UserInputError(f"{origin} has an alias, {shown(event.anchor, 40)}, of what it stands in itself")
            nodes += size
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, nodes))
            nodes += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            if anchor is not None:
                sizes[anchor] = nodes - before
        elif isinstance(event, yaml.ScalarEvent):
            nodes += 1
            if event.anchor is not None:
                sizes[event.anchor] = 1
        if len(open_) > DEPTH_MAX:
            raise RecursionError
        if nodes > NODES_MAX or documents_ > DOCUMENTS_MAX:
            raise UserInputError(
                f"{origin} has more than {NODES_MAX} values, or more than {DOCUMENTS_MAX} documents",
                hint="split the file; a value that an alias stands for counts each time",
            )


def _said(error: yaml.YAMLError) -> str:
    """Return the words of an error, with its line, and without the text of the line: it may hold a secret."""
    problem = plain(str(getattr(error, "problem", None) or "it cannot be read"))[:200]
    mark = getattr(error, "problem_mark", None)
    return f"{problem}, line {mark.line + 1}" if mark is not None else problem
