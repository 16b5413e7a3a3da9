# SPDX-License-Identifier: Apache-2.0
"""`trace --show` of followed calls: its options, and its tables and files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from vmtailor.analysis.calls import call_rows, request_split, stack_formats
from vmtailor.analysis.calls.call_shares import During
from vmtailor.base import notation, output
from vmtailor.base.errors import UserInputError
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.base.terminal import Table, box, folding, for_table
from vmtailor.model.option import Option
from vmtailor.pipeline.followed_calls import FollowedCalls
from vmtailor.stages.report import call_page

CALL = Option(
    name="--call", metavar="NAME", help="Show this system call's work alone (callgraph, flame), such as read."
)
CALLED_ON = Option(
    name="--called-on", metavar="WHAT", help="Show calls on this alone, as --show costs names it, such as 'TCP socket'."
)
WHOSE = Option(
    name="--whose", metavar="OWNER", help="Show the work for this one alone: program, client, init or kernel."
)
DURING = Option(
    name="--during", type=During, help="Show this part: the load, the boot until the container is ready, or all."
)
FOLDED = Option(
    name="--folded", type=Path, unkeyed="it is where a result goes",
    help="Write the paths as folded stacks, for flame graphs, to this file.",
)  # fmt: skip
SPEEDSCOPE = Option(
    name="--speedscope", type=Path, unkeyed="it is where a result goes", help="Write them to this file for speedscope."
)
FLAME_PAGE = Option(
    name="--page", type=Path, unkeyed="it is where a result goes",
    help="Write a page with a picture of the paths (one HTML file) here.",
)  # fmt: skip


class Show(StrEnum):
    """The parts of a trace that `trace --show` prints."""

    SYSCALLS = "syscalls"
    TASKS = "tasks"
    FILES = "files"
    COVERAGE = "coverage"
    COSTS = "costs"
    CALLGRAPH = "callgraph"
    FLAME = "flame"
    CONSTANTS = "constants"
    REQUESTS = "requests"


#: Functions that were never entered from another, as they are printed; the JSON document has all.
_MOST_NEVER = 4
#: Parts for which the calls of the kernel are followed, in a boot of its own.
FOLLOWED_PARTS = (Show.COSTS, Show.CALLGRAPH, Show.FLAME, Show.CONSTANTS, Show.REQUESTS)


SHOW = Option(name="--show", type=Show, metavar="PART", help=f"Print this part of the trace: {', '.join(Show)}.")


@dataclass(frozen=True)
class Selection:
    """The choice of the calls to show; empty words choose all."""

    call: str
    on: str
    owner: str
    during: During


@dataclass(frozen=True)
class Pictures:
    """The files to write."""

    folded: Path | None
    speedscope: Path | None
    page: Path | None


def require_followed(shown: Selection, files: Pictures, show: Show) -> None:
    """Raise UserInputError for options of followed calls beside a part that has none."""
    given = (shown.call, shown.on, shown.owner, files.folded, files.speedscope, files.page)
    names = ("--call", "--called-on", "--whose", "--folded", "--speedscope", "--page")
    wrong = [name for name, value in zip(names, given, strict=True) if value]
    if shown.during is not During.LOAD:
        wrong.append("--during")
    if wrong:
        raise UserInputError(
            f"{', '.join(wrong)} cannot be used with --show {show}", hint="--show callgraph and --show flame have them"
        )


def show_followed(found: FollowedCalls, show: Show, shown: Selection, files: Pictures, json: bool) -> None:
    """Print a part of followed calls, and write the files that were asked for. Raises UserInputError for options that a
    load's parts do not have."""
    if show is Show.REQUESTS:
        require_followed(shown, files, show)
        print_rows(request_split.table(found.boot), json)
        return
    boot, graph = found.boot, found.boot.graph
    tree = boot.tree(shown.during, shown.call, shown.on, shown.owner)
    chosen = [
        one
        for one in boot.costs(shown.during)
        if shown.call in ("", one.call) and shown.on in ("", one.on) and shown.owner in ("", one.owner)
    ]
    loads = [event for event in found.events if shown.during is not During.LOAD or event.phase == "load"]
    if show is Show.COSTS:
        rows = call_rows.cost_rows(chosen, loads)
    elif show is Show.CONSTANTS:
        rows = call_rows.constant_rows(chosen, loads)
    elif show is Show.CALLGRAPH:
        rows = call_rows.tree_rows(tree, found.targets)
        if not json:
            rows = [line for row in rows for line in _indented(row)]
    else:
        functions = sorted(tree.functions().items(), key=lambda row: (-row[1], row[0]))
        rows = [{"function": name, "own": own} for name, own in functions]
    if files.folded is not None:
        write_atomic(files.folded, stack_formats.folded(tree).encode())
    if files.speedscope is not None:
        write_atomic(files.speedscope, notation.encoded_json(stack_formats.speedscope(tree, found.title)))
    if files.page is not None:
        words = (shown.during, shown.call, f"on {shown.on}" if shown.on else "", shown.owner)
        write_atomic(
            files.page, call_page.page(found.title, ", ".join(word for word in words if word), tree, chosen).encode()
        )
    if graph.cut:
        output.note(f"the tree of calls had no room for {graph.cut} paths: their functions are below [other paths]")
    if graph.rounded:
        output.note("there were so many different calls that their instructions are rounded; sums are exact")
    print_rows(rows, json)


def _indented(row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a row of a tree as it is printed, and one with what was never entered there."""
    shown = {name: value for name, value in row.items() if name not in ("depth", "never")}
    yield {**shown, "function": "  " * row["depth"] + row["function"]}
    if never := row.get("never"):
        more = f" and {len(never) - _MOST_NEVER} more" if len(never) > _MOST_NEVER else ""
        words = f"(never: {', '.join(never[:_MOST_NEVER])}{more})"
        yield {**dict.fromkeys(shown, ""), "function": "  " * (row["depth"] + 1) + words}


def print_rows(rows: list[dict[str, Any]], json: bool) -> None:
    """Print the rows of a trace, as a table or as JSON."""
    if json:
        output.document({"schema": "vmtailor/trace-rows/1", "rows": rows})
        return
    names = (name.replace("_", " ") for name in (rows[0] if rows else ("nothing was seen",)))
    table = Table(*folding(*names), box=box.SIMPLE_HEAD)
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    for_table().print(table)
