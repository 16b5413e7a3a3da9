# SPDX-License-Identifier: Apache-2.0
"""The files of boots that `vmtailor boot` saved."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base.files import records
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.series import RECORD, BootSeries


def saved_boots(path: Path) -> list[list[Path]]:
    """The files of each boot at a path: a folder of `vmtailor boot` (the boots of the machine as it was),
    FOLDER/VARIANT, or the folder of one boot. Boots that did not get ready are left out. Empty where the path is none
    of these."""
    if (path / "console.log").is_file() and is_within(path / "console.log", path):
        return [files_of(path, "")]
    for folder, variant in ((path, ""), (path.parent, path.name)):
        if (folder / RECORD).is_file() and (variant == "" or not path.is_file()):
            series = records.load(BootSeries, folder / RECORD)
            wanted = variant or series.variants[0].name
            ready = (one for one in series.entries(wanted) if one.boot.outcome is Outcome.READY)
            return [files for one in ready if (files := files_of(folder, one.folder))]
    return []


def files_of(folder: Path, name: str) -> list[Path]:
    """Console and chart of one boot among those that a folder holds; none where its record leads out of the folder."""
    console, chart = folder / name / "console.log", folder / name / "bootchart"
    return [console, *([chart] if is_within(chart, folder) else [])] if is_within(console, folder) else []


def is_within(path: Path, folder: Path) -> bool:
    """Whether something is there, and in the folder, wherever links lead."""
    return path.exists() and folder.resolve() in path.resolve().parents
