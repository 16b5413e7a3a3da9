# SPDX-License-Identifier: Apache-2.0
"""The machine that a console's log is of, by the record that `vmtailor boot` keeps beside it."""

from __future__ import annotations

import contextlib
from pathlib import Path

from vmtailor.analysis.changes.trial_command import BootOrigin
from vmtailor.base.errors import VmtailorError
from vmtailor.base.files import records
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.architecture import named
from vmtailor.model.boots.series import RECORD, BootSeries
from vmtailor.model.machine import Machine


def booted(log: Path) -> BootOrigin | None:
    """Return what a log was booted from: FOLDER/VARIANT-1/console.log of the folder that has `boots.json`. None without
    such a record, or where it cannot be read."""
    with contextlib.suppress(VmtailorError, OSError, ValueError):
        place = log.absolute().parent
        file = place.parent / RECORD
        if not file.is_file():
            return None
        series = records.load(BootSeries, file)
        if series.subject.startswith("-"):
            return None  # nobody booted it: the command that is printed would have an option more
        variant = next((one.variant for one in series.boots if one.folder == place.name), None)
        machine = next((one.machine for one in series.variants if one.name == variant), None)
        if machine is not None:
            is_bundle = bundle_folder.is_bundle(Path(series.subject))
            return BootOrigin(series.subject, is_bundle, () if is_bundle else _options(machine, series))
    return None


def _options(machine: Machine, series: BootSeries) -> tuple[str, ...]:
    """Return the options that give a machine like the one of the record."""
    found = [("--ready", str(series.ready))]
    if machine.board != named(machine.architecture).usual:
        found.append(("--machine", machine.board))
    if machine.kernel and machine.kernel != series.subject:
        found.append(("--kernel", machine.kernel))
    if machine.initrd:
        found.append(("--initrd", machine.initrd))
    if machine.words:
        found.append(("--append", " ".join(machine.words)))
    return tuple(word for pair in found for word in pair)
