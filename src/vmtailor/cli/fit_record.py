# SPDX-License-Identifier: Apache-2.0
"""Files that a fit left on disk: its record, and the lines of its trace that reasons refer to."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import msgspec

from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.base.files import plain_files, records
from vmtailor.base.text import plural
from vmtailor.drivers.host import bundle_folder, verdict_file
from vmtailor.drivers.host.bundle_folder import DATA_BYTES, RECORD_BYTES, BundleFolder
from vmtailor.drivers.image import image_reference
from vmtailor.model.bundle import OBSERVED, RUN, TRACE
from vmtailor.model.fit_run import FitRun
from vmtailor.model.monitor_verdicts import MonitorVerdict
from vmtailor.model.syscalls import ObservedRun

#: The record of a trace: of an image's, of a system's.
TRACE_RECORDS = ("trace.json", "system-trace.json")
#: Longest line of a trace that is quoted.
MOST_CHARACTERS = 400

_REFERENCE = re.compile(r"(?:trace:)?(?P<record>[a-z-]+):(?P<line>\d{1,9})\Z")


def bundle_of(path: Path) -> BundleFolder | None:
    """Return the bundle that a path is, or whose `run.json` it is; None for anything else.

    Raises UserInputError for a bundle that is damaged, lacks files, or is of another version."""
    folder = path
    if not path.is_dir():
        path = path.resolve()  # a link to the record leads to the bundle's own
        if path.name != RUN:
            return None
        folder = path.parent
    return bundle_folder.load(folder) if bundle_folder.is_bundle(folder) else None


def words_of(path: Path) -> tuple[str, ...]:
    """Return the kernel command line of a bundle's machine; nothing where there is only the record of a fit."""
    loaded = bundle_of(path)
    return loaded.bundle.words if loaded is not None else ()


def later_verdicts(path: Path) -> tuple[MonitorVerdict, ...]:
    """Return the verdicts on a bundle since its fit; nothing where there is only the record of a fit. Raises
    UserInputError for a damaged file of them."""
    loaded = bundle_of(path)
    return verdict_file.read(loaded) if loaded is not None else ()


def run_of(path: Path) -> FitRun:
    """Return the record of a fit, as `load_run` does."""
    return load_run(path)[0]


def load_run(path: Path) -> tuple[FitRun, Path]:
    """Return the record of a fit and the folder it is in, from a bundle or from the record itself. That of a bundle
    must have the digest that the bundle's record says.

    Raises UserInputError when there is none, or it is changed, damaged or of another version."""
    loaded = bundle_of(path)
    if loaded is not None:
        return loaded.record(FitRun, RUN), loaded.path
    if path.is_dir():
        if not os.path.lexists(path / RUN):
            if (error := image_reference.instead_of_bundle(path)) is not None:
                raise error
            raise UserInputError(
                f"{path} is not a bundle: it has no {RUN}",
                hint="give the folder that vmtailor fit wrote (its option -o)",
            )
        # The folder may be somebody else's: what it holds under this name must be a file, and its own.
        data = plain_files.read(path, RUN, RECORD_BYTES)
        return records.from_bytes(FitRun, data, str(path / RUN)), path
    if path.suffix != ".json" and (error := image_reference.instead_of_bundle(path)) is not None:
        raise error
    if not path.exists():
        raise UserInputError(f"{path} does not exist", hint="give the folder that vmtailor fit wrote (its option -o)")
    return records.load(FitRun, path), path.parent


@dataclass(frozen=True)
class _TraceFiles:
    """All that quoting needs of a trace's record, which holds two boots and is long."""

    requests_file: str


class TraceLines:
    """Quotations from the traces in a bundle. A missing or damaged trace gives none; nor does one that is not the
    bundle's own any more."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._logs: dict[str, list[str]] = {}

    @cached_property
    def _read(self) -> Callable[[str, int], bytes]:
        """Return a function that reads a file of the folder, of a bundle with its digest. Both raise
        UserInputError."""
        if bundle_folder.is_bundle(self._folder):
            return bundle_folder.load(self._folder).data
        return partial(plain_files.read, self._folder)

    def quote(self, reference: str) -> str | None:
        """Return the line that a reference such as `trace:requests:412` points at, or None."""
        match = _REFERENCE.match(reference)
        if match is not None and match["record"] == "observed":
            return self._quote_observed(int(match["line"]))
        if match is None or match["record"] != "requests":
            return None
        if "requests" not in self._logs:
            self._logs["requests"] = self._read_requests()
        lines, number = self._logs["requests"], int(match["line"])
        return lines[number - 1][:MOST_CHARACTERS] if 1 <= number <= len(lines) else None

    def _quote_observed(self, number: int) -> str | None:
        """Return a call that was refused in a run, by its place in the record."""
        try:
            data = self._read(OBSERVED, RECORD_BYTES)
            calls = records.from_bytes(ObservedRun, data).calls
        except (VmtailorError, OSError):
            return None
        if not 1 <= number <= len(calls):
            return None
        call = calls[number - 1]
        quoted = f"{call.name}({', '.join(call.args)}) = -1 {call.error}"[:MOST_CHARACTERS]
        return f"{quoted} ({call.task}, {plural(call.count, 'time')})"

    def _read_requests(self) -> list[str]:
        for inner, record_file in itertools.product(("", f"{TRACE}/"), TRACE_RECORDS):
            try:
                record = self._read(f"{inner}{record_file}", RECORD_BYTES)
                # A record names files of its own folder; one that names others is not followed.
                name = inner + msgspec.json.decode(record, type=_TraceFiles).requests_file
                found = self._read(name, DATA_BYTES)
            except (msgspec.MsgspecError, VmtailorError, OSError, UnicodeDecodeError, RecursionError):
                continue
            # Counted as the reader of the log counts: line feeds only, up to the end of what was written.
            return found.partition(b"\0")[0].decode("utf-8", "replace").split("\n")
        return []
