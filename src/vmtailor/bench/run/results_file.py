# SPDX-License-Identifier: Apache-2.0
"""The file of results: a run continues an earlier one of the same host, image and form; all other runs stay."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from vmtailor import __version__
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.bench.analysis.host_runs import with_earlier
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import IMAGE, BenchResults, HostRun, RuntimeIdentity
from vmtailor.bench.suites.bench_run import RUN_OVER

#: The option that may change from one run to the next.
REPEAT = "repeat"
#: The largest share of a run's time spent on writing results, and the longest wait between writes, in seconds.
_SHARE, _WAIT_S = 0.05, 5.0


def earlier(out: Path, job: BenchJob, host: str) -> HostRun | None:
    """Return the earlier run of the same host, image and form. `host`: its id."""
    if not out.is_file():
        return None
    wanted = (host, job.image_digest, job.quick)
    return next((run for run in records.load(BenchResults, out).runs if _key(run) == wanted), None)


def asked_before(out: Path, before: HostRun | None) -> dict[str, RuntimeIdentity]:
    """Return name → runtime for those that an earlier run has asked what they are and could use. None where another
    version of this program wrote the results: it may have asked otherwise."""
    if before is None or records.load(BenchResults, out).version != __version__:
        return {}
    return {one.runtime: one for one in before.identities if not (one.missing or one.problem)}


def going_on(before: HostRun | None, known: HostRun) -> HostRun:
    """Return the beginning of a run, continued from an earlier one. It keeps the earlier trials, but not those cut off
    at the end of a run. It keeps runtimes, in the order in which they first came, and the notes on those not measured
    now. Raises UserInputError where samples of other conditions would be pooled."""
    if before is None:
        return known
    require_alike(before, known.identities, known.options)
    kept = tuple(one for one in before.trials if one.failure is None or one.failure.reason != RUN_OVER)
    return replace(with_earlier(before, known), trials=kept)


def require_alike(
    before: HostRun | None, identities: Iterable[RuntimeIdentity], options: Iterable[tuple[str, str]] = ()
) -> None:
    """Raise UserInputError where samples of other conditions would be pooled: other versions of runtimes, other
    builds of programs, other limits. `before`: the earlier run, if there is one."""
    changed = [] if before is None else _changed(before, identities, options)
    if changed:
        raise UserInputError(
            f"results are there that were measured otherwise: {'; '.join(changed)}",
            hint="-o ANOTHER.json; `vmtailor bench report` reads several files",
        )


def _changed(before: HostRun, identities: Iterable[RuntimeIdentity], options: Iterable[tuple[str, str]]) -> list[str]:
    """Return in words what differs."""
    measured = {trial.runtime for trial in before.trials}
    versions = {one.runtime: one.version for one in before.identities if one.version and one.runtime in measured}
    found = [
        f"{one.runtime} was {versions[one.runtime]}, and is {one.version}"
        for one in identities
        if one.version and not one.problem and versions.get(one.runtime, one.version) != one.version
    ]
    known = dict(before.options)
    found += [
        f"{name} was {known[name]}, and is {text}"
        for name, text in options
        if name not in (REPEAT, IMAGE) and known.get(name, text) != text
    ]
    return found


def having(out: Path, known: HostRun) -> BenchResults:
    """Return the contents of the file with this run: its other runs stay as they are."""
    before = records.load(BenchResults, out).runs if out.is_file() else ()
    return BenchResults(__version__, (*(run for run in before if _key(run) != _key(known)), known))


class Keeping:
    """The file while a run goes on. Each call writes it, unless writing would take more than a twentieth of the time:
    then it waits some seconds, whose results a killed run loses."""

    def __init__(self, out: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._out, self._now = out, now
        self._due = now()

    def keep(self, known: HostRun, *, last: bool = False) -> None:
        """Write the results so far. `last`: however long it takes."""
        began = self._now()
        if began < self._due and not last:
            return
        records.save(having(self._out, known), self._out)
        ended = self._now()
        self._due = ended + min(_WAIT_S, (ended - began) / _SHARE)


def _key(run: HostRun) -> tuple[str, str, bool]:
    return run.host.id, run.image_digest, run.quick
