# SPDX-License-Identifier: Apache-2.0
"""`vmtailor refit`: fit a bundle again with new evidence, or on another kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from vmtailor.analysis.changes.plan_summary import PlanDifference, cause_of
from vmtailor.base import output
from vmtailor.base.errors import AnswerNo, UserInputError
from vmtailor.base.terminal import Table, TerminalConsole, Text, box, folding
from vmtailor.base.text import plain, plural
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.change import Change
from vmtailor.model.option_rows import JSON, VERBOSE
from vmtailor.pipeline import bundle_files, bundle_reference, second_fit
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.second_fit import RefitRequest, Replanned
from vmtailor.stages import report as report_stage

REFIT_SCHEMA = "vmtailor/refit/1"


def refit(
    request: RefitRequest,
    asked: FitOptions,
    json: Annotated[bool, JSON] = False,
    verbose: Annotated[bool, VERBOSE] = False,
) -> None:
    """Fit a bundle again, with calls refused in runs, or on another kernel, and show how the plan changes.

    Then build, verify and measure it, as `fit` does. Nothing is built when the plan is unchanged."""
    request = replace(request, bundle=bundle_reference.local(request.bundle))
    bundle, dry_run = request.bundle, request.dry_run
    if request.out is None and not bundle.absolute().parent.is_dir():  # the new one is placed beside it
        raise bundle_folder.no_bundle(bundle)
    if request.out is None and not dry_run and bundle.absolute().is_relative_to(asked.store.root):
        raise UserInputError(
            f"{bundle} was pulled into the cache, which is pruned: the new bundle cannot be beside it",
            hint="name its folder with -o",
        )
    target = request.out or bundle.absolute().with_name(f"{bundle.absolute().name}-refit")
    if not dry_run:
        bundle_files.require_writable(target)
    with second_fit.prepare(replace(request, options=replace(asked, out=target))) as prepared:
        found = prepared.difference
        if json and (dry_run or not found):
            output.document(document(prepared))
        elif not json:
            show(prepared, TerminalConsole())
        if dry_run:
            return
        if not found:
            output.note("nothing is built: this is the plan that the bundle was made from")
            return
        for one in prepared.runs:
            output.note(f"will be run on this host: {one}")
        if prepared.skipped:
            programs = plural(len(prepared.skipped), "program")
            output.note(
                f"without {programs} that the bundle would run on this host: {'; '.join(prepared.skipped)} (--exercise "
                "FILE or --trust-host-commands runs them)"
            )
        result = second_fit.refit(prepared)
    report_stage.show(result, json=json, verbose=verbose)
    if not result.verified:
        raise AnswerNo(
            f"{plain(result.reference)} does not work in the tailored machine",
            hint=f"{target}/report.html has every trial; --keep NAME keeps a symbol, --budget N allows more trials",
        )


def document(prepared: Replanned) -> dict[str, Any]:
    """Return the difference as a JSON document."""
    found = prepared.difference
    return {
        "schema": REFIT_SCHEMA,
        "kernel_before": prepared.before.kernel_version,
        "kernel_after": prepared.after.kernel_version,
        "prompted_before": found.prompted[0],
        "prompted_after": found.prompted[1],
        "comes": [_row(change) for change in found.comes],
        "goes": [_row(change) for change in found.goes],
        "altered": [{**_row(one.after), "before": one.before} for one in found.altered],
        "words_come": [word.id for word in found.words_come],
        "words_go": [word.id for word in found.words_go],
    }


def _row(change: Change) -> dict[str, Any]:
    return {
        "symbol": change.id,
        "value": change.value,
        "prompt": change.setting.chosen,
        "reasons": [{"cause": r.cause.value, "reference": r.reference, "text": r.text} for r in change.reasons],
    }


def show(prepared: Replanned, console: TerminalConsole) -> None:
    """Print the difference for a person."""
    found = prepared.difference
    if prepared.before.kernel_version != prepared.after.kernel_version:
        versions = f"{prepared.before.kernel_version} → {prepared.after.kernel_version}"
        console.print(Text.assemble(("kernel  ", "bold"), versions))
    if not found:
        console.print(Text("the plan is the same", "bold"))
        return
    _table(found, console)
    hidden = sum(1 for change in (*found.comes, *found.goes) if not change.setting.chosen)
    before, after = found.prompted
    console.print(Text(f"symbols with a prompt: {before} → {after}; {hidden} without one follow from them", "dim"))


def _table(found: PlanDifference, console: TerminalConsole) -> None:
    columns = folding("", "symbol", "cause", "why")
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for sign, style, changes in (("+", "green", found.comes), ("-", "yellow", found.goes)):
        for change in changes:
            if change.setting.chosen:
                table.add_row(Text(sign, style), change.id, str(cause_of(change) or ""), _why(change))
    for one in found.altered:
        table.add_row("~", f"{one.name}={one.after.value}", str(cause_of(one.after) or ""), f"before: {one.before}")
    for sign, words in (("+", found.words_come), ("-", found.words_go)):
        for word in words:
            table.add_row(sign, word.id, "", _why(word))
    if table.row_count:
        console.print(table)


def _why(change: Change) -> Text:
    first = change.reasons[0] if change.reasons else None
    return Text.assemble(first.text, "  ", (first.reference, "dim")) if first is not None else Text("")
