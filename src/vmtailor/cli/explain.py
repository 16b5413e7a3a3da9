# SPDX-License-Identifier: Apache-2.0
"""`vmtailor explain`: say why something is in a bundle or not, and how to bring it in."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.analysis.changes.plan_summary import MEANING, ORDER, cause_of, counts
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.explain import answers, explanation, messages, requirements, system_answers
from vmtailor.analysis.explain.answers import Explained, NameKind, Standing
from vmtailor.analysis.explain.explanation import explain as explain_symbol
from vmtailor.analysis.explain.failure import MOST_CHARACTERS, recognise
from vmtailor.analysis.explain.kernel_lines import PrintedBy, decides, printed_lines
from vmtailor.analysis.explain.lookup import meant
from vmtailor.analysis.explain.presence import AskedKernel, Presence, by_error, findings, lacking, verdict
from vmtailor.analysis.explain.requirements import HeldAgainst
from vmtailor.base import near_names, output
from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.base.terminal import BREAK, Column, Table, TerminalConsole, Text, box
from vmtailor.base.text import plural
from vmtailor.base.verb_end import NextCommand, VerbEnd, show_end
from vmtailor.cli import remedy_view
from vmtailor.cli.fit_record import TraceLines, later_verdicts, load_run, words_of
from vmtailor.cli.tables import requirements_view
from vmtailor.cli.tables.finding_view import LookupAnswer, document
from vmtailor.cli.tables.finding_view import show as show_answer
from vmtailor.drivers.kernel import symbol_names
from vmtailor.drivers.monitors import monitor_proof
from vmtailor.model.architecture import named, names
from vmtailor.model.change import Reason
from vmtailor.model.fit_run import FitRun
from vmtailor.model.monitor_verdicts import MonitorVerdict
from vmtailor.model.option import Option
from vmtailor.model.option_rows import JSON, SOURCE
from vmtailor.pipeline import bundle_reference
from vmtailor.pipeline.known_source import SourceAtHand, newest_source, read_configuration, source_for

EXPLAIN_SCHEMA = "vmtailor/explain/1"

_STYLES = {
    Standing.IN: "bold green",
    Standing.OFF: "bold yellow",
    Standing.OUT: "bold yellow",
}


def explain(
    bundle: Annotated[
        Path | None,
        Option(
            name="BUNDLE", type=Path,
            help="Explain this bundle, or the run.json in it; or a remedy of the catalogue by its id. Left out with "
            "--config, or for --failure alone.",
        ),
    ] = None,
    what: Annotated[
        str | None,
        Option(
            name="WHAT",
            help="Explain a symbol, unit, initcall, function, file, kernel word or remedy; or a call, "
            "/proc/self/status, AF_INET6, EOPNOTSUPP, overlay, MASQUERADE.",
        ),
    ] = None,
    failure: Annotated[
        str | None,
        Option(name="--failure", help="Explain a message of a program or the kernel, or a line of strace; - reads it."),
    ] = None,
    config: Annotated[
        Path | None,
        Option(name="--config", type=Path, help="Ask a kernel's .config, or /proc/config.gz, instead of a bundle."),
    ] = None,
    source: Annotated[
        str | None,
        replace(
            SOURCE,
            help="Read the kernel's source from a folder, a tarball, or a packaged version. Default: the cache's of "
            "the kernel's version.",
        ),
    ] = None,
    for_: Annotated[
        str | None,
        Option(
            name="--for",
            help="Show what this program (docker, podman, systemd) is known to require, and if the kernel has it.",
        ),
    ] = None,
    tree: Annotated[
        bool,
        Option(
            name="--tree", type=bool,
            help="For what is out, also read the kernel's source if the cache has it: some seconds.",
        ),
    ] = True,
    json: Annotated[bool, JSON] = False,
) -> None:  # fmt: skip
    """Say why something is in a bundle, with the place in the trace, or why it is out and what would bring it in.

    Without WHAT: an overview of all symbols by cause. With --failure: which symbol a message asks for, if any."""
    console = TerminalConsole()
    asked = (what, failure, config, for_)
    if asked == (None,) * 4 and bundle is not None and not bundle.exists() and _is_remedy(str(bundle), json, console):
        return
    bundle = bundle if bundle is None else bundle_reference.local(bundle)
    if for_ is not None:
        if what is not None or failure is not None:
            raise UserInputError("--for goes without a name and without --failure", hint="ask one thing at a time")
        _explain_for(for_, config or bundle, source, json, console)
        return
    if config is not None:
        asked_for = str(bundle) if what is None and bundle is not None else what
        _of_configuration(config, asked_for, failure, source, json, console)
        return
    if bundle is None:
        if failure is None:
            raise UserInputError(
                "there is nothing to explain", hint="give a bundle, --config FILE, or --failure MESSAGE"
            )
        _print(_answer_without_kernel(failure, source), json, console)
        return
    if failure is not None:
        run, folder = load_run(bundle)
        target, word = AskedKernel.of_plan(run.plan), shlex.quote(str(folder))
        _print(_answer_failure(failure, _bundle_source(run, source), target, word), json, console)
        return
    _of_bundle(bundle, what, source, console, tree=tree, json=json)


def _of_bundle(
    bundle: Path, what: str | None, source: str | None, console: TerminalConsole, *, tree: bool, json: bool
) -> None:
    """Print the answer to a name, or to none, by the record of a bundle's fit. Raises UserInputError for a name that it
    does not have."""
    run, folder = load_run(bundle)
    word = shlex.quote(str(folder))
    if what is None:
        _print_overview(run, bundle, json, console)
        return
    at_hand = _Source(run, source if tree else None)
    words = words_of(bundle) if _WORD.fullmatch(what) else ()
    found = None if what in words else _find(run, what, at_hand if tree else None)
    found = found or system_answers.machine_word_answer(run, what, words)
    if found is None or found.kind in (NameKind.FUNCTION, NameKind.FILE):
        known = at_hand.found if tree else None
        answer = _answer_word(what, known, AskedKernel.of_plan(run.plan), word) if known is not None else None
        if answer is not None:
            _print(answer, json, console)
            return
    if found is None and _is_remedy(what, json, console):
        return
    if found is None:
        close = answers.nearest(run, what) or near_names.nearest(what, symbol_names.shipped()[1])
        more = "" if at_hand.found is not None else _NO_SOURCE.format(run.plan.kernel_version)
        raise UserInputError(
            f"neither the plan nor the trace of {bundle} has '{what}'{more}",
            hint=f"did you mean {', '.join(close)}?" if close else f"all symbols: vmtailor explain {bundle}",
        )
    lines = TraceLines(folder)
    found = replace(
        found, brings_in=tuple(way.replace("vmtailor fit …", f"vmtailor refit {word}") for way in found.brings_in)
    )
    if json:
        output.document(answer_document(found, lines))
    else:
        show(found, lines, console)


def _is_remedy(name: str, json: bool, console: TerminalConsole) -> bool:
    """Print what the catalogue says of a remedy; False for a name that is none's id."""
    entry = remedy_view.find(name)
    if entry is None:
        return False
    if json:
        output.document(remedy_view.document(entry, name, EXPLAIN_SCHEMA))
    else:
        remedy_view.show(entry, console)
    return True


# ---- what a program requires of a kernel


def _explain_for(program: str, kernel: Path | None, source: str | None, json: bool, console: TerminalConsole) -> None:
    """Print what a program requires. `kernel`: a bundle, or a configuration. It only reports: what is missing is no
    failure. Raises UserInputError."""
    asked = requirements.of_program(program)
    if kernel is None:
        raise UserInputError(
            "there is no kernel to look at", hint="give a bundle, a .config, or /proc/config.gz of a running kernel"
        )
    of = _required_of_bundle if kernel.is_dir() or kernel.suffix == ".json" else _required_of_configuration
    held = of(asked, kernel, source)
    if json:
        output.document(requirements_view.document(held))
    else:
        requirements_view.show(held, console)


def _required_of_bundle(asked: requirements.Requirements, path: Path, source: str | None) -> HeldAgainst:
    run, _ = load_run(path)
    known = _symbols(source_for(source, run.plan.kernel_version, run.plan.architecture))
    return requirements.against_run(asked, str(path), run, known)


def _required_of_configuration(asked: requirements.Requirements, path: Path, source: str | None) -> HeldAgainst:
    made = read_configuration(path)
    known = _symbols(source_for(source, made.version, made.architecture or None)) if made.version or source else None
    return requirements.against_configuration(asked, str(path), made.symbols, made.version, known)


def _symbols(source: SourceAtHand | None) -> requirements.Knows | None:
    """Return a function that tells whether a source has a symbol; None when the source is not available."""
    if source is None or source.known.kconfig is None:
        return None
    return source.known.kconfig.known


# ---- what a kernel is asked for

_NO_SOURCE = "; the source of {0} is not in the cache, so only what the fit recorded was looked at: give --source {0}"


#: A word of a kernel command line, or its name: no symbol, path or constant is written so.
_WORD = re.compile(r"[a-z][a-z0-9_.]*(?:=\S*)?")


class _Source:
    """The source of a bundle's kernel, which is read when it is first asked for, and once."""

    def __init__(self, run: FitRun, given: str | None) -> None:
        self._run = run
        self._given = given

    @cached_property
    def found(self) -> SourceAtHand | None:
        return _bundle_source(self._run, self._given, required=False)

    def own(self) -> SourceAtHand | None:
        """Return the source if it is of this very kernel and can be read."""
        with contextlib.suppress(VmtailorError, OSError):
            return self.found if self.found is not None and not self.found.note else None
        return None


def _bundle_source(run: FitRun, given: str | None, *, required: bool = True) -> SourceAtHand | None:
    found = source_for(given, run.plan.kernel_version, run.plan.architecture)
    if found is None and required:
        raise _without_source(run.plan.kernel_version)
    return found


def _without_source(version: str) -> UserInputError:
    return UserInputError(
        f"the source of {version or 'this kernel'} is not in the cache, and nothing can be looked up without it",
        hint=f"give it: --source {version or 'FOLDER|TARBALL|VERSION'}, or a folder or tarball of another close to it",
    )


def _any_source(given: str | None) -> SourceAtHand:
    """Return the source that is given, else the newest one at hand. Raises UserInputError without any."""
    found = source_for(given, "") if given is not None else newest_source()
    if found is None:
        raise UserInputError(
            "no kernel's source is in the cache, and nothing can be looked up without one",
            hint="give one: --source FOLDER|TARBALL|VERSION",
        )
    return found


def _of_configuration(
    file: Path, what: str | None, failure: str | None, source: str | None, json: bool, console: TerminalConsole
) -> None:
    made = read_configuration(file)
    if what is None and failure is None:
        raise UserInputError("there is nothing to look up", hint="give a name, or --failure MESSAGE")
    known = source_for(source, made.version, made.architecture or None)
    if known is None and not made.version:
        known = newest_source()  # a fragment does not say of which kernel it is
    if known is None:
        raise _without_source(made.version)
    same = bool(made.version) and made.architecture in names() and not known.note
    target = AskedKernel.of_config(str(file), made.symbols, known.known.kconfig, same_source=same)
    if failure is not None:
        _print(_answer_failure(failure, known, target, ""), json, console)
        return
    answer = _answer_word(what or "", known, target, "")
    if answer is None:
        raise UserInputError(
            f"the source of {known.version} knows nothing by the name '{what}'",
            hint="give a call, a path, a family, a module … as programs write it; for a whole message, --failure",
        )
    _print(answer, json, console)


def _answer_without_kernel(message: str, given: str | None) -> LookupAnswer:
    """Return the answer to a message alone: by the source at hand, or, without any, by the index of the kernel's
    messages. Raises UserInputError without either."""
    message = _message(message)
    try:
        source = _any_source(given)
    except UserInputError:
        lines = printed_lines(message)
        if given is not None or not lines:
            raise
        return _answer_printed(message, lines, AskedKernel.of_source(), "", "", ())
    return _answer_failure(message, source, AskedKernel.of_source(), "")


def _message(given: str) -> str:
    return sys.stdin.read(MOST_CHARACTERS) if given == "-" else given


def _answer_printed(
    message: str, lines: tuple[PrintedBy, ...], target: AskedKernel, version: str, bundle: str, notes: tuple[str, ...]
) -> LookupAnswer:
    return LookupAnswer(
        question=message.strip(),
        target=target,
        verdict=Presence.PRINTED,
        findings=(),
        source=version,
        bundle=bundle,
        kind="printed",
        printed=lines,
        notes=notes,
    )


def _answer_failure(message: str, source: SourceAtHand | None, target: AskedKernel, bundle: str) -> LookupAnswer:
    assert source is not None
    message = _message(message)
    kinds = messages.load()
    read = recognise(message, source.known, kinds)
    found = () if read.not_kernel else findings(read.asks, source.known, target)
    notes = tuple(note for note in (*read.notes, target.note, source.note) if note)
    if not read.error and decides(lines := printed_lines(message), read):
        return _answer_printed(message, lines, target, source.version, bundle, (target.note,) if target.note else ())
    lacks = (
        lacking(by_error(read.error, source.known), source.known, target) if not found and not read.not_kernel else ()
    )
    return LookupAnswer(
        question=message.strip(),
        target=target,
        verdict=verdict(found, read.not_kernel, sure=read.sure, asked=bool(target.name)),
        findings=found,
        source=source.version,
        bundle=bundle,
        kind=read.kind,
        says=read.says,
        error=read.error,
        meaning=read.meaning,
        not_kernel=read.not_kernel,
        notes=notes,
        lacking=lacks,
    )


def _answer_word(what: str, source: SourceAtHand, target: AskedKernel, bundle: str) -> LookupAnswer | None:
    """Return the answer to a name, an error, or a call and a word of its arguments; None where the source knows none of
    it."""
    notes = tuple(note for note in (target.note, source.note) if note)
    kinds = messages.load()
    words = what.replace("(", " ").replace(")", " ").replace(",", " ").split()
    error = next((known for word in words if (known := kinds.error(word)) is not None), None)
    rest = [word for word in words if error is None or word != error.name]
    asks = [ask for word in reversed(rest) for ask in meant(word, source.known)]
    found = findings(asks, source.known, target)
    base = LookupAnswer(
        question=what,
        target=target,
        verdict=verdict(found, ""),
        findings=found,
        source=source.version,
        bundle=bundle,
        kind="name",
        error=error.name if error is not None else "",
        meaning=error.meaning if error is not None else "",
        notes=notes,
    )
    if error is not None and not rest:
        lacks = lacking(by_error(error.name, source.known), source.known, target)
        why = error.meaning if error.about == "elsewhere" else ""
        return replace(base, verdict=verdict((), why), findings=(), kind="error", not_kernel=why, lacking=lacks)
    return base if found else None


def _print(answer: LookupAnswer, json: bool, console: TerminalConsole) -> None:
    if json:
        output.document(document(answer))
    else:
        show_answer(answer, console)


def _find(run: FitRun, what: str, at_hand: _Source | None) -> Explained | None:
    if (beside := system_answers.unit_answer(run, what) or system_answers.word_answer(run, what)) is not None:
        return beside
    # A plan may be somebody else's, of an architecture that this version does not know: any entry's words will do then.
    architecture = run.plan.architecture if run.plan.architecture in names() else None
    rules = demand_rules.load(architecture=named(architecture) if architecture else None)
    found = answers.answer(run, what, symbol_catalogue.load(architecture=architecture), rules)
    if at_hand is None or (found is not None and (found.kind is not NameKind.SYMBOL or found.standing is Standing.IN)):
        return found
    name = found.what if found is not None else what.removeprefix("CONFIG_").upper()
    if not re.fullmatch(r"[A-Za-z0-9_]+", name):
        return found
    source = at_hand.own()
    if source is None or source.known.kconfig is None:
        return found
    known = explain_symbol(name, run.plan, source.known.facts, source.known.kconfig, rules)
    if not known.known:
        return found
    return explanation.with_tree(found, known) if found is not None else explanation.outside_baseline(known)


def answer_document(found: Explained, lines: TraceLines) -> dict[str, Any]:
    """Return one answer as a JSON document."""
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
    """Return all kept symbols by cause as a JSON document."""
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


def show(found: Explained, lines: TraceLines, console: TerminalConsole) -> None:
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
            console.print(Text(f"  • {way}"), soft_wrap=True)
    if found.related:
        console.print(Text.assemble(BREAK, ("related  ", "bold"), ", ".join(found.related)))


def _show_reason(reason: Reason, lines: TraceLines, console: TerminalConsole) -> None:
    console.print(Text.assemble("  ", (reason.cause.value, "cyan"), f"  {reason.text}  ", (reason.reference, "dim")))
    _quote(reason, lines, console)


def _quote(reason: Reason, lines: TraceLines, console: TerminalConsole) -> None:
    quoted = lines.quote(reason.reference)
    if quoted is not None:
        console.print(Text.assemble("    │ ", (quoted, "italic")), soft_wrap=True)


def _print_overview(run: FitRun, bundle: Path, json: bool, console: TerminalConsole) -> None:
    if json:
        output.document(overview_document(run))
    else:
        overview(run, bundle, console, later_verdicts(bundle))


def overview(run: FitRun, bundle: Path, console: TerminalConsole, later: Sequence[MonitorVerdict] = ()) -> None:
    """Print the symbols with a prompt by cause. `later`: the verdicts since the fit."""
    found = counts(run.plan.symbols)
    columns = (Column("cause", no_wrap=True), Column("", justify="right", no_wrap=True), "symbols with a prompt")
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
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
    if later:
        console.print(Text(monitor_proof.line(monitor_proof.verdicts_of(run, later)), "dim"), soft_wrap=True)
    detail = NextCommand("See one of them in detail", ("vmtailor", "explain", str(bundle), "SYMBOL"))
    show_end(VerbEnd(commands=(detail,)), console)
