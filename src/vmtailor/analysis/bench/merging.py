# SPDX-License-Identifier: Apache-2.0
"""Several files of results as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vmtailor.model.bench.results import BenchResults, HostRun


def merged(files: Sequence[BenchResults]) -> BenchResults:
    """One entry for each host, image and form; trials that both have are there once. The latest word on what a runtime
    is, and on what was left out, is kept."""
    runs: dict[tuple[str, str, bool], HostRun] = {}
    for results in files:
        for run in results.runs:
            key = (run.host.id, run.image_digest, run.quick)
            runs[key] = _joined(runs[key], run) if key in runs else run
    return BenchResults(files[-1].version, tuple(runs.values()))


def _joined(first: HostRun, second: HostRun) -> HostRun:
    identities = {one.runtime: one for one in (*first.identities, *second.identities)}
    trials = {(*trial.key, trial.started_unix_s): trial for trial in (*first.trials, *second.trials)}
    return replace(
        second,
        identities=tuple(identities.values()),
        trials=tuple(trials.values()),
        left_out=tuple(dict.fromkeys((*first.left_out, *second.left_out))),
    )
