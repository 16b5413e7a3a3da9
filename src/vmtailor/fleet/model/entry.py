# SPDX-License-Identifier: Apache-2.0
"""A list of images to fit, as records. They hold names of variables and secrets, and never a value of one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from vmtailor.model.margin import Margin


class ListForm(StrEnum):
    """The forms in which people have lists of images."""

    TOML = "toml"  # ours: docs/reference/fleet-list.md
    LINES = "lines"  # a reference a line
    COMPOSE = "compose"  # what `docker compose config` prints
    KUBERNETES = "kubernetes"  # manifests


class ValueFrom(StrEnum):
    """The places where the value of a variable is kept."""

    LIST = "list"  # in the list's own file, which is read again where the value is needed
    FILE = "file"
    SECRET = "secret"
    CONFIG_MAP = "config map"
    RUNNING = "running"  # known only once it runs: a field of the pod, a limit of its resources


@dataclass(frozen=True)
class Variable:
    """A variable of the environment, without its value. `place` says where that is kept, such as `db, key password`;
    empty for the list's own file. `optional`: the container starts without it, too."""

    name: str
    source: ValueFrom
    place: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Meaningless:
    """A part of the list without meaning for a fit: the key as it stands there, and why in a few words."""

    key: str
    why: str


# vmtailor/fleet-entry/1: first.
@dataclass(frozen=True)
class FleetEntry:
    """One image to fit, and how. Sizes are in bytes, times in seconds; None and empty texts leave a choice to `fit`.

    `name`: unique in its list, and the name of the bundle's folder. `reference`: as `fit` takes it. `digest`:
    `sha256:…` where the list pins the image. `exercise`: the text of an exercise file; empty where the image's own
    configuration decides. `exercise_origin`: the file or the part of the list that it comes from. `margins`: None for
    those of the image, empty for none. `entrypoint` and `cmd`: in place of the image's. `priority`: the highest comes
    first. `limit_s`: the longest that the fit may take. `environment`: variables beside those of the image. `ports`:
    TCP ports that the list publishes or names. `secrets`: names of those that the container reads as files."""

    SCHEMA: ClassVar[str] = "vmtailor/fleet-entry/1"

    name: str
    reference: str
    digest: str = ""
    exercise: str = ""
    exercise_origin: str = ""
    margins: tuple[Margin, ...] | None = None
    architecture: str = ""
    machine: str = ""
    memory_bytes: int | None = None
    cpus: int | None = None
    kernel: str = ""
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] | None = None
    cmd: tuple[str, ...] | None = None
    privileged: bool = False
    priority: int = 0
    limit_s: float | None = None
    environment: tuple[Variable, ...] = ()
    ports: tuple[int, ...] = ()
    secrets: tuple[str, ...] = ()
    no_meaning: tuple[Meaningless, ...] = ()

    @property
    def pinned(self) -> str:
        """Return the reference with its digest, where it has one and does not hold it already."""
        if not self.digest or f"@{self.digest}" in self.reference:
            return self.reference
        return f"{self.reference}@{self.digest}"


# vmtailor/fleet-list/1: first.
@dataclass(frozen=True)
class FleetList:
    """A list as it was read. `path`: the file, as it was given. `sha256`: of its bytes. `no_meaning`: parts of the
    file that belong to no entry."""

    SCHEMA: ClassVar[str] = "vmtailor/fleet-list/1"

    path: str
    form: ListForm
    sha256: str
    entries: tuple[FleetEntry, ...]
    no_meaning: tuple[Meaningless, ...] = ()

    def named(self, name: str) -> FleetEntry | None:
        """Return the entry of a name; None where there is none."""
        return next((one for one in self.entries if one.name == name), None)
