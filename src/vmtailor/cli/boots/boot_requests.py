# SPDX-License-Identifier: Apache-2.0
"""`vmtailor boot DISK --requests FOLDER`: boot a system and trace every call."""

from __future__ import annotations

from pathlib import Path

import typer

from vmtailor.base import figures, natives, output
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import ExitCode, UserInputError
from vmtailor.base.files import records
from vmtailor.base.terminal import BREAK, Table, TerminalConsole, Text, box, folding
from vmtailor.base.text import plural
from vmtailor.base.verb_end import VerbEnd, show_end
from vmtailor.cli.boots.boot_machine import workload_of
from vmtailor.model.boots.workload import Nothing
from vmtailor.model.option import OptionSubject, refuse
from vmtailor.model.plan import Plan
from vmtailor.model.watched.system_trace import LoadedFor, SystemTrace
from vmtailor.pipeline.options import BOOT_MEMORY, BootOptions
from vmtailor.pipeline.systems import subjects, system_kernel, system_plan
from vmtailor.stages.kernel_plan import Wishes


def boot_requests(asked: BootOptions, folder: Path) -> None:
    """Trace a disk's system into `folder`, or show the trace that is already there. Then plan from it, if the kernel's
    source is available. Exits with 5 when the system did not get ready. Raises UserInputError for options that do not
    apply."""
    refuse(asked, OptionSubject.WATCHED, asked.subject)
    if asked.subject is None:
        raise UserInputError("--requests needs a disk", hint="vmtailor boot DISK --requests FOLDER --ready SIGNAL")
    workload = workload_of(asked)
    if isinstance(workload, Nothing):
        raise UserInputError("--requests needs a moment to be ready at", hint="--ready log:REGEX, tcp:PORT, systemd …")
    folder = folder.absolute()
    store = Store()
    with subjects.opened(f"{subjects.DISK}{asked.subject}", store) as found:
        record = system_kernel.traced(
            found,
            workload,
            folder,
            natives.locate(),
            memory_bytes=asked.memory_bytes or BOOT_MEMORY,
            cpus=asked.cpus or 1,
        )
        plan = None if record.boot.failures else system_plan.planned(found, record, folder, Wishes(), store)
    if asked.json:
        output.json_bytes([records.to_bytes(record)])
    else:
        console = TerminalConsole()
        show(record, folder, console)
        show_plan(plan, record, folder, console)
    if record.boot.failures:
        raise typer.Exit(ExitCode.GUEST)


def show(record: SystemTrace, folder: Path, console: TerminalConsole) -> None:
    """Print the number of calls, the modules with the reason each was loaded, and the kernel's own actions."""
    seen = record.figures
    if record.boot.failures:
        console.print(Text(f"not ready under the tracer: {record.boot.problem}", "bold yellow"))
        console.print(Text("what was seen until then is kept", "dim"))
    console.print(
        Text.assemble(
            (f"{figures.grouped(seen.calls)} calls of {plural(seen.processes, 'process', 'processes')}", "bold"),
            f" in {figures.seconds(seen.guest_seconds)} ({figures.seconds(record.plain_seconds)} without the tracer)",
        )
    )
    for sentence in _doubts(record):
        console.print(Text(sentence, "yellow"))
    columns = folding("module", "loaded for", "which", "by")
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    order = list(LoadedFor)
    for load in sorted(record.loads, key=lambda one: order.index(one.reason)):
        table.add_row(load.module, Text(load.reason.value, "dim"), load.what, load.task)
    console.print(table)
    if record.kernel_programs:
        started = ", ".join(f"{one.path} {one.count} times" for one in record.kernel_programs)
        console.print(Text.assemble(BREAK, ("started by the kernel itself  ", "bold"), started))
    show_end(VerbEnd(files=(("the log", str(folder / record.requests_file)),)), console)


def show_plan(plan: Plan | None, record: SystemTrace, folder: Path, console: TerminalConsole) -> None:
    """Print the size of the configuration that has everything the system asked for."""
    if plan is None:
        if not record.boot.failures:
            why = "the source of its kernel is not in the cache, or the disk does not have its configuration"
            console.print(Text(f"no plan was made: {why}", "dim"))
        return
    later = [c.id for c in plan.symbols if c.setting.value == "m" and c.setting.chosen]
    count = plural(plan.prompted_y + len(later), "symbol")
    console.print(
        Text.assemble(
            (f"planned for {plan.machine}  ", "bold"),
            f"{count} with a prompt, {len(later)} of them modules that are loaded when they are asked for",
        )
    )
    show_end(VerbEnd(files=(("the plan", str(folder / system_plan.PLAN)),)), console)


def _doubts(record: SystemTrace) -> list[str]:
    seen, said = record.figures, []
    if not record.events:
        said.append("this kernel does not tell what modules it asked for and which programs it started itself")
    if not seen.whole:
        said.append("the log was too long to be read whole")
    if seen.skipped:
        said.append(f"{plural(seen.skipped, 'line')} of the log were not understood")
    return said
