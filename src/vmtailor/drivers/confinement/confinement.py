# SPDX-License-Identifier: Apache-2.0
"""Confinement of programs as far as this host allows (native/launch does it): tried once, with nothing in it."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from vmtailor.base import natives
from vmtailor.base.errors import VmtailorError
from vmtailor.base.process import CommandFailed, run


class Root(StrEnum):
    """The root directory that a program sees. `mount`: one of its own, in a mount namespace. `user`: the same, for
    which a user without rights needs a user namespace. `shared`: the host's."""

    MOUNT = "mount"
    USER = "user"
    SHARED = "shared"


@dataclass(frozen=True)
class Confinement:
    """`stranger`: the program has a user and a group of its own, otherwise those of its starter. `lacking`: what the
    kernel refused when more was tried, in the launcher's words."""

    root: Root
    stranger: bool
    lacking: tuple[str, ...] = ()

    @property
    def by_path(self) -> bool:
        """Return whether the program opens its files itself, by their names: it may what its starter may."""
        return self.root is Root.SHARED and not self.stranger

    @property
    def words(self) -> list[str]:
        """Return the launcher's words for it."""
        root = [] if self.root is Root.SHARED else ["root", str(self.root)]
        return [*(["stranger"] if self.stranger else []), *root]


class ConfinedProgram(Protocol):
    """A program to shut in. `needs`: files and folders of the host that it cannot do without; None for a script."""

    @property
    def program(self) -> str:
        """Return its path."""

    @property
    def needs(self) -> tuple[str, ...] | None:
        """Return what it cannot do without."""


PLAIN = Confinement(Root.SHARED, False)
#: From the best to the least; what root can have is not offered to others.
_FOR_ROOT = (
    Confinement(Root.MOUNT, True),
    Confinement(Root.MOUNT, False),
    Confinement(Root.SHARED, True),
    PLAIN,
)
_FOR_OTHERS = (Confinement(Root.USER, False), PLAIN)


@functools.cache
def launcher() -> Path:
    """Return the program that starts others shut in. Raises HostError when it is not there and cannot be made."""
    return natives.locate().launch


@functools.cache
def available() -> Confinement:
    """Return the best that this host has for this user."""
    lacking: list[str] = []
    for one in _FOR_ROOT if os.geteuid() == 0 else _FOR_OTHERS:
        try:
            run([str(launcher()), *one.words], timeout_s=20)
        except CommandFailed as error:
            lacking += (error.details or error.message).replace("launch: ", "").splitlines()[:1]
        else:
            return replace(one, lacking=tuple(dict.fromkeys(lacking)))
    raise VmtailorError("the launcher of monitors does not run", details="\n".join(lacking))


def of(program: ConfinedProgram) -> Confinement:
    """Return the confinement of a program. A script can start any program, so it keeps its starter's files."""
    if program.needs is None:
        return replace(PLAIN, lacking=(f"{program.program} is a script",))
    return available()
