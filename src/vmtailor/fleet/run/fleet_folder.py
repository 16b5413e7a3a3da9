# SPDX-License-Identifier: Apache-2.0
"""The folder of a fleet: its record, which is kept up to date, its bundles, and the ends of the logs of what failed."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vmtailor import __version__
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.fleet.model.fleet_record import LOGS, RECORD, FleetImage, FleetRecord, ImageStanding, PartRun
from vmtailor.fleet.run.graph import Graph, ImageWork
from vmtailor.model.bundle import RECORD as BUNDLE_RECORD
from vmtailor.model.fit_part import FitPart

#: Seconds between two writes of a record, at least.
_PAUSE_S = 2.0


class FleetFolder:
    """The folder of a fleet that is worked on. `kept`: images that need no work; `graph`: the others.
    `before`: the record of a fleet that is verified again, in which the verdicts go."""

    def __init__(
        self,
        path: Path,
        list_path: str,
        tools: str,
        kept: Sequence[FleetImage],
        graph: Graph,
        before: FleetRecord | None = None,
    ) -> None:
        self.path, self._graph, self._before = path, graph, before
        self._kept = {one.entry.name: one for one in kept}
        self._head = FleetRecord(list_path, __version__, tools, ())
        self._order: list[str] = []
        self._saved = 0.0

    def in_order(self, names: Sequence[str]) -> FleetFolder:
        """Keep images in this order in the record."""
        self._order = list(names)
        return self

    def record(self) -> FleetRecord:
        """Return the record as things stand."""
        found = {**self._kept, **{work.entry.name: self._image(work) for work in self._graph.works}}
        names = [*self._order, *(name for name in found if name not in self._order)]
        made = replace(self._head, images=tuple(found[name] for name in names if name in found))
        return made if self._before is None else _judged_again(self._before, made)

    def _image(self, work: ImageWork) -> FleetImage:
        standing = self._graph.standing(work)
        image = FleetImage(
            work.entry, ImageStanding.WAITING if standing is ImageStanding.RUNNING else standing,
            kernel=work.keys.get(FitPart.KERNEL, ""),
            figures=work.sealed.figures if work.sealed is not None else (),
            parts=tuple(PartRun(part, round(seconds, 3), worker) for part, (seconds, worker) in work.took.items()),
        )  # fmt: skip
        if work.failure is None:
            return image
        part, answer = work.failure
        log = f"{LOGS}/{work.entry.name}-{part}.log" if answer.log else ""
        return replace(image, failed_in=part, says=answer.says, hint=answer.hint, log=log)

    def save(self, *, now: bool = False) -> None:
        """Write the record; where little time has gone by, only `now`. A power cut leaves the old one or the new."""
        if not now and time.monotonic() - self._saved < _PAUSE_S:
            return
        for work in self._graph.works:
            if work.failure is not None and work.failure[1].log:
                part, answer = work.failure
                path = self.path / LOGS / f"{work.entry.name}-{part}.log"
                if not path.exists() or now:
                    write_atomic(path, answer.log.encode("utf-8", "replace"))
        records.save(self.record(), self.path / RECORD)
        self._saved = time.monotonic()


def _judged_again(before: FleetRecord, now: FleetRecord) -> FleetRecord:
    """Return the record of a fleet with the verdicts of another one, in which each image was verified again."""
    images = []
    for old in before.images:
        new = now.named(old.entry.name)
        if new is None or new == old or new.standing is ImageStanding.WAITING:
            images.append(old)
        else:
            works = new.standing is ImageStanding.DONE
            images.append(replace(old, verified_again=works, says=new.says, hint=new.hint, log=new.log))
    return replace(before, images=tuple(images))


def read(path: Path) -> FleetRecord | None:
    """Return the record of a fleet's folder; None where there is none. Raises UserInputError for a damaged one."""
    return records.load(FleetRecord, path / RECORD) if os.path.lexists(path / RECORD) else None


def required(path: Path) -> FleetRecord:
    """Return the record of a fleet's folder. Raises UserInputError where there is none."""
    found = read(path)
    if found is None:
        raise UserInputError(f"{path} is not the folder of a fleet", hint="vmtailor fleet fit LIST -o DIR makes one")
    return found


def begun(path: Path) -> Path:
    """Make the folder of a fleet, and return it. Raises UserInputError where something else is there."""
    if path.exists() and not path.is_dir():
        raise UserInputError(f"{path} is no folder", hint="name another with -o")
    if path.is_dir() and not os.path.lexists(path / RECORD) and any(path.iterdir()):
        raise UserInputError(f"{path} is not empty, and not a fleet's", hint="name another folder with -o")
    path.mkdir(parents=True, exist_ok=True)
    return path


def kept_images(
    entries: Sequence[FleetEntry], known: FleetRecord | None, path: Path, tools: str, *, failed_only: bool = False
) -> list[FleetImage]:
    """Return the images that need no work: they are done, with this very entry and these tools, and their bundles are
    there. `failed_only`: all that have not failed are left, too."""
    kept = []
    for entry in entries:
        one = known.named(entry.name) if known is not None else None
        if one is None:
            continue
        same = one.entry == entry and known is not None and known.tools == tools and known.version == __version__
        done = one.standing is ImageStanding.DONE and (path / entry.name / BUNDLE_RECORD).is_file()
        if (same and done) or (failed_only and one.standing is not ImageStanding.FAILED):
            kept.append(one)
    return kept
