# SPDX-License-Identifier: Apache-2.0
"""Results as CSV: every raw sample with its conditions."""

from __future__ import annotations

import csv
import io

from vmtailor.bench.model.results import BenchResults

HEAD = (
    "host", "image", "quick", "suite", "test", "runtime", "count", "variant", "block", "started_unix_s", "figure",
    "instance", "value", "unit", "larger_is_better", "failure", "steal", "others", "clock_mhz", "clock_low_mhz",
    "clock_high_mhz",
)  # fmt: skip


def csv_of(results: BenchResults) -> str:
    """Return a line for each sample; a failed trial is a line without a figure. Block 0 is the warm-up."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(HEAD)
    for run in results.runs:
        for trial in run.trials:
            noise = trial.noise
            what = (
                run.host.id, run.image_digest, int(run.quick), trial.suite, trial.test, trial.runtime, trial.count,
                trial.variant, trial.block, trial.started_unix_s,
            )  # fmt: skip
            after = (
                (noise.steal, noise.others, noise.clock_mhz, noise.clock_low_mhz, noise.clock_high_mhz)
                if noise
                else ("", "", "", "", "")
            )
            for one in trial.figures:
                lines.writerow(
                    [*what, one.name, one.instance, one.value, one.unit, int(one.larger_is_better), "", *after]
                )
            if trial.failure is not None:
                lines.writerow([*what, "", "", "", "", "", trial.failure.reason, *after])
    return out.getvalue()
