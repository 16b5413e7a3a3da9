# SPDX-License-Identifier: Apache-2.0
"""Findings about symbols that a machine lacks, as text and as a JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vmtailor.analysis.explain.kernel_lines import PrintedBy
from vmtailor.analysis.explain.presence import AskedKernel, Finding, Has, Presence
from vmtailor.base import figures
from vmtailor.base.terminal import BREAK, Table, TerminalConsole, Text

LOOKUP_SCHEMA = "vmtailor/lookup/1"
_MOST_OTHERS = 4
_MOST_LACKING = 10


@dataclass(frozen=True)
class LookupAnswer:
    """A question or a message with its answer. `bundle`: the bundle that was asked, as a word of a shell; empty for a
    bare configuration. `lacking`: for an error alone, symbols with the requests that each would satisfy.
    `printed`: lines that a kernel printed."""

    question: str
    target: AskedKernel
    verdict: Presence
    findings: tuple[Finding, ...]
    source: str
    bundle: str = ""
    kind: str = ""
    says: str = ""
    error: str = ""
    meaning: str = ""
    not_kernel: str = ""
    notes: tuple[str, ...] = ()
    lacking: tuple[tuple[str, tuple[str, ...]], ...] = ()
    printed: tuple[PrintedBy, ...] = ()


def brings_in(finding: Finding, answer: LookupAnswer) -> tuple[str, ...]:
    """Return the ways to bring a symbol in: a command for a bundle, lines for a configuration."""
    if finding.has is not Has.OUT or not finding.possible:
        return ()
    if answer.bundle and answer.target.name:
        names = [n for n, _ in finding.settings if n in finding.missing] or [n for n, _ in finding.settings]
        least = names[:1] if finding.symbol in names else names
        return (" ".join(["vmtailor refit", answer.bundle, *(f"--keep {name}" for name in least or [finding.symbol])]),)
    return tuple(f"CONFIG_{name}={value}" for name, value in finding.settings) or (f"CONFIG_{finding.symbol}=y",)


def document(answer: LookupAnswer) -> dict[str, Any]:
    """Return one answer as a JSON document."""
    return {
        "schema": LOOKUP_SCHEMA,
        "question": answer.question,
        "target": answer.target.name,
        "source": answer.source,
        "verdict": answer.verdict.value,
        "kind": answer.kind,
        "says": answer.says,
        "error": answer.error,
        "meaning": answer.meaning,
        "not_kernel": answer.not_kernel,
        "findings": [
            {
                "asked": str(f.ask), "symbol": f.symbol, "has": f.has.value, "condition": f.condition, "place": f.place,
                "prompt": f.prompt, "missing": list(f.missing), "why_out": f.why, "in_the_way": list(f.in_the_way),
                "also_sets": list(f.also), "selected_by": list(f.selected_by), "possible": f.possible,
                "ran_instructions": f.ran, "brings_in": list(brings_in(f, answer)),
            }
            for f in answer.findings
        ],
        "lacking": [{"symbol": symbol, "answers": list(names)} for symbol, names in answer.lacking],
        "printed": [
            {"line": one.line, "options": list(one.options), "source": one.source, "has": _has(one, answer),
             "selected_by": list(one.selected_by), "try": _try_without(one, answer)}
            for one in answer.printed
        ],
        "notes": list(answer.notes),
    }  # fmt: skip


def show(answer: LookupAnswer, console: TerminalConsole) -> None:
    """Print one answer for a person, on one screen."""
    mark, style, words = _headline(answer)
    console.print(Text.assemble((f"{mark} ", style), (words, "bold")))
    if answer.error:
        console.print(Text(f"  {answer.error}: {answer.meaning}", "dim"))
    if answer.findings and answer.verdict is Presence.UNSURE:
        _show_others(answer.findings, console, most=len(answer.findings))
    elif answer.findings and answer.verdict is not Presence.NOT_KERNEL:
        _show_first(answer.findings[0], answer, console)
        _show_others(answer.findings[1:], console)
    if answer.lacking:
        _show_lacking(answer, console)
    if answer.printed:
        _show_printed(answer, console)
    for note in answer.notes:
        console.print(Text(f"  note: {note}", "dim"))


def _headline(answer: LookupAnswer) -> tuple[str, str, str]:
    if answer.verdict is Presence.NOT_KERNEL:
        return "•", "bold cyan", f"not the kernel: {answer.not_kernel}"
    if answer.verdict is Presence.UNKNOWN:
        return "?", "bold yellow", _not_understood(answer)
    if answer.verdict is Presence.PRINTED:
        return "→", "bold", _printed_by(answer.printed)
    first = answer.findings[0]
    if answer.verdict is Presence.UNSURE:
        likeliest = f"{first.ask} ({first.symbol or 'always there'})"
        return (
            "?",
            "bold yellow",
            f"this does not say what was asked for; it may be {likeliest}, or what is listed below",
        )
    return _about(first, answer.target.name)


def _not_understood(answer: LookupAnswer) -> str:
    if answer.lacking:
        return f"{answer.question} alone does not say what was asked for"
    if answer.error == "EINVAL":
        return "this does not say what was asked for; a call that is missing gives no EINVAL"
    return "nothing that the kernel's source knows by name is in this"


def _about(first: Finding, name: str) -> tuple[str, str, str]:
    """Return the headline of an answer that names a symbol, by its first finding."""
    if first.has is Has.OUT:
        by = f"; {_any_of(first.selected_by)} selects it" if first.selected_by else ""
        if not name:
            return "→", "bold", f"{first.ask} needs {first.symbol}{by}"
        return "✗", "bold yellow", f"{first.ask} needs {first.symbol}, which {name} lacks{by}"
    if first.has is Has.MODULE:
        words = f"{first.ask} needs {first.symbol}, a module: it must be below /lib/modules, and loaded"
        return "!", "bold yellow", words
    if first.has is Has.ALWAYS:
        return "✓", "bold green", f"{first.ask}: every kernel of this source has it"
    return "✓", "bold green", f"{first.ask}: {name} has it ({first.symbol}); what failed is something else"


def _any_of(names: Sequence[str]) -> str:
    if len(names) > _MOST_OTHERS:
        return f"{', '.join(names[:_MOST_OTHERS])} or another"
    return " or ".join((", ".join(names[:-1]), names[-1]) if len(names) > 1 else names)


def _show_first(finding: Finding, answer: LookupAnswer, console: TerminalConsole) -> None:
    table = Table.grid(padding=(0, 2))
    rows = [("condition", f"{finding.condition}  ({finding.place})")]
    if finding.prompt:
        rows.insert(0, (finding.symbol, finding.prompt))
    if finding.why:
        rows.append(("why it is out", finding.why))
    rows += [("in the way", way) for way in finding.in_the_way[:3]]
    if finding.has is Has.OUT:
        ran = finding.ran
        if ran is not None:
            price = (
                f"{figures.grouped(ran)} instructions ran on the baseline"
                if ran
                else "no code of it ran on the baseline"
            )
            rows.append(("its price", price))
        if not finding.possible:
            rows.append(("", "this tree and machine cannot have it: see what it depends on"))
        if finding.also:
            rows.append(("also sets", _some(finding.also)))
    for name, text in rows:
        table.add_row(Text(f"  {name}", "dim"), Text(text))
    console.print(table)
    ways = brings_in(finding, answer)
    if ways:
        console.print(Text.assemble(BREAK, ("what brings it in", "bold")))
        for way in ways[:12]:
            console.print(Text(f"  {way}", "cyan"), soft_wrap=True)


def _show_others(others: Sequence[Finding], console: TerminalConsole, most: int = _MOST_OTHERS) -> None:
    if not others:
        return
    console.print(Text.assemble(BREAK, ("or" if most == _MOST_OTHERS else "it may be", "bold")))
    for one in others[:most]:
        has = "" if one.has is Has.OUT else f" ({one.has.value})"
        console.print(Text(f"  {one.symbol or 'always there'}{has}  {one.ask}"))


def _show_lacking(answer: LookupAnswer, console: TerminalConsole) -> None:
    whose = f"{answer.target.name} lacks, and would answer so" if answer.target.name else "without these it answers so"
    console.print(Text.assemble(BREAK, (whose, "bold")))
    for symbol, names in answer.lacking[:_MOST_LACKING]:
        console.print(Text(f"  {symbol}  {_some(names, 4)}"))
    if len(answer.lacking) > _MOST_LACKING:
        console.print(Text(f"  and {len(answer.lacking) - _MOST_LACKING} more: --json has all", "dim"))


def _some(names: Sequence[str], most: int = 8) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f", and {more} more" if more > 0 else "")


# ---- lines that a kernel printed


def _printed_by(lines: Sequence[PrintedBy]) -> str:
    if len(lines) > 1:
        return f"{len(lines)} lines that the kernel prints, and the option behind each"
    if not lines[0].options:
        return f"{lines[0].source} prints this line, which every kernel has"
    return f"{_any_of(lines[0].options)} prints this line"


def _has(one: PrintedBy, answer: LookupAnswer) -> bool | None:
    """Return whether the kernel that is asked has a line's option; None without a kernel or an option."""
    if not answer.target.name or not one.options:
        return None
    return any(option in answer.target.values for option in one.options)


def _try_without(one: PrintedBy, answer: LookupAnswer) -> str:
    """Return the command that tries a kernel without a line's option; empty where it lacks it, or there is none."""
    if len(one.options) != 1 or _has(one, answer) is False:
        return ""
    return f"vmtailor boot {answer.bundle or 'BUNDLE'} --try {one.options[0]}=n"


def _show_printed(answer: LookupAnswer, console: TerminalConsole) -> None:
    table = Table.grid(padding=(0, 2))
    for one in answer.printed:
        has = {True: f"; {answer.target.name} has it", False: f"; {answer.target.name} lacks it", None: ""}
        table.add_row(Text(f"  {_any_of(one.options) or '–'}", "cyan"), Text(one.line))
        table.add_row("", Text(f"{one.source}{has[_has(one, answer)]}", "dim"))
        held = [name for name in one.selected_by if name in answer.target.values]
        if held:
            table.add_row("", Text(f"kept on by {', '.join(held)}", "yellow"))
    console.print(table)
    ways = dict.fromkeys(way for one in answer.printed if (way := _try_without(one, answer)))
    if ways:
        console.print(Text.assemble(BREAK, ("what tries a kernel without it", "bold")))
        for way in list(ways)[:_MOST_LACKING]:
            console.print(Text(f"  {way}", "cyan"), soft_wrap=True)
