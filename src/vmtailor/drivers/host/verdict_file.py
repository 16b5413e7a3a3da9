# SPDX-License-Identifier: Apache-2.0
"""The file of a bundle that has the verdicts of other monitors.

The bundle's record does not list it: a verification says something of a bundle, and does not make another one of it.
So one file is replaced, in one step, and the record's digest stays what others may have noted. The file names that
digest, and counts for no other bundle, wherever it is copied to."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vmtailor.base.errors import HostError, UserInputError
from vmtailor.base.files import plain_files, records
from vmtailor.base.files.digests import SHA256
from vmtailor.base.text import plain
from vmtailor.drivers.host.bundle_folder import RECORD_BYTES, BundleFolder
from vmtailor.model.bundle import MONITORS, RECORD
from vmtailor.model.monitor_verdicts import MonitorPlace, MonitorVerdict, MonitorVerdicts, merged

#: Longest file that is read, and most verdicts in it.
MOST_BYTES, MOST_VERDICTS = 1 << 20, 64
#: Most failures of a verdict that are kept, and most programs that were left out; characters of each, and of a version.
MOST_SENTENCES, MOST_CHARACTERS, MOST_VERSION = 20, 400, 100
_MONITOR = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
#: Seconds that another process may take to write the file.
_LOCK_S = 5.0
_AGAIN = f"remove it: vmtailor verify BUNDLE --on MONITOR writes {MONITORS} again"


def read(files: BundleFolder) -> tuple[MonitorVerdict, ...]:
    """Return the verdicts on this bundle; none where there is no file, or where it is another bundle's. Raises
    UserInputError for a damaged file."""
    if not os.path.lexists(files.path / MONITORS):
        return ()
    where = files.path / MONITORS
    data = plain_files.read(files.path, MONITORS, MOST_BYTES)
    found = records.from_bytes(MonitorVerdicts, data, str(where), hint=_AGAIN)
    if replace(found, verdicts=()) != _of(files):
        return ()
    if len(found.verdicts) > MOST_VERDICTS:
        raise _wrong(where, f"it has more than {MOST_VERDICTS} verdicts")
    for one in found.verdicts:
        _require(one, where)
    if len(known := merged((), found.verdicts)) != len(found.verdicts):
        raise _wrong(where, "a monitor has two verdicts in one place")
    return known


def keep(files: BundleFolder, verdict: MonitorVerdict) -> tuple[MonitorVerdict, ...]:
    """Write a verdict into the bundle's file, in the place of an earlier one on the same monitor, and return all. A
    damaged file is replaced.

    Raises HostError where the file cannot be written: the bundle is another user's, read-only, or not the same any
    more."""
    try:
        with _alone(files.path):
            return _kept(files, verdict)
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise HostError(f"{files.path / MONITORS} cannot be written: {words}", hint="copy the bundle") from error


def _kept(files: BundleFolder, verdict: MonitorVerdict) -> tuple[MonitorVerdict, ...]:
    if hashlib.sha256(plain_files.read(files.path, RECORD, RECORD_BYTES)).hexdigest() != files.record_sha256:
        raise HostError(f"{files.path} became another bundle while it was verified", hint="verify it again")
    try:
        before = read(files)
    except UserInputError:
        before = ()
    found = merged(before[-MOST_VERDICTS + 1 :], (_bounded(verdict),))
    records.save(replace(_of(files), verdicts=found), files.path / MONITORS)
    return found


def _of(files: BundleFolder) -> MonitorVerdicts:
    """Return the record of a bundle without any verdict."""
    bundle = files.bundle
    kernel, root = (files.listed(name).sha256 for name in (bundle.kernel, bundle.root))
    return MonitorVerdicts(files.record_sha256, kernel, root, ())


def _bounded(verdict: MonitorVerdict) -> MonitorVerdict:
    """Return a verdict whose texts are short and plain: a guest and a bundle have a say in them."""
    return replace(
        verdict,
        version=_cut(verdict.version, MOST_VERSION),
        lab_kernel=_cut(verdict.lab_kernel, MOST_VERSION),
        failures=tuple(_cut(one, MOST_CHARACTERS) for one in verdict.failures[:MOST_SENTENCES]),
        skipped=tuple(_cut(one, MOST_CHARACTERS) for one in verdict.skipped[:MOST_SENTENCES]),
    )


def _cut(text: str, most: int) -> str:
    shown = plain(text[:most])
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def _require(one: MonitorVerdict, where: Path) -> None:
    """Raise UserInputError for a verdict that no verification writes."""
    if not _MONITOR.fullmatch(one.monitor):
        raise _wrong(where, f"'{plain(one.monitor[:64])}' is no name of a monitor")
    if one.program_sha256 and not SHA256.fullmatch(one.program_sha256):
        raise _wrong(where, "the digest of a program is none")
    if (one.place is MonitorPlace.LAB) is not bool(one.lab_kernel):
        raise _wrong(where, "it does not say of each verdict whether it is of the lab")
    if one != _bounded(one):
        raise _wrong(where, "a text in it is longer than any that a verification writes, or is not plain")


def _wrong(where: Path, what: str) -> UserInputError:
    return UserInputError(f"{where}: {what}", hint=_AGAIN)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. Raises HostError for the folder of another user, and where another process keeps the
    lock."""
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.fstat(at).st_uid != os.geteuid():
            raise HostError(f"{folder} belongs to another user", hint="copy the bundle")
        until = time.monotonic() + _LOCK_S
        while True:
            try:
                fcntl.flock(at, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise HostError(f"another process keeps {folder} locked", hint="verify it again") from None
                time.sleep(0.05)
        yield
    finally:
        os.close(at)
