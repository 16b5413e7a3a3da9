# SPDX-License-Identifier: Apache-2.0
"""One instance of a container, as it is asked of a runtime; what the image of the benchmarks has for it."""

from __future__ import annotations

from dataclasses import dataclass

#: The image's programs: what most instances run, and the tests of UnixBench.
BENCH, BENCH_UNIXBENCH = "/bench/bench", "/bench/unixbench"
#: Path inside an instance where it calls back.
CALL_BACK = "/callback"


@dataclass(frozen=True)
class WriteLimit:
    """A limit to the bytes a second that go to a block device: its numbers, and its path."""

    major: int
    minor: int
    path: str
    bytes_s: int


@dataclass(frozen=True)
class Limits:
    """The limits of an instance; None: as much as there is. `cpus`: processors' worth of time; `cpuset`: which ones;
    `write`: how fast to a disk."""

    memory_bytes: int | None = None
    cpus: float | None = None
    pids: int | None = None
    cpuset: str | None = None
    write: WriteLimit | None = None


@dataclass(frozen=True)
class Volume:
    """A folder of the host in an instance."""

    source: str
    target: str


@dataclass(frozen=True)
class InstanceSpec:
    """`name` is unique in a run, letters, digits and hyphens. `network`: path of the network namespace it is put in;
    empty: one of its own with nothing in it."""

    name: str
    command: tuple[str, ...]
    limits: Limits = Limits()
    volumes: tuple[Volume, ...] = ()
    network: str = ""
