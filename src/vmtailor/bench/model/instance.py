# SPDX-License-Identifier: Apache-2.0
"""One instance of a container, as a runtime is asked for it; and the paths of the programs that the image holds."""

from __future__ import annotations

from dataclasses import dataclass

#: The image's programs: the one that most instances run, and the tests of UnixBench.
BENCH, BENCH_UNIXBENCH = "/bench/bench", "/bench/unixbench"
#: Path inside an instance where it calls back.
CALL_BACK = "/callback"


@dataclass(frozen=True)
class WriteLimit:
    """A limit on the bytes a second written to a block device, given by its numbers and its path."""

    major: int
    minor: int
    path: str
    bytes_s: int


@dataclass(frozen=True)
class Limits:
    """The limits of an instance; None: no limit. `cpus`: processors' worth of time; `cpuset`: the processors that it
    may use; `write`: the rate to a disk."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    cpuset: str | None = None
    write: WriteLimit | None = None


@dataclass(frozen=True)
class Volume:
    """A folder of the host that an instance sees."""

    source: str
    target: str


@dataclass(frozen=True)
class InstanceSpec:
    """`name`: unique in a run; letters, digits and hyphens. `network`: path of the network namespace that the instance
    joins; empty: a new one with nothing in it."""

    name: str
    command: tuple[str, ...]
    limits: Limits = Limits()
    volumes: tuple[Volume, ...] = ()
    network: str = ""
