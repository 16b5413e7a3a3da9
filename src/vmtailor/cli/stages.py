# SPDX-License-Identifier: Apache-2.0
"""`vmtailor trace`, `plan` and `build`: the single stages of `fit`, of an image or in a work folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from vmtailor.analysis.calls.call_shares import During
from vmtailor.analysis.changes import plan_summary
from vmtailor.analysis.demands import strace_log
from vmtailor.base import figures, output
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.terminal import Table, Text, box, folding, for_table
from vmtailor.base.text import plural
from vmtailor.base.verb_end import EndVerdict, NextCommand, VerbEnd, VerdictMark, show_end
from vmtailor.cli.tables.call_tables import (
    CALL,
    CALLED_ON,
    DURING,
    FLAME_PAGE,
    FOLDED,
    FOLLOWED_PARTS,
    SHOW,
    SPEEDSCOPE,
    WHOSE,
    Pictures,
    Selection,
    Show,
    print_rows,
    require_followed,
    show_followed,
)
from vmtailor.drivers.host.bundle_folder import is_bundle
from vmtailor.model.bundle import PLAN
from vmtailor.model.option import OptionSubject, refusal, refuse
from vmtailor.model.option_rows import JSON, OUT
from vmtailor.model.syscalls import SyscallEvent
from vmtailor.model.trace import FileUse
from vmtailor.pipeline import followed_calls, kernel_trials, subject_kind, work_stages
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.subject import Findings
from vmtailor.pipeline.work_files import WorkFolder, is_work_folder


def trace(
    asked: FitOptions,
    out: Annotated[Path | None, replace(OUT, help="Begin a work folder here: the trace, for the next stages.")] = None,
    show: Annotated[Show, SHOW] = Show.SYSCALLS,
    call: Annotated[str, CALL] = "",
    called_on: Annotated[str, CALLED_ON] = "",
    whose: Annotated[str, WHOSE] = "",
    during: Annotated[During, DURING] = During.LOAD,
    folded: Annotated[Path | None, FOLDED] = None,
    speedscope: Annotated[Path | None, SPEEDSCOPE] = None,
    page: Annotated[Path | None, FLAME_PAGE] = None,
    json: Annotated[bool, JSON] = False,
) -> None:
    """Run the exercise on the baseline, and show its trace. For a work folder, show the saved trace; for a bundle, what
    its kernel's calls cost."""
    shown = Selection(call=call, on=called_on, owner=whose, during=during)
    files = Pictures(folded=folded, speedscope=speedscope, page=page)
    if show not in FOLLOWED_PARTS:
        require_followed(shown, files, show)
    if show is Show.CALLGRAPH and not call:
        raise UserInputError("--show callgraph needs the name of a call", hint="add --call NAME, such as --call read")
    if show in FOLLOWED_PARTS and is_bundle(Path(asked.reference)):
        _of_bundle(asked, out, show, shown, files, json)
        return
    saved = _folder_of(asked, OptionSubject.TRACED_FOLDER)
    if saved is not None and out is not None:
        raise refusal(("--out",), OptionSubject.TRACED_FOLDER, saved)
    if saved is not None:
        work = WorkFolder(saved, asked.store)
        if show in FOLLOWED_PARTS:
            show_followed(work_stages.followed(work, asked), show, shown, files, json)
        elif show is not Show.COVERAGE:
            print_rows(_rows(show, *work_stages.calls(work)), json)
        else:
            with work_stages.findings(work, asked) as findings:
                print_rows(_coverage(findings), json)
        return
    begun = subject_kind.prepare(asked) if out is None else work_stages.trace(asked, out)
    with begun as subject:
        if show in FOLLOWED_PARTS:
            show_followed(followed_calls.of_image(subject), show, shown, files, json)
        else:
            print_rows(_coverage(subject.trace()) if show is Show.COVERAGE else _rows(show, *subject.calls()), json)
    if out is not None and not json:
        after = NextCommand("Plan the kernel", ("vmtailor", "plan", str(out)))
        verdict = EndVerdict(VerdictMark.GOOD, "traced", f"the trace is in {out}")
        show_end(VerbEnd(verdict=verdict, commands=(after,)))


def _of_bundle(asked: FitOptions, out: Path | None, show: Show, shown: Selection, files: Pictures, json: bool) -> None:
    refuse(asked, OptionSubject.FITTED, asked.reference)
    if out is not None:
        raise refusal(("--out",), OptionSubject.FITTED, asked.reference)
    found = followed_calls.of_bundle(Path(asked.reference), asked.store, asked.exercise_file)
    show_followed(found, show, shown, files, json)


def _rows(show: Show, events: Iterable[SyscallEvent], files: Sequence[FileUse]) -> list[dict[str, Any]]:
    if show is Show.FILES:
        return [{"path": f.path, "opened": f.opened, "failed": f.failed, "written": f.written} for f in files]
    return _tasks(events) if show is Show.TASKS else [_call(call) for call in strace_log.summarise(events)]


def _folder_of(asked: FitOptions, kind: OptionSubject) -> Path | None:
    """Return the work folder that was given for an image; None for an image. Raises UserInputError for options that
    the trace in the folder was made with."""
    folder = Path(asked.reference)
    if not is_work_folder(folder):
        return None
    refuse(asked, kind, folder)
    return folder


def _call(call: Any) -> dict[str, Any]:
    return {
        "task": call.task,
        "call": call.name,
        "count": call.count,
        "errors": ", ".join(f"{name} {count}" for name, count in call.errors),
        "min_us": round(call.min_s * 1e6),
        "mean_us": round(call.mean_s * 1e6),
        "max_us": round(call.max_s * 1e6),
        "never_changes": ", ".join(f"{index}: {value}" for index, value in call.constant_args),
    }


def _tasks(events: Any) -> list[dict[str, Any]]:
    found: dict[tuple[int, str], list[int]] = {}
    for event in events:
        row = found.setdefault((event.pid, event.task), [0, 0])
        row[0] += 1
        row[1] += bool(event.error)
    return [{"pid": pid, "task": task, "calls": calls, "errors": bad} for (pid, task), (calls, bad) in found.items()]


def _coverage(findings: Findings[Any]) -> list[dict[str, Any]]:
    costs = findings.costs.rows if findings.costs is not None else ()
    rows = sorted(costs, key=lambda row: (row.phase, -row.instructions))
    return [
        {
            "phase": row.phase,
            "function": row.function,
            "file": row.file,
            "symbol": row.symbol,
            "instructions": row.instructions,
        }
        for row in rows
    ]


def plan(
    asked: FitOptions,
    out: Annotated[Path | None, replace(OUT, help="Write the plan's record to this file.")] = None,
    json: Annotated[bool, JSON] = False,
) -> None:
    """Choose the configuration, and show every symbol with its reason. Nothing is built; in a work folder nothing is
    booted either."""
    folder = _folder_of(asked, OptionSubject.PLANNED_FOLDER)
    if folder is None:
        with subject_kind.prepare(asked) as subject:
            made = subject.trace().planned()
    else:
        made = work_stages.plan(folder, asked)
    if out is not None:
        records.save(made, out)
    if json:
        output.document({"schema": made.SCHEMA, **msgspec.to_builtins(made)})
        return
    table = Table(*folding("symbol", "value", "cause", "why"), box=box.SIMPLE_HEAD)
    for symbol in made.symbols:
        first = symbol.reasons[0] if symbol.reasons else None
        why = f"{first.text} [{first.reference}]" if first else ""
        if symbol.setting.chosen:
            table.add_row(symbol.id, symbol.value, str(plan_summary.cause_of(symbol) or ""), why)
    console = for_table()
    console.print(table)
    count = plural(made.prompted_y, "symbol")
    verdict = f"{count} with a prompt, {made.total_y} in all; {len(made.left_out)} left out"
    show_end(
        VerbEnd(
            verdict=EndVerdict(VerdictMark.GOOD, "planned", verdict),
            notes=[Text(f"given up: {sentence}") for sentence in made.given_up],
            files=(("plan", str(out)),) if out is not None else (),
            commands=(NextCommand("Build the kernel", ("vmtailor", "build", str(folder))),) if folder else (),
        ),
    )


def build(asked: FitOptions, json: Annotated[bool, JSON] = False) -> None:
    """Plan and build the kernel, without verifying it, and print its path. In a work folder, build the saved plan,
    edited or not."""
    folder = _folder_of(asked, OptionSubject.BUILT_FOLDER)
    if folder is None:
        with subject_kind.prepare(asked) as subject:
            findings = subject.trace()
            files = kernel_trials.built(findings, findings.planned())
    else:
        files, differing = work_stages.build(folder, asked)
        if differing:
            output.note(
                f"{folder / PLAN} was edited: its fragment, which is what was built, gives "
                f"{plural(len(differing), 'symbol')} another value than its changes say: {', '.join(differing[:10])}"
            )
    if json:
        output.document({"schema": files.SCHEMA, **msgspec.to_builtins(files)})
        return
    size = f"{figures.file_bytes(files.image_bytes)}, {figures.file_bytes(files.packed_bytes)} packed with xz"
    after = NextCommand("Verify it", ("vmtailor", "verify", str(folder)))
    show_end(
        VerbEnd(
            verdict=EndVerdict(VerdictMark.GOOD, "built", f"a kernel of {size}"),
            files=(("kernel", files.image), ("configuration", files.config), ("symbols", files.system_map)),
            commands=(after,) if folder is not None else (),
        )
    )
