# SPDX-License-Identifier: Apache-2.0
"""Output of every kind of `vmtailor boot`: progress, and at the end the boots, or the cost of one."""

from __future__ import annotations

from pathlib import Path

import typer

from vmtailor.analysis.cost import loops
from vmtailor.base import output
from vmtailor.base.errors import ExitCode
from vmtailor.base.files import records
from vmtailor.base.progress import ProgressStep
from vmtailor.base.terminal import TerminalConsole
from vmtailor.booting.series_run import OnBoot
from vmtailor.cli.tables.cost_table import show_cost
from vmtailor.cli.tables.series_table import document, show
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.boot_cost import BootCost
from vmtailor.model.boots.series import BootSeries


def telling(progress: ProgressStep, times: int) -> OnBoot:
    """Return a callback that shows the progress of the boots, `times` of each variant."""

    def on_boot(name: str, number: int, seconds: float) -> None:
        progress.update(number - 1, times, f"{name} {number}: {seconds:.0f} s")

    return on_boot


def show_series(found: BootSeries, out: Path, json: bool) -> None:
    """Print a series; exits with 5 when a boot of the machine as it was failed."""
    if json:
        output.document(document(found, out))
    else:
        show(found, out, TerminalConsole())
    if any(one.outcome is not Outcome.READY for one in found.of(found.variants[0].name)):
        raise typer.Exit(ExitCode.GUEST)


def show_boot_cost(cost: BootCost, out: Path, json: bool, architecture: str) -> None:
    """Print where the instructions of one boot went."""
    if json:
        output.json_bytes([records.to_bytes(cost)])
    else:
        show_cost(cost, out, TerminalConsole(), loops.table(architecture))
