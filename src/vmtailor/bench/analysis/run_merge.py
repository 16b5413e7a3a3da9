# SPDX-License-Identifier: Apache-2.0
"""Several files of results as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vmtailor.bench.analysis.trial_cost import LEFT_OUT
from vmtailor.bench.model.results import BenchResults, HostRun


def merged(files: Sequence[BenchResults]) -> BenchResults:
    """One entry for each host, image and form; trials that several have are there once. Of what a runtime is, and of
    what was left out, the word of the last file that says something is kept."""
    runs: dict[tuple[str, str, bool], HostRun] = {}
    for results in files:
        for run in results.runs:
            key = (run.host.id, run.image_digest, run.quick)
            runs[key] = _joined(runs[key], run) if key in runs else run
    return BenchResults(files[-1].version, tuple(runs.values()))


def _joined(first: HostRun, second: HostRun) -> HostRun:
    trials = {(*trial.key, trial.started_unix_s): trial for trial in (*first.trials, *second.trials)}
    return replace(with_earlier(first, second), trials=tuple(trials.values()))


def with_earlier(first: HostRun, second: HostRun) -> HostRun:
    """The second with what the first one knows besides: its runtimes, which stay in the order in which they first came,
    its options, and what it left out; but for what it says of runtimes and of the time that it had which the second
    says anew."""
    now = {one.runtime for one in second.identities}
    identities = {one.runtime: one for one in (*first.identities, *second.identities)}
    of_others = [
        text
        for text in first.left_out
        if LEFT_OUT not in text and not any(text.startswith(f"{name}: ") for name in now)
    ]
    return replace(
        second,
        options=tuple({**dict(first.options), **dict(second.options)}.items()),
        identities=tuple(identities.values()),
        left_out=tuple(dict.fromkeys((*of_others, *second.left_out))),
    )
