# SPDX-License-Identifier: Apache-2.0
"""The pages of documentation by name, as `vmtailor help PAGE` prints them. A wheel has a copy of them (setup.py); an
editable installation reads them in the checkout."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

#: Folders of docs/ whose pages are for users, in the order in which they are listed.
KINDS = ("tutorial", "how-to", "reference", "explanation")
_PACKAGE = "vmtailor"


@dataclass(frozen=True)
class Page:
    """A page. `kind`: its folder; `title`: its first heading."""

    name: str
    kind: str
    title: str
    text: str


def command(name: str) -> str:
    """Return the command that prints a page, for the hint of a message. Every hint that names a page has it from
    here."""
    return f"vmtailor help {name}"


@functools.cache
def pages() -> Mapping[str, Page]:
    """Return all pages by name, in the order in which they are listed; none where an installation has lost them."""
    found: dict[str, Page] = {}
    for kind in KINDS:
        folder = _root() / kind
        if folder.is_dir():
            files = sorted((one for one in folder.iterdir() if one.name.endswith(".md")), key=lambda one: one.name)
            for file in files:
                name, text = file.name.removesuffix(".md"), file.read_text(encoding="utf-8")
                found[name] = Page(name, kind, _title(text, name), text)
    return found


def _root() -> Traversable | Path:
    own = resources.files(_PACKAGE) / "docs"
    return own if own.is_dir() else Path(__file__).resolve().parents[3] / "docs"


def _title(text: str, name: str) -> str:
    return next((line.removeprefix("# ").strip() for line in text.splitlines() if line.startswith("# ")), name)
