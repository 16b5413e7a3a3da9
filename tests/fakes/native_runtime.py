# SPDX-License-Identifier: Apache-2.0
"""A run in no scope: instances are processes of this host, with folders in place of what is mounted in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from vmtailor.base.errors import HostError
from vmtailor.bench.model.instance import InstanceSpec
from vmtailor.bench.model.job import BenchJob
from vmtailor.bench.model.results import SuiteName
from vmtailor.bench.runtimes.host_runtime import Surroundings
from vmtailor.bench.runtimes.networks import Link
from vmtailor.bench.suites.bench_run import BenchRun


class Native:
    """Stands for a runtime. `refuses`: nothing can be placed; `cleared`: names of the instances that were."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.refuses = folder, False
        self.cleared: list[str] = []

    def place(self, _spec: InstanceSpec) -> None:
        if self.refuses:
            raise HostError("no room")

    def clear(self, spec: InstanceSpec) -> None:
        self.cleared.append(spec.name)

    @contextlib.contextmanager
    def network(self, number: int) -> Iterator[Link]:
        yield Link("", f"10.77.{number}.2", f"10.77.{number}.1")

    def run_words(self, spec: InstanceSpec) -> tuple[str, ...]:
        words = spec.command
        for volume in spec.volumes:
            words = tuple(word.replace(volume.target, volume.source) for word in words)
        return words

    def surroundings(self) -> Surroundings:
        return {"env": None, "cwd": self.folder}


def run_in(folder: Path) -> BenchRun:
    """One of the startup suite, natively; results go into `b.json`."""
    out = str(folder / "b.json")
    job = BenchJob((SuiteName.STARTUP,), ("native",), (1,), 3, True, 1, "sha256:0", "", "", "", "", out)
    cgroups: Any = SimpleNamespace(cpu_s=lambda: 0.0)
    runtimes: Any = {"native": Native(folder)}
    return BenchRun(job, folder, cgroups, runtimes)
