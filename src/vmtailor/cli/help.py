# SPDX-License-Identifier: Apache-2.0
"""`vmtailor help`: the pages of documentation that messages name."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import Annotated

from vmtailor.base import manual, output, terminal
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.near_names import or_else
from vmtailor.cli.verbs import VERBS, help_of, named
from vmtailor.model.option import Option, Suggests


def help(
    page: Annotated[
        str | None,
        Option(
            name="PAGE",
            suggests=Suggests.PAGES,
            help="Print this page, or the help of this verb; left out, list all pages.",
        ),
    ] = None,
) -> None:
    """Print a page of the documentation, or list all pages.

    On a terminal the page is set for reading, and shown by the pager (PAGER, or less); elsewhere it is Markdown."""
    known = manual.pages()
    if not known:
        raise HostError("this installation has no documentation", hint="install vmtailor again")
    if page is None:
        _list(list(known.values()))
        return
    if (verb := named(page)) is not None:
        output.lines(help_of(verb) + "\n")
        return
    found = known.get(_name_of(page))
    if found is None:
        raise UserInputError(
            f"no page is called '{page[:64]}'",
            hint=or_else(_name_of(page), [*known, *(verb.name for verb in VERBS)], "vmtailor help lists all pages"),
        )
    if sys.stdout.isatty():
        terminal.show_page(found.text)
    else:
        output.lines(found.text)


def _name_of(given: str) -> str:
    """Return the name of a page that may be given as its path: `docs/reference/exercise.md#keys`."""
    return given.partition("#")[0].rpartition("/")[2].removesuffix(".md").lower()


def _list(found: list[manual.Page]) -> None:
    width = max(len(page.name) for page in found)
    for kind, group in groupby(found, key=lambda page: page.kind):
        output.say(kind)
        for page in group:
            output.say(f"  {page.name.ljust(width)}  {page.title.replace('`', '')}")
    output.say("vmtailor help PAGE prints one")
