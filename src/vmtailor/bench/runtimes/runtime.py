# SPDX-License-Identifier: Apache-2.0
"""The protocol of every way to run a container on this host."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypedDict

from vmtailor.bench.model.instance import InstanceSpec, Limits
from vmtailor.bench.runtimes.description import Description
from vmtailor.bench.runtimes.networks import Link


@dataclass(frozen=True)
class BenchImage:
    """The image, in the forms that runtimes take. `tree`: its files, unpacked and never written; `archive`: as
    `docker save` writes it, with `tag`."""

    tree: Path
    archive: Path
    tag: str


@dataclass(frozen=True)
class InstanceSteps:
    """Argument lists that make one instance: each of `create` one after the other, then `start`, later `stop`. `stays`:
    `start` runs as long as the instance does; otherwise it returns when the instance runs."""

    create: tuple[tuple[str, ...], ...]
    start: tuple[str, ...]
    stays: bool
    stop: tuple[tuple[str, ...], ...]


class Surroundings(TypedDict):
    """The surroundings of a runtime's commands (base/process.py). `env`: None where it is ours; `cwd`: a folder in the
    scope, for what programs leave where they are (podman's monitor a file for each instance that is out of memory)."""

    env: dict[str, str] | None
    cwd: Path


class Runtime(Protocol):
    """A way to run a container. Used in a `with` block: afterwards nothing of it runs."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> Description:
        """Return what it says of its instances: whether they have a kernel of their own, which limits they can have."""
        ...

    def able(self, limits: Limits) -> Limits:
        """Return those of some limits that its instances can have."""
        ...

    def surroundings(self) -> Surroundings:
        """Return those of its commands, once it is prepared."""
        ...

    def version(self) -> str:
        """Return what its program says of itself; empty when it says nothing."""
        ...

    def prepare(self, image: BenchImage) -> None:
        """Take the image in. Raises HostError or CommandFailed."""
        ...

    def place(self, spec: InstanceSpec) -> None:
        """Make what an instance needs of files, cgroups and mounts, before its time is taken."""
        ...

    def network(self, number: int, *, peer: bool = False) -> AbstractContextManager[Link]:
        """Hold a network for one instance: `InstanceSpec.network` is its path."""
        ...

    def run_words(self, spec: InstanceSpec) -> tuple[str, ...]:
        """Return the one command that makes an instance, runs its command in the foreground, and takes it away."""
        ...

    def steps(self, spec: InstanceSpec) -> InstanceSteps:
        """Return the commands that make, start and end an instance, each apart."""
        ...

    def clear(self, spec: InstanceSpec) -> None:
        """Take away what is left of an instance, in whatever state it is. Never raises for what is not there."""
        ...
