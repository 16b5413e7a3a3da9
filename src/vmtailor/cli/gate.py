# SPDX-License-Identifier: Apache-2.0
"""`vmtailor gate`: budgets for CI."""

from __future__ import annotations

import json as json_module
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from vmtailor.analysis.analyze import analyze
from vmtailor.analysis.boot_json import json_chunks
from vmtailor.analysis.gate import Judged, judge, metrics_of, parse_budget
from vmtailor.base.errors import AnswerNo, UserInputError

#: Looked for in a folder, in this order.
DOCUMENTS = ("run.json", "boot.json", "report.json", "timeline.json")


def gate(
    document: Annotated[
        Path,
        typer.Argument(
            help="A JSON document of vmtailor (fit, boot, analyze), a bundle that holds one, or a boot log."
        ),
    ],
    budgets: Annotated[
        list[str] | None, typer.Argument(help="'init_instructions_net <= 30M', 'ready_wall_p50 <= +5% of FILE'.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--budgets", "-f", help="A file with one budget a line; # begins a comment.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Hold figures against budgets: exit 0 when all are kept, 1 with the figure when one is not."""
    lines = list(budgets or ())
    if file is not None:
        lines += [line for raw in _text(file).splitlines() if (line := raw.partition("#")[0].strip())]
    if not lines:
        raise UserInputError("no budget was given", hint="vmtailor gate run.json 'kernel_us <= 500ms'")
    metrics = metrics_of(read_document(document))
    judged = []
    for line in lines:
        budget = parse_budget(line)
        base = file.parent if file is not None and not Path(budget.reference).exists() else Path()
        reference = metrics_of(read_document(base / budget.reference)) if budget.reference else None
        judged.append(judge(budget, metrics, reference))
    if json:
        rows = [{"budget": j.budget.text, "value": j.value, "limit": j.limit, "kept": j.kept} for j in judged]
        sys.stdout.write(
            json_module.dumps(
                {"schema": "vmtailor/gate/1", "kept": all(j.kept for j in judged), "budgets": rows}, indent=1
            )
            + "\n"
        )
    else:
        _show(judged)
    broken = [j for j in judged if not j.kept]
    if broken:
        first = broken[0]
        raise AnswerNo(
            f"{len(broken)} of {len(judged)} budgets are broken; {first.budget.metric} is {first.value:.6g}, "
            f"the limit {first.limit:.6g}",
            hint="vmtailor compare shows what changed between two boots",
        )


def read_document(path: Path) -> Any:
    """JSON of a document, of a bundle's, or of a log that is analysed first. Raises UserInputError."""
    if path.is_dir():
        inside = next((path / name for name in DOCUMENTS if (path / name).is_file()), None)
        if inside is not None:
            path = inside
    if path.is_file():
        data = path.read_bytes()
        if data.lstrip()[:1] == b"{":
            try:
                return msgspec.json.decode(data)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
                raise UserInputError(f"{path} is damaged: {error}", hint="make it again") from None
    return msgspec.json.decode(b"".join(json_chunks(analyze([path]))))


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserInputError(f"{path} cannot be read: {error}") from None


def _show(judged: list[Judged]) -> None:
    table = Table(box=None, header_style="dim")
    for name in ("budget", "found", "limit", ""):
        table.add_column(name, justify="right" if name in ("found", "limit") else "left")
    for one in judged:
        word = Text("kept", style="green") if one.kept else Text("broken", style="bold red")
        table.add_row(Text(one.budget.text), f"{one.value:.6g}", f"{one.limit:.6g}", word)
    Console(highlight=False).print(table)
