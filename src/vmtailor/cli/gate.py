# SPDX-License-Identifier: Apache-2.0
"""`vmtailor gate`: budgets for CI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from vmtailor.analysis.comparison.budgets import Judged, judge, parse_budget, shown
from vmtailor.analysis.comparison.judged_document import FAILED, Document, read
from vmtailor.base import output
from vmtailor.base.errors import AnswerNo, UserInputError
from vmtailor.base.files.regular_files import read_regular
from vmtailor.base.terminal import Column, Table, TerminalConsole, Text
from vmtailor.model.option import Option
from vmtailor.model.option_rows import JSON


def gate(
    document: Annotated[
        Path,
        Option(
            name="DOCUMENT", type=Path,
            help="Judge a JSON document of vmtailor (fit, boot, analyze), a bundle that holds one, or a boot log.",
        ),
    ],
    budgets: Annotated[
        Sequence[str],
        Option(
            name="BUDGETS", many=True,
            help="Hold it against 'init_instructions_net <= 30M', 'ready_s_p50 <= +5% of FILE'.",
        ),
    ] = (),
    file: Annotated[
        Path | None,
        Option(
            name="--budgets", short="-f", type=Path, help="Read budgets from this file, one a line; # begins a comment."
        ),
    ] = None,
    json: Annotated[bool, JSON] = False,
) -> None:  # fmt: skip
    """Check figures against budgets: exit 0 when all are kept, 1 when one is broken or its figure is missing."""
    lines = list(budgets)
    if file is not None:
        lines += [line for raw in _text(file).splitlines() if (line := raw.partition("#")[0].strip())]
    if not lines:
        raise UserInputError("no budget was given", hint="vmtailor gate run.json 'kernel_us <= 500ms'")
    subject = read(document)
    if any(subject.metrics.get(FAILED, ())) and not any(FAILED in line for line in lines):
        lines.append(f"{FAILED} <= 0")  # figures of those that were left say nothing of those that were not
    judged, references = [], {}
    for line in lines:
        budget = parse_budget(line)
        base = file.parent if file is not None and not Path(budget.reference).exists() else Path()
        if budget.reference and budget.reference not in references:
            references[budget.reference] = read(base / budget.reference)
        reference = references[budget.reference].metrics if budget.reference else None
        judged.append(judge(budget, subject.metrics, reference))
    if json:
        rows = [
            {"budget": j.budget.text, "value": j.value, "limit": j.limit, "kept": j.kept, "why": j.why} for j in judged
        ]
        answer = {
            "schema": "vmtailor/gate/3",
            "kept": all(j.kept for j in judged),
            "judged": _identity(subject),
            "references": [_identity(one) for one in references.values()],
            "budgets": rows,
        }
        output.document(answer)
    else:
        _show_document("judged", subject)
        for one in references.values():
            _show_document("reference", one)
        _show(judged)
    broken = [j for j in judged if not j.kept]
    if broken:
        first = broken[0]
        name = first.budget.metric
        told = first.why or f"{name} is {shown(name, first.value)}, the limit {shown(name, first.limit)}"
        raise AnswerNo(
            f"{len(broken)} of {len(judged)} budgets are broken in {subject.path}; {told}",
            hint="vmtailor compare shows what changed between two boots",
        )


def _identity(document: Document) -> dict[str, Any]:
    return {"file": str(document.path), "sha256": document.sha256, **dict(document.facts)}


def _show_document(title: str, document: Document) -> None:
    console = TerminalConsole()
    digest = f" sha256:{document.sha256}" if document.sha256 else ""
    console.print(Text(f"{title}: {document.path}{digest}", style="bold"), soft_wrap=True)
    for name, text in document.facts:
        console.print(Text(f"  {name}: {text}", style="dim"), soft_wrap=True)


def _text(path: Path) -> str:
    try:
        return read_regular(path, "the file of budgets", 1 << 20).decode()
    except UnicodeDecodeError as error:
        raise UserInputError(f"{path} cannot be read: {error}") from None


def _show(judged: list[Judged]) -> None:
    figures = (Column("found", justify="right"), Column("limit", justify="right"))
    table = Table("budget", *figures, "", box=None, header_style="dim")
    for one in judged:
        missing = "no such figure" if one.why else "broken"
        word = Text("kept", style="green") if one.kept else Text(missing, style="bold red")
        name = one.budget.metric
        table.add_row(Text(one.budget.text), shown(name, one.value), shown(name, one.limit), word)
    TerminalConsole().print(table)
