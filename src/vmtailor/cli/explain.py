# SPDX-License-Identifier: Apache-2.0
"""`vmtailor explain`: why something is in a bundle, or out, and what would bring it in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from vmtailor.analysis.changes import catalogue
from vmtailor.analysis.changes.causes import MEANING, ORDER, cause_of, counts
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.explain import answers, from_tree
from vmtailor.analysis.explain.answers import Explained, NameKind, Standing
from vmtailor.analysis.explain.explain import explain as explain_symbol
from vmtailor.base import output
from vmtailor.base.errors import UserInputError
from vmtailor.base.terminal import BREAK, Console, Table, Text, box
from vmtailor.base.words.text import plural
from vmtailor.cli.saved import TraceLines, cached_tree, load_run
from vmtailor.model.architecture import names
from vmtailor.model.change import Reason
from vmtailor.model.fit import FitRun

EXPLAIN_SCHEMA = "vmtailor/explain/1"

_STYLES = {
    Standing.IN: "bold green",
    Standing.OFF: "bold yellow",
    Standing.OUT: "bold yellow",
}


def explain(
    bundle: Annotated[Path, typer.Argument(help="A bundle, or the run.json in it.")],
    what: Annotated[
        str | None,
        typer.Argument(
            help="A symbol (EPOLL or CONFIG_EPOLL), initcall, function, system call, file or command-line word."
        ),
    ] = None,
    tree: Annotated[
        bool, typer.Option(help="For what is out, read the kernel's source too, where the cache has it: some seconds.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Say why something is in a bundle, with the place in the trace, or why it is out and what would bring it in.

    Without WHAT: an overview of all symbols by cause."""
    run, folder = load_run(bundle)
    console = Console()
    if what is None:
        if json:
            output.document(overview_document(run))
        else:
            overview(run, bundle, console)
        return
    found = _find(run, what, tree)
    if found is None:
        close = answers.nearest(run, what)
        raise UserInputError(
            f"neither the plan nor the trace of {bundle} has '{what}'",
            hint=f"did you mean {', '.join(close)}?" if close else f"all symbols: vmtailor explain {bundle}",
        )
    lines = TraceLines(folder)
    if json:
        output.document(answer_document(found, lines))
    else:
        show(found, lines, console)


def _find(run: FitRun, what: str, tree: bool) -> Explained | None:
    rules = demand_rules.load()
    # A plan may be somebody else's, of an architecture that this version does not know: any entry's words will do then.
    architecture = run.plan.architecture if run.plan.architecture in names() else None
    found = answers.answer(run, what, catalogue.load(architecture=architecture), rules)
    if not tree or (found is not None and (found.kind is not NameKind.SYMBOL or found.standing is Standing.IN)):
        return found
    name = found.what if found is not None else what.removeprefix("CONFIG_").upper()
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        return found
    source = cached_tree(run.plan.kernel_version, architecture=architecture)
    if source is None:
        return found
    known = explain_symbol(name, run.plan, source.facts, source.kconfig, rules)
    if not known.known:
        return found
    return from_tree.with_tree(found, known) if found is not None else from_tree.outside_baseline(known)


def answer_document(found: Explained, lines: TraceLines) -> dict[str, Any]:
    """One answer as a JSON document."""
    return {
        "schema": EXPLAIN_SCHEMA,
        "what": found.what,
        "kind": found.kind.value,
        "standing": found.standing.value,
        "summary": found.summary,
        "reasons": [_reason_document(reason, lines) for reason in found.reasons],
        "chain": [{"symbol": name, **_reason_document(reason, lines)} for name, reason in found.chain],
        "brings_in": list(found.brings_in),
        "facts": [{"name": name, "value": value} for name, value in found.facts],
        "related": list(found.related),
    }


def _reason_document(reason: Reason, lines: TraceLines) -> dict[str, Any]:
    return {
        "cause": reason.cause.value,
        "text": reason.text,
        "reference": reason.reference,
        "line": lines.quote(reason.reference),
    }


def overview_document(run: FitRun) -> dict[str, Any]:
    """All kept symbols by cause as a JSON document."""
    return {
        "schema": EXPLAIN_SCHEMA,
        "counts": {cause.value: number for cause, number in counts(run.plan.symbols).items()},
        "symbols": {
            cause.value: [c.id for c in run.plan.symbols if c.setting.chosen and c.is_kept and cause_of(c) is cause]
            for cause in ORDER
        },
        "unexplained": list(run.unexplained),
        "left_out": len(run.plan.left_out),
    }


def show(found: Explained, lines: TraceLines, console: Console) -> None:
    """Print one answer for a person."""
    mark = {Standing.IN: "✓", Standing.OFF: "✗", Standing.OUT: "✗"}[found.standing]
    console.print(Text.assemble((f"{mark} ", _STYLES[found.standing]), (found.summary, "bold")))
    for reason in found.reasons:
        _show_reason(reason, lines, console)
    if len(found.chain) > 1:
        console.print(Text.assemble(BREAK, ("the way to a direct cause", "bold")))
        for depth, (name, reason) in enumerate(found.chain):
            arrow = "  " * (depth + 1) + ("└ " if depth else "")
            console.print(Text.assemble(arrow, (name, "bold"), f" – {reason.text}"))
        _quote(found.chain[-1][1], lines, console)
    if found.facts:
        console.print()
        table = Table.grid(padding=(0, 3))
        for name, value in found.facts:
            table.add_row(Text(f"  {name}", "dim"), Text(value))
        console.print(table)
    if found.brings_in:
        console.print(Text.assemble(BREAK, ("what would bring it in", "bold")))
        for way in found.brings_in:
            console.print(Text(f"  • {way}"))
    if found.related:
        console.print(Text.assemble(BREAK, ("related  ", "bold"), ", ".join(found.related)))


def _show_reason(reason: Reason, lines: TraceLines, console: Console) -> None:
    console.print(Text.assemble("  ", (reason.cause.value, "cyan"), f"  {reason.text}  ", (reason.reference, "dim")))
    _quote(reason, lines, console)


def _quote(reason: Reason, lines: TraceLines, console: Console) -> None:
    quoted = lines.quote(reason.reference)
    if quoted is not None:
        console.print(Text.assemble("    │ ", (quoted, "italic")), soft_wrap=True)


def overview(run: FitRun, bundle: Path, console: Console) -> None:
    """Print the symbols with a prompt by cause."""
    found = counts(run.plan.symbols)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim", show_lines=False)
    table.add_column("cause", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("symbols with a prompt")
    for cause in ORDER:
        names = [c.id for c in run.plan.symbols if c.setting.chosen and c.is_kept and cause_of(c) is cause]
        table.add_row(
            Text(cause.value, "bold"), str(found[cause]), Text.assemble((MEANING[cause], "dim"), BREAK, " ".join(names))
        )
        table.add_section()
    console.print(table)
    if run.unexplained:
        console.print(Text.assemble(("unexplained  ", "bold yellow"), ", ".join(run.unexplained)))
    ran = sum(1 for row in run.plan.left_out if row.evidence)
    console.print(
        Text(f"{plural(len(run.plan.left_out), 'symbol')} of the baseline left out, of which {ran} ran", "dim")
    )
    console.print(Text.assemble(BREAK, ("in detail  ", "bold"), (f"vmtailor explain {bundle} SYMBOL", "cyan")))
