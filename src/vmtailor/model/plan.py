# SPDX-License-Identifier: Apache-2.0
"""Changes and the plan they make."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar

from vmtailor.model.architecture import presumed_name
from vmtailor.model.evidence import Evidence


class Cause(StrEnum):
    """Why a symbol is kept. Direct causes name a record; a dependency names the symbol that needs it."""

    DEMANDED = "demanded"
    PLATFORM = "platform"
    POLICY = "policy"
    DEPENDENCY = "dependency"
    REPAIR = "repair"


class ChangeKind(StrEnum):
    CONFIG = "config"
    COMMAND_LINE = "command-line"
    ROOTFS = "rootfs"
    UNIT = "unit"
    RUNTIME = "runtime"
    MACHINE = "machine"
    COMPILER = "compiler"
    KERNEL_VERSION = "kernel-version"
    PATCH = "patch"


class RootFormat(StrEnum):
    EROFS = "erofs"
    SQUASHFS = "squashfs"
    EXT4 = "ext4"


@dataclass(frozen=True)
class Reason:
    """`text` says why; `reference` resolves to a record: `policy:ID`, `platform:ID`, `trace:…` or `symbol:NAME`."""

    cause: Cause
    reference: str
    text: str


@dataclass(frozen=True)
class Choice:
    """A configuration symbol of the plan. `name` without CONFIG_, `value` y, m, n, a number or a string."""

    name: str
    value: str
    prompted: bool
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class LeftOut:
    """A symbol of the baseline that ran or was there, and is left out: the order in which repair looks."""

    name: str
    instructions: int
    evidence: tuple[Evidence, ...]


@dataclass(frozen=True)
class Word:
    """One word of the kernel command line, with its reason."""

    word: str
    reason: Reason


@dataclass(frozen=True)
class Plan:
    """The configuration to build. `fragment` is what allnoconfig is given; `choices` all that it resolves to.

    `unexplained` names symbols without a reason (none, if all is right). `given_up` says, a sentence each, what was
    wanted and could not be had: policy that this tree or compiler cannot follow, or what falls with a dropped symbol.
    """

    SCHEMA: ClassVar[str] = "vmtailor/plan/1"

    kernel_version: str
    machine: str
    cpus: int
    root_format: RootFormat
    fragment: tuple[tuple[str, str], ...]
    choices: tuple[Choice, ...]
    left_out: tuple[LeftOut, ...]
    words: tuple[Word, ...]
    total_y: int
    prompted_y: int
    unexplained: tuple[str, ...] = ()
    given_up: tuple[str, ...] = ()
    network: bool = False
    architecture: str = field(default_factory=presumed_name)

    def choice(self, name: str) -> Choice | None:
        return next((c for c in self.choices if c.name == name), None)
