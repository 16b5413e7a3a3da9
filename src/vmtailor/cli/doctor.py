# SPDX-License-Identifier: Apache-2.0
"""`vmtailor doctor`: check what works on this host, and say what to install."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from vmtailor.base import output, package_manager
from vmtailor.base.errors import ExitCode, UserInputError
from vmtailor.base.terminal import BREAK, Column, Table, TerminalConsole, Text, box
from vmtailor.drivers.host import host
from vmtailor.model.checks import Check, HostPurpose, Need, State
from vmtailor.model.option import Option
from vmtailor.model.option_rows import JSON

DOCTOR_SCHEMA = "vmtailor/doctor/1"

_MARKS = {
    State.OK: ("✓", "green"),
    State.LIMITED: ("!", "yellow"),
    State.OLD: ("✗", "red"),
    State.MISSING: ("✗", "red"),
}


#: Added to the reason of what fit does not need.
_NOT_FIT = {Need.INSTALLATION: " (to install vmtailor)", Need.DEVELOPMENT: " (tests of vmtailor)"}


def doctor(
    run: Annotated[
        bool, Option(name="--run", type=bool, help="Check only what `vmtailor run` needs: no kernel is compiled.")
    ] = False,
    development: Annotated[
        bool, Option(name="--development", type=bool, help="Also check what vmtailor's own tests need.")
    ] = False,
    json: Annotated[bool, JSON] = False,
) -> None:
    """Check what works on this host (tools, kernels, space, KVM) and say what to install.

    Exits with 3 when fit (with --run: run) cannot work here yet."""
    if run and development:
        raise UserInputError("--run and --development exclude each other", hint="give one of them")
    purpose = HostPurpose.RUN if run else HostPurpose.DEVELOPMENT if development else HostPurpose.FIT
    checks = host.check_all(purpose)
    if json:
        output.document(document(checks))
    else:
        show(checks, TerminalConsole(), purpose)
    if any(check.blocks for check in checks):
        raise typer.Exit(ExitCode.HOST)


def document(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the JSON document: every check, and the one command that installs what is missing (empty when nothing
    is); of what `run` alone needs, the same."""
    of_run = [check for check in checks if check.runs]
    return {
        "schema": DOCTOR_SCHEMA,
        "works": not any(check.blocks for check in checks),
        "run": {"works": not any(check.blocks for check in of_run), "install": install_line(of_run)},
        "checks": [
            {
                "name": check.name,
                "state": check.state.value,
                "need": check.need.value,
                "found": check.found,
                "why": check.why,
                "fix": check.fix,
            }
            for check in checks
        ],
        "install": install_line(checks),
    }


def install_line(checks: Sequence[Check]) -> str:
    """Return one line that installs all that is missing; empty when nothing is."""
    packages = dict.fromkeys(c.package for c in checks if c.package and c.state in (State.MISSING, State.OLD))
    return package_manager.install_command(*packages, sure=True) if packages else ""


def show(checks: Sequence[Check], console: TerminalConsole, purpose: HostPurpose = HostPurpose.FIT) -> None:
    """Print the checks as a table, then what to do, and what works already."""
    columns = ("", Column("check", no_wrap=True), "found", "what for")
    table = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for check in checks:
        mark, style = _MARKS[check.state]
        if check.need is not Need.REQUIRED and check.state is not State.OK:
            mark, style = "!", "yellow"
        found = Text(check.found, "" if check.state is State.OK else style)
        why = check.why + _NOT_FIT.get(check.need, "")
        if check.state is State.OK and console.width < 110:
            why = ""
        table.add_row(Text(mark, style), check.name, found, Text(why, "dim"))
    console.print(table)
    for check in checks:
        if check.fix and not check.package:
            console.print(Text.assemble(("  → ", "yellow"), (f"{check.name}: ", "bold"), check.fix), soft_wrap=True)
    line = install_line(checks)
    if line:
        _command("Install what is missing, as root:", line, console)
    of_run = [check for check in checks if check.runs]
    if purpose is not HostPurpose.RUN:
        _verdict("fit", checks, console)
    # Where fit works, run does.
    if purpose is HostPurpose.RUN or any(check.blocks for check in checks):
        short = install_line(of_run)
        if short and short != line:
            _command("For run alone:", short, console)
        _verdict("run", of_run, console)


def _command(title: str, line: str, console: TerminalConsole) -> None:
    """Print a command after a blank line. It stays one line, however narrow the terminal is: it is pasted."""
    console.print(Text.assemble(BREAK, title, BREAK, "  ", (line, "bold")), soft_wrap=True)


def _verdict(verb: str, checks: Sequence[Check], console: TerminalConsole) -> None:
    """Print whether a verb works on this host, after a blank line."""
    blocking = [check.name for check in checks if check.blocks]
    if blocking:
        console.print(Text.assemble(BREAK, (f"✗ {verb} cannot work here yet: {', '.join(blocking)}", "bold red")))
    else:
        console.print(Text.assemble(BREAK, (f"✓ {verb} works on this host", "bold green")))
