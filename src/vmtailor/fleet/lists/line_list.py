# SPDX-License-Identifier: Apache-2.0
"""Lists of a reference a line. Empty lines, and what follows a #, are passed over."""

from __future__ import annotations

from vmtailor.base.errors import UserInputError
from vmtailor.fleet.lists import list_text
from vmtailor.fleet.lists.list_text import ListText
from vmtailor.fleet.model.entry import FleetEntry, FleetList, ListForm


def read(whole: ListText) -> FleetList:
    """Return the list in a file of lines. Raises UserInputError that names the line."""
    entries, places = [], []
    for number, line in enumerate(whole.text.splitlines(), 1):
        words = _without_comment(line).split()
        if not words:
            continue
        where = f"line {number}"
        if len(words) > 1:
            raise UserInputError(
                f"{whole.path}, {where} has {len(words)} words; a reference is one",
                hint="vmtailor help fleet-list shows the forms of a list",
            )
        reference = list_text.reference_of(words[0], whole.folder, f"{whole.path}, {where}")
        name = list_text.name_from(reference)
        entries.append(FleetEntry(name, reference, list_text.digest_of(reference)))
        places.append((name, where))
        list_text.require_few(len(entries), whole.path)
    list_text.require_few(len(entries), whole.path)
    list_text.require_apart(places, whole.path)
    return FleetList(path=whole.path, form=ListForm.LINES, sha256=whole.sha256, entries=tuple(entries))


def _without_comment(line: str) -> str:
    """Return a line without its comment, which begins with a # at its start or behind a blank."""
    before, sign, after = line.partition("#")
    while sign and before and not before[-1].isspace():
        more, sign, after = after.partition("#")
        before = f"{before}#{more}"
    return before
