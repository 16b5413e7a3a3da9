# SPDX-License-Identifier: Apache-2.0
"""The trace of a bundle or a work folder: its record, and copies of its files that nobody else can change, under the
names that a trace has here."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from vmtailor.base.cache.store import digest, writing
from vmtailor.base.files import records
from vmtailor.drivers.host.bundle_folder import SavedFolder
from vmtailor.model.bundle import COVERAGE, REQUESTS, TRACE, TRACE_RECORD
from vmtailor.model.trace import Trace
from vmtailor.model.watched.system_trace import SystemTrace
from vmtailor.stages import system_watch


def of_container(files: SavedFolder) -> tuple[Trace, Path, str]:
    """Return the trace of a container, the folder of its files, and the name of both in the cache."""
    record = files.trace
    named = replace(record, coverage_file=COVERAGE, requests_file=REQUESTS)
    parts = {
        COVERAGE: files.data(f"{TRACE}/{record.coverage_file}"),
        REQUESTS: files.requests(),
        TRACE_RECORD: records.to_bytes(named),
    }
    key = digest(*parts.values())
    return named, files.store.get("work", key, writing(parts)), key


def of_system(files: SavedFolder) -> tuple[SystemTrace, Path]:
    """Return the trace of a system, and the folder of its files. Its log is too large to be read in one go."""
    record = files.system_trace
    named = replace(record, requests_file=REQUESTS)
    log = f"{TRACE}/{record.requests_file}"

    def fill(folder: Path) -> None:
        shutil.copyfile(files.file(log), folder / REQUESTS)
        records.save(named, folder / system_watch.RECORD)

    return named, files.store.get("work", digest(records.to_bytes(named), files.digest(log)), fill)
