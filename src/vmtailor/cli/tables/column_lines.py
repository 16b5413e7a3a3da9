# SPDX-License-Identifier: Apache-2.0
"""Lists as container engines print them: columns of plain text, documents a line each, or lines of a template."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from vmtailor.base import output
from vmtailor.base.errors import UserInputError
from vmtailor.base.text import plain

#: Blanks between columns.
_GAP = 3
_FIELD = re.compile(
    r"\{\{ ?(?:(json )? ?(\.[A-Za-z0-9_.]{0,200})|index (\.[A-Za-z0-9_.]{1,200}) \"([^\"{}\\\\]{0,500})\") ?\}\}"
)
#: Titles of columns that are not the field's name in capitals.
_TITLES = {
    "ID": "MACHINE ID", "Names": "NAMES", "CreatedAt": "CREATED AT", "RunningFor": "CREATED", "CPUPerc": "CPU %",
    "MemUsage": "MEM USAGE / LIMIT", "MemPerc": "MEM %", "HostMem": "HOST MEM", "PIDs": "PIDS",
}  # fmt: skip


def title_of(field: str) -> str:
    """Return the title of a column."""
    return _TITLES.get(field, field.upper())


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines whose cells stand below each other; nothing in them steers a terminal."""
    shown = [[plain(cell) for cell in row] for row in rows]
    widths = [max(len(row[at]) for row in shown) for at in range(len(shown[0]))] if shown else []
    return [
        "".join(cell.ljust(width + _GAP) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown
    ]


def value_at(document: Any, path: str) -> Any:
    """Return what a path of fields leads to (`.State.Status`). Raises UserInputError where a field is unknown."""
    for name in path.split("."):
        if not name:
            continue
        if not isinstance(document, Mapping) or name not in document:
            known = ", ".join(f".{key}" for key in document) if isinstance(document, Mapping) else "none"
            raise UserInputError(f"--format: there is no field {plain(path)}", hint=f"known here: {known}")
        document = document[name]
    return document


def template_of(text: str) -> Callable[[Any], str]:
    """Return the function that fills a template: `{{.Field}}`, `{{json .Field}}`, `{{.Field.Inner}}`,
    `{{index .Field "key"}}`, which is empty without such a key. Raises UserInputError for what is no such template."""
    rest = _FIELD.sub("", text)
    if "{{" in rest or "}}" in rest or not text:
        raise UserInputError(
            f"--format: '{plain(text[:80])}' is not understood",
            hint="table, json, or fields such as '{{.ID}} {{json .Names}}'",
        )
    text = text.replace("\\t", "\t").replace("\\n", "\n")

    def filled(document: Any) -> str:
        def field(match: re.Match[str]) -> str:
            if match[3]:
                found = value_at(document, match[3])
                return go_text(found.get(match[4], "")) if isinstance(found, Mapping) else ""
            value = value_at(document, match[2])
            return json.dumps(value, ensure_ascii=False) if match[1] else go_text(value)

        return _FIELD.sub(field, text)

    return filled


def go_text(value: Any) -> str:
    """Return a value as Go prints it: `true`, `[a b]`, `map[a:1]`."""
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "<nil>"
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{key}:{go_text(inner)}' for key, inner in sorted(value.items()))}]"
    if isinstance(value, list | tuple):
        return f"[{' '.join(go_text(inner) for inner in value)}]"
    return str(value)


def show(documents: Iterable[Mapping[str, Any]], columns: Sequence[str], form: str = "table") -> None:
    """Print documents: `table` (the columns), `json` (each on a line), or by a template, `table TEMPLATE` with
    titles."""
    if form in ("", "table"):
        rows = [[title_of(name) for name in columns], *([str(one[name]) for name in columns] for one in documents)]
        for line in aligned(rows):
            output.say(line)
        return
    if form == "json":
        for one in documents:
            output.json_bytes([json.dumps(one, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"])
        return
    inner = form.removeprefix("table ")
    fill = template_of(inner)
    if inner != form:
        titles = _FIELD.sub(lambda match: title_of((match[2] or match[3]).rpartition(".")[2]), inner).replace(
            "\\t", "\t"
        )
        rows = [titles.split("\t"), *(fill(one).split("\t") for one in documents)]
        width = max(len(row) for row in rows)
        for line in aligned([[*row, *[""] * (width - len(row))] for row in rows]):
            output.say(line)
        return
    for one in documents:
        output.lines(f"{fill(one)}\n")
