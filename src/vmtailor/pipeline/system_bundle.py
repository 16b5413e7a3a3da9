# SPDX-License-Identifier: Apache-2.0
"""A system's bundle or work folder as the subject of a fit: its disk, its trace and its exercise. Either may be
somebody else's: the disk is read as any disk that a user gives, once its digest is right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from vmtailor.drivers.host.bundle_folder import SavedFolder
from vmtailor.drivers.kernel.kernel_source import SourceTree
from vmtailor.model.boots.system_exercise import SystemExercise
from vmtailor.model.bundle import SYSTEM_RUN
from vmtailor.pipeline import saved_trace
from vmtailor.pipeline.options import FitOptions
from vmtailor.pipeline.subject import Findings
from vmtailor.pipeline.systems import subjects
from vmtailor.pipeline.systems.driven_system import SystemSeen
from vmtailor.pipeline.systems.system_subject import of_opened
from vmtailor.stages import system_files


@contextmanager
def read(
    options: FitOptions, files: SavedFolder, exercise: SystemExercise, source: Callable[[], SourceTree]
) -> Iterator[Findings[SystemSeen]]:
    """Return what is known of the fit of a bundle or a work folder, from the trace in it, for as long as the block
    lasts. The packages of its kernel come from the cache or the distribution; `source` gives the source. What the
    baseline's code costs comes from the cache alone.

    Raises UserInputError for a folder that is damaged or has no trace, and as `of_opened` does."""
    record, folder = saved_trace.of_system(files)
    system = files.system
    number = system.disk.root if system.disk is not None else None
    with system_files.of_disk(
        Path(files.root.path), system.reference, partition=number, init=system.init.path, identity=system.identity
    ) as opened:
        subjects.require_host(opened.subject)
        found = replace(opened, subject=replace(opened.subject, notes=system.notes))
        subject = of_opened(options, found, exercise, source())
        known = subject.with_trace(record, folder, files.system_run, files.digest(SYSTEM_RUN))
        yield subject.counted(known) if subject.store.has("system-run", subject.before_key) else known
