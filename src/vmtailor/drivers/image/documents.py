# SPDX-License-Identifier: Apache-2.0
"""JSON documents of images: untrusted, so bounded in size and depth, and saying nothing twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import open_regular

DOCUMENT_BYTES = 8 << 20
#: Keys of manifests and indices, in lower case: programs written in Go read these names in any case.
_KNOWN = frozenset(
    {"schemaversion", "mediatype", "artifacttype", "config", "layers", "manifests", "digest", "size", "urls", "data",
     "platform", "architecture", "os", "variant", "annotations", "subject"}
)  # fmt: skip


class BadConfig(UserInputError):
    """The manifest or the configuration of an image makes no sense."""

    def __init__(self, what: str) -> None:
        super().__init__(f"the image's description makes no sense: {what}", hint="build or fetch the image again")


def shown(value: Any, most: int = 100) -> str:
    """Return an untrusted value for a message: short, whatever it is, and however deep."""
    if isinstance(value, str):
        return repr(value[:most]) + ("…" if len(value) > most else "")
    if isinstance(value, int) and not isinstance(value, bool) and not -(10**20) < value < 10**20:
        return "a number of more than 20 digits"
    if isinstance(value, dict | list | tuple):
        return "a table" if isinstance(value, dict) else "a list"
    return str(value)[:most]


def parse_document(data: bytes, name: str, *, folded: bool = False) -> dict[str, Any]:
    """Return a JSON object. `folded`: keys in lower case, as programs in Go understand them. Raises BadConfig."""
    document = parse_json(data, name, folded=folded)
    if not isinstance(document, dict):
        raise BadConfig(f"{name} is not an object")
    return document


def parse_json(data: bytes, name: str, *, folded: bool = False) -> Any:
    """Any JSON. Raises BadConfig: too large, no JSON, too deep, or a key said twice."""
    if len(data) > DOCUMENT_BYTES:
        raise BadConfig(f"{name} is larger than {DOCUMENT_BYTES} bytes")
    hook = _folded if folded else _once
    try:
        return json.loads(data, object_pairs_hook=_reporting(hook, name))
    except RecursionError:
        raise BadConfig(f"{name} is JSON that is nested too deeply") from None
    except ValueError as error:
        raise BadConfig(f"{name} is not JSON: {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object from a file. Raises BadConfig, or UserInputError where it is no regular file."""
    if not path.exists():
        raise BadConfig(f"{path.name} is missing")
    with open_regular(path, "the document") as file:
        return parse_document(file.read(DOCUMENT_BYTES + 1), path.name)


_Pairs = list[tuple[str, Any]]


def _reporting(hook: Callable[[_Pairs], dict[str, Any]], name: str) -> Callable[[_Pairs], dict[str, Any]]:
    def reported(pairs: _Pairs) -> dict[str, Any]:
        try:
            return hook(pairs)
        except KeyError as error:
            raise BadConfig(f"{name} says {shown(error.args[0], 60)} twice") from None

    return reported


def _once(pairs: _Pairs) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        raise KeyError(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return found


def _folded(pairs: _Pairs) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        low = key.casefold()
        if low not in _KNOWN:
            low = key
        if low in found:
            raise KeyError(key)
        found[low] = value
    return found
