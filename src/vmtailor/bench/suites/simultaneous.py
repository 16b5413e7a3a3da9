# SPDX-License-Identifier: Apache-2.0
"""Several instances that begin their work at the same moment: each creates a file and waits for another, `go`."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import IO

from vmtailor.base.process import spawn
from vmtailor.bench.model.instance import BENCH, Limits, Volume
from vmtailor.bench.runtimes.stopwatch import TimedCommand, said_until_now
from vmtailor.bench.suites.bench_run import NO_LIMITS, BenchRun, TrialFailed, succeeded

#: Seconds until all instances must be there.
READY_S = 120.0
_STEP_S = 0.2


@dataclass(frozen=True)
class _Begun:
    process: subprocess.Popen[bytes]
    out: IO[bytes]
    errors: IO[bytes]

    def said(self) -> TimedCommand:
        """Return what it said until now, in the form of a command that was timed."""
        out, errors = said_until_now(self.out), said_until_now(self.errors)
        return TimedCommand(
            reports=(), first_output_s=None, exit_s=0.0, returncode=self.process.poll(), stdout=out, stderr=errors
        )


def together(
    run: BenchRun,
    runtime: str,
    words: Callable[[int], Sequence[str]],
    count: int,
    *,
    seconds: float,
    grace_s: float,
    limits: Limits = NO_LIMITS,
    volumes: Sequence[Volume] = (),
) -> list[TimedCommand]:
    """Run `words(number)` in `count` instances. Each creates the file `number` in CALL_BACK, and begins when `go` is
    there. `seconds`: length of the work; `grace_s`: how much longer it may take. Raises TrialFailed."""
    driver = run.runtimes[runtime]
    with contextlib.ExitStack() as held:
        shared, callbacks = held.enter_context(run.calling_back(run.spec([BENCH])))
        begun = []
        for number in range(count):
            wanted = replace(
                run.spec(run.witnessed(runtime, words(number)), limits), volumes=(*shared.volumes, *volumes)
            )
            spec = held.enter_context(run.placed(runtime, wanted))
            out, errors = (held.enter_context(tempfile.TemporaryFile()) for _ in range(2))
            command = driver.run_words(spec)
            process = held.enter_context(spawn(command, stdout=out, stderr=errors, **driver.surroundings()))
            begun.append(_Begun(process, out, errors))
        absent, deadline = {str(number) for number in range(count)}, time.monotonic() + READY_S
        while absent:
            absent.difference_update(callbacks.wait(time.monotonic() + _STEP_S))
            ended = next((one for one in begun if one.process.poll() is not None), None)
            if absent and (ended is not None or time.monotonic() > deadline):
                evidence = (ended or begun[0]).said().said
                raise TrialFailed(f"{count - len(absent)} of {count} instances were there to begin", evidence)
        (run.callback_folder(shared) / "go").touch()
        deadline = time.monotonic() + seconds + grace_s
        for one in begun:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.process.wait(max(0.0, deadline - time.monotonic()))
        return [run.heard(runtime, succeeded(one.said())) for one in begun]
