# SPDX-License-Identifier: Apache-2.0
"""The tools of suites: the runtimes, and the ways to run something in one."""

from __future__ import annotations

import contextlib
import itertools
import math
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vmtailor.base.errors import HostError, VmtailorError
from vmtailor.base.notation import decoded_json, finite_json
from vmtailor.bench.analysis import instance_report as seen_limits
from vmtailor.bench.model.instance import BENCH, CALL_BACK, InstanceSpec, Limits, Volume
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import RuntimeIdentity, Witness
from vmtailor.bench.runtimes.host_runtime import DescribedRuntime
from vmtailor.bench.runtimes.instance_cgroups import Cgroups
from vmtailor.bench.runtimes.stopwatch import CallBacks, TimedCommand, timed

NO_LIMITS = Limits()
#: Limits under which a runtime is identified: it must set them.
ASKED = Limits(memory_bytes=256 << 20, cpus=1.0, pids=256)
#: The image's tag in the archive that engines load.
TAG = "bench:1"
TIMED_OUT = "it did not end in time"
#: Seconds that the last command may take beyond the run's time limit, and the reason given when it is ended.
AFTER_END_S = 120.0
RUN_OVER = "the run had to end, and it had not"


class TrialFailed(VmtailorError):
    """A trial gave no figures. This is a result, and does not end the run."""

    def __init__(self, reason: str, evidence: str = "") -> None:
        super().__init__(reason, details=evidence)


@dataclass(frozen=True)
class BuiltTree:
    """A published set of benchmarks, copied into the scope and built. `digest`: of the files as they were given;
    `flags`: of its first compilation, as its build printed it."""

    folder: Path
    digest: str
    compiler: str
    flags: str = ""


@dataclass
class BenchRun:
    """One run in the scope. `folder`: of the scope; `runtimes`: by name, prepared. `here`: the harness's own report;
    `identities`: of each runtime, by name; `asked_before`: those of the results that this run continues."""

    job: BenchJob
    folder: Path
    cgroups: Cgroups
    runtimes: dict[str, DescribedRuntime] = field(default_factory=dict)
    here: Mapping[str, Any] = field(default_factory=dict)
    identities: dict[str, RuntimeIdentity] = field(default_factory=dict)
    asked_before: Mapping[str, RuntimeIdentity] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = itertools.count()
        self._run = secrets.token_hex(2)
        #: Notes of the current trial, besides its figures.
        self.notes: list[str] = []
        #: Reports of instances about themselves in the current trial.
        self.witnesses: list[Witness] = []
        #: Trees built for this run, by name: published sets (suites/published_sets.py); or why one could not be.
        self.built: dict[str, BuiltTree | HostError] = {}

    @property
    def quick(self) -> bool:
        return self.job.quick

    def spec(self, command: Sequence[str], limits: Limits = NO_LIMITS, network: str = "") -> InstanceSpec:
        """Return a new instance."""
        return InstanceSpec(
            name=f"vt{self._run}-{next(self._numbers)}",
            command=tuple(command),
            limits=limits,
            volumes=(),
            network=network,
        )

    def run(
        self,
        runtime: str,
        command: Sequence[str],
        *,
        deadline_s: float,
        limits: Limits = NO_LIMITS,
        network: str = "",
        volumes: Sequence[Volume] = (),
    ) -> TimedCommand:
        """Run a command in a new instance, to its end; the instance reports from inside first. Raises TrialFailed when
        it does not end with 0, or differs from its row."""
        words = self.witnessed(runtime, command)
        wanted = replace(self.spec(words, limits, network), volumes=tuple(volumes))
        with self.placed(runtime, wanted) as spec:
            driver = self.runtimes[runtime]
            most_s = min(deadline_s, self.left_s())
            found = timed(driver.run_words(spec), deadline_s=most_s, **driver.surroundings())
        if found.returncode is None and most_s < deadline_s:
            raise TrialFailed(RUN_OVER, found.said)
        return self.heard(runtime, succeeded(found), network=bool(network))

    def witnessed(self, runtime: str, command: Sequence[str]) -> tuple[str, ...]:
        """Return a command that reports from inside the instance before it becomes the given one. `bench report` stays
        as it is: reporting is its work, and its timing ends at its first output."""
        known = runtime in self.identities and tuple(command[:2]) != (BENCH, "report")
        return (BENCH, "witness", *command) if known else tuple(command)

    def heard(self, runtime: str, found: TimedCommand, *, network: bool = False) -> TimedCommand:
        """Return the output of a witnessed command without its report, which is kept. Raises TrialFailed."""
        if runtime not in self.identities:
            return found
        report, rest = seen_limits.parted(found.stdout)
        self.witness(runtime, report, network=network)
        return replace(found, stdout=rest)

    def witness(self, runtime: str, said: bytes, *, network: bool = False) -> None:
        """Keep an instance's report from inside. `network`: it has a network that was made for it. Raises TrialFailed
        where it differs from its row."""
        one = self.runtimes[runtime].description
        found, problem = seen_limits.witness(
            self.identities[runtime],
            said,
            self.here,
            self.job.program_sha256,
            own_kernel=one.own_kernel,
            chroot=one.chroot,
            network=network,
        )
        if found is not None:
            self.witnesses.append(found)
        if problem:
            raise TrialFailed(problem, said[:2000].decode("utf-8", "replace"))

    def left_s(self) -> float:
        """Return the seconds that the run and its last command may still take; at least one."""
        until_s = self.job.until_s
        return math.inf if until_s is None else max(1.0, until_s + AFTER_END_S - time.monotonic())

    @contextlib.contextmanager
    def placed(self, runtime: str, spec: InstanceSpec) -> Iterator[InstanceSpec]:
        """Hold an instance's files, cgroups and mounts until the block is left, which removes them."""
        driver = self.runtimes[runtime]
        try:
            driver.place(spec)
            yield spec
        finally:
            driver.clear(spec)

    def callback_folder(self, spec: InstanceSpec) -> Path:
        """Return the folder on the host in which an instance calls back."""
        return self.folder / "callbacks" / spec.name

    @contextlib.contextmanager
    def calling_back(self, spec: InstanceSpec) -> Iterator[tuple[InstanceSpec, CallBacks]]:
        """Hold the instance with a watched folder of its own to call back in."""
        folder = self.callback_folder(spec)
        folder.mkdir(parents=True)
        with contextlib.closing(CallBacks(folder)) as callbacks:
            yield replace(spec, volumes=(*spec.volumes, Volume(str(folder), CALL_BACK))), callbacks


def succeeded(found: TimedCommand) -> TimedCommand:
    """Return the command unchanged. Raises TrialFailed when it did not end with 0."""
    if found.returncode is None:
        raise TrialFailed(TIMED_OUT, found.said)
    if found.returncode != 0:
        raise TrialFailed(f"it ended with {found.returncode}", found.said)
    return found


def said_object(found: TimedCommand) -> dict[str, Any]:
    """Return the JSON object that a program in an instance printed; it is untrusted. Raises TrialFailed."""
    said = decoded_json(found.stdout[found.stdout.find(b"{") :])
    if not isinstance(said, dict):
        raise TrialFailed("it did not print its figures", found.said)
    return said


def number(said: object, *path: str | int) -> float:
    """Return the number at a path in a program's output. Raises TrialFailed where there is none."""
    at: Any = said
    for key in path:
        try:
            at = at[key]
        except (KeyError, IndexError, TypeError):
            raise TrialFailed(f"no {'.'.join(map(str, path))} in what was printed") from None
    found = finite_json(at)
    if found is None:
        raise TrialFailed(f"{'.'.join(map(str, path))} is no number")
    return found
