# SPDX-License-Identifier: Apache-2.0
"""`vmtailor gate`: budgets for CI."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from vmtailor.analysis.comparison import gate_reports, judged_document
from vmtailor.analysis.comparison.budgets import Judged, judge, parse_budget, shown
from vmtailor.analysis.comparison.judged_document import IMPLIED, Document
from vmtailor.base import output
from vmtailor.base.errors import AnswerNo, UserInputError
from vmtailor.base.files.regular_files import read_regular, write_output
from vmtailor.base.terminal import Column, Table, TerminalConsole, Text
from vmtailor.base.text import plain
from vmtailor.cli.fit_record import bundle_of
from vmtailor.drivers.host import verdict_file
from vmtailor.drivers.monitors import monitor_proof
from vmtailor.model.bundle import RUN
from vmtailor.model.fit_run import FitRun
from vmtailor.model.option import Option
from vmtailor.model.option_rows import BOOT, JSON


def gate(
    document: Annotated[
        Path,
        Option(
            name="DOCUMENT", type=Path,
            help="Judge a bundle, a JSON document of vmtailor (fit, boot, analyze), a folder of saved boots, or a log.",
        ),
    ],
    budgets: Annotated[
        Sequence[str],
        Option(
            name="BUDGETS", many=True,
            help="Hold it against 'init_instructions_net <= 30M', 'kernel_bytes <= +5% of OLD', 'kernel_us <= 2s'.",
        ),
    ] = (),
    file: Annotated[
        Path | None,
        Option(
            name="--budgets", short="-f", type=Path, help="Read budgets from this file, one a line; # begins a comment."
        ),
    ] = None,
    boot: Annotated[int, BOOT] = 0,
    json: Annotated[bool, JSON] = False,
    junit: Annotated[
        Path | None, Option(name="--junit", type=Path, help="Also write a JUnit report (XML) to this file.")
    ] = None,
    annotate: Annotated[
        bool,
        Option(
            name="--annotate", type=bool,
            help="Also print annotations of GitHub Actions. Default: where GITHUB_ACTIONS is true.",
        ),
    ] = False,
) -> None:  # fmt: skip
    """Check figures against budgets: exit 0 when all are kept, 1 when one is broken or its figure is missing.

    A fit that is not verified, a boot that crashed, and saved boots that failed break the gate, too, unless a budget
    names them: 'verified >= 0', 'crashed <= 1', 'boots_failed <= 1'."""
    lines = list(budgets)
    if file is not None:
        lines += [line for raw in _text(file).splitlines() if (line := raw.partition("#")[0].strip())]
    if not lines:
        raise UserInputError("no budget was given", hint="vmtailor gate bundle 'init_instructions_net <= 30M'")
    subject = _read(document, boot)
    judged, references = [], {}
    for budget in [parse_budget(line) for line in lines]:
        base = file.parent if file is not None and not Path(budget.reference).exists() else Path()
        if budget.reference and budget.reference not in references:
            references[budget.reference] = _read(base / budget.reference)
        reference = references[budget.reference].metrics if budget.reference else None
        judged.append(judge(budget, subject.metrics, reference))
    named = {one.budget.metric for one in judged}
    judged += _implied(subject, named)
    for name, one in references.items():
        judged += [
            replace(found, budget=replace(found.budget, text=f"{found.budget.text} in {name}"))
            for found in _implied(one, named)
        ]
    if junit is not None:
        write_output(junit, gate_reports.junit(str(subject.path), judged, subject.warnings))
    if json:
        rows = [
            {"budget": j.budget.text, "value": j.value, "limit": j.limit, "kept": j.kept, "why": j.why} for j in judged
        ]
        answer = {
            "schema": "vmtailor/gate/4",
            "kept": all(j.kept for j in judged),
            "judged": _identity(subject),
            "references": [_identity(one) for one in references.values()],
            "budgets": rows,
            "warnings": [{"code": code, "text": text} for code, text in subject.warnings],
        }
        output.document(answer)
    else:
        _show_document("judged", subject)
        for one in references.values():
            _show_document("reference", one)
        _show(judged)
        _show_warnings(subject)
    if annotate or os.environ.get("GITHUB_ACTIONS") == "true":
        for line in gate_reports.github_lines(str(subject.path), judged, subject.warnings):
            # GitHub reads both streams; a document has standard output for itself.
            (output.note if json else output.say)(line)
    broken = [j for j in judged if not j.kept]
    if broken:
        raise AnswerNo(
            f"{len(broken)} of {len(judged)} budgets are broken in {subject.path}; {gate_reports.told(broken[0])}",
            hint="vmtailor compare shows what changed between two boots",
        )


def _read(path: Path, boot: int = 0) -> Document:
    """Read a document; of a bundle its record, kernel and root must have the digests that the bundle says. Raises
    UserInputError."""
    loaded = bundle_of(path)
    if loaded is None:
        return judged_document.read(path, boot)
    if boot:
        raise UserInputError(f"{path} is a bundle, and holds no log of boots", hint="leave --boot out: it is for logs")
    for name in (loaded.bundle.kernel, loaded.bundle.root):
        loaded.digest(name)
    found = judged_document.of_bytes(loaded.data(RUN), loaded.path / RUN)
    later = verdict_file.read(loaded)
    every = monitor_proof.verdicts_of(loaded.record(FitRun, RUN), later)
    said = (("monitors", monitor_proof.line(every)),) if later else ()
    return replace(judged_document.with_monitors(found, later), facts=(*found.facts, *said))


def _implied(subject: Document, named: Collection[str]) -> Iterator[Judged]:
    """Yield what breaks the gate although no budget names it."""
    for name, (limit, meaning) in IMPLIED.items():
        if name in subject.metrics and name not in named:
            found = judge(parse_budget(f"{name} {limit}"), subject.metrics, None)
            if not found.kept:
                yield replace(found, meaning=meaning)


def _identity(document: Document) -> dict[str, Any]:
    return {"file": str(document.path), "sha256": document.sha256, **dict(document.facts)}


def _show_document(title: str, document: Document) -> None:
    console = TerminalConsole()
    digest = f" sha256:{document.sha256}" if document.sha256 else ""
    console.print(Text(f"{title}: {document.path}{digest}", style="bold"), soft_wrap=True)
    for name, text in document.facts:
        console.print(Text(f"  {name}: {plain(text)}", style="dim"), soft_wrap=True)


def _show_warnings(document: Document) -> None:
    console = TerminalConsole()
    for code, text in document.warnings:
        console.print(Text.assemble(("! ", "yellow"), (code, "yellow"), ": ", plain(text)))


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
