# SPDX-License-Identifier: Apache-2.0
"""The file of results: what an earlier run of the same host, image and form left there goes on; all else stays."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from vmtailor import __version__
from vmtailor.analysis.bench.expecting import LEFT_OUT
from vmtailor.base.files import records
from vmtailor.model.bench.job import BenchJob
from vmtailor.model.bench.results import BenchResults, HostRun

#: The most of a run's time that writing its results may take, and the longest that they wait for it, in seconds.
_SHARE, _WAIT_S = 0.05, 5.0


def earlier(out: Path, job: BenchJob, host: str) -> HostRun | None:
    """What an earlier run left there of the same host, image and form; `host`: its id."""
    if not out.is_file():
        return None
    wanted = (host, job.image_digest, job.quick)
    return next((run for run in records.load(BenchResults, out).runs if _key(run) == wanted), None)


def going_on(before: HostRun | None, known: HostRun) -> HostRun:
    """What is known at the beginning of a run, with what was there: its trials; runtimes, in the order in which they
    first came; what was said of those that are not measured now."""
    if before is None:
        return known
    now = {one.runtime for one in known.identities}
    identities = {one.runtime: one for one in (*before.identities, *known.identities)}
    of_others = [
        text
        for text in before.left_out
        if LEFT_OUT not in text and not any(text.startswith(f"{name}: ") for name in now)
    ]
    return replace(
        known,
        options=tuple({**dict(before.options), **dict(known.options)}.items()),
        identities=tuple(identities.values()),
        trials=before.trials,
        left_out=tuple(dict.fromkeys((*of_others, *known.left_out))),
    )


def having(out: Path, known: HostRun) -> BenchResults:
    """The file's other runs stay as they are."""
    before = records.load(BenchResults, out).runs if out.is_file() else ()
    return BenchResults(__version__, (*(run for run in before if _key(run) != _key(known)), known))


class Keeping:
    """The file while a run goes on, which grows. It is written whenever it is told to, unless that would take more than
    a twentieth of the time: then seconds later, at most, which a run that is killed loses."""

    def __init__(self, out: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._out, self._now = out, now
        self._due = now()

    def keep(self, known: HostRun, *, last: bool = False) -> None:
        """What is known now; `last`: whatever it takes."""
        began = self._now()
        if began < self._due and not last:
            return
        records.save(having(self._out, known), self._out)
        ended = self._now()
        self._due = ended + min(_WAIT_S, (ended - began) / _SHARE)


def _key(run: HostRun) -> tuple[str, str, bool]:
    return run.host.id, run.image_digest, run.quick
