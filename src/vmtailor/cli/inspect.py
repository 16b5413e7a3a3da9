# SPDX-License-Identifier: Apache-2.0
"""`vmtailor inspect`: all that is known of named machines."""

from __future__ import annotations

from typing import Annotated, Any

from vmtailor.base import output
from vmtailor.cli.each import Failures
from vmtailor.cli.tables import machine_rows
from vmtailor.cli.tables.column_lines import template_of
from vmtailor.drivers.host.machine_folders import MachineFolders
from vmtailor.model.option import Option
from vmtailor.model.option_rows import FORMAT, MACHINES


def inspect(
    names: Annotated[tuple[str, ...], MACHINES],
    format_: Annotated[str, Option(name="--format", short="-f", help=FORMAT.help)] = "json",
) -> None:
    """Print all that is known of named machines: one JSON array, or the fields that a template asks for.

    Fields have docker's names. `Bundle` and `Folder` are ours: the bundle that was started, and the machine's
    folder."""
    fill = None if format_ == "json" else template_of(format_)
    folders, failures = MachineFolders(), Failures()
    found: list[dict[str, Any]] = []
    for name in names:
        with failures.noted():
            folder = folders.find(name)
            found.append(machine_rows.document(folder, folder.state()))
    if fill is None:
        output.document(found)
    else:
        for one in found:
            with failures.noted():
                output.lines(f"{fill(one)}\n")
    failures.leave()
