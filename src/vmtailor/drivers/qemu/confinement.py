# SPDX-License-Identifier: Apache-2.0
"""How far QEMU can be shut in on this host (native/launch does it): tried once, with nothing in it."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from vmtailor.base import natives
from vmtailor.base.errors import VmtailorError
from vmtailor.base.process import CommandFailed, run
from vmtailor.drivers.qemu.qemu_program import Qemu


class Root(StrEnum):
    """Whose root directory QEMU sees. `mount`: one of its own, in a mount namespace. `user`: the same, for which a user
    without rights needs a user namespace. `shared`: the host's."""

    MOUNT = "mount"
    USER = "user"
    SHARED = "shared"


@dataclass(frozen=True)
class Confinement:
    """`stranger`: QEMU has a user and a group of its own, otherwise those of its starter. `lacking`: what the kernel
    refused when more was tried, in the launcher's words."""

    root: Root
    stranger: bool
    lacking: tuple[str, ...] = ()

    @property
    def by_path(self) -> bool:
        """Whether QEMU opens its files itself, by their names: it may what its starter may."""
        return self.root is Root.SHARED and not self.stranger

    @property
    def words(self) -> list[str]:
        """The launcher's words for it."""
        root = [] if self.root is Root.SHARED else ["root", str(self.root)]
        return [*(["stranger"] if self.stranger else []), *root]


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
    """The program that starts QEMU. Raises HostError when it is not there and cannot be made."""
    return natives.locate().launch


@functools.cache
def available() -> Confinement:
    """The best that this host has for this user."""
    lacking: list[str] = []
    for one in _FOR_ROOT if os.geteuid() == 0 else _FOR_OTHERS:
        try:
            run([str(launcher()), *one.words], timeout_s=20)
        except CommandFailed as error:
            lacking += (error.details or error.message).replace("launch: ", "").splitlines()[:1]
        else:
            return replace(one, lacking=tuple(dict.fromkeys(lacking)))
    raise VmtailorError("QEMU's launcher does not run", details="\n".join(lacking))


def of(qemu: Qemu) -> Confinement:
    """What this QEMU gets. A script in QEMU's place starts what nobody can foresee, so it keeps its starter's files."""
    if qemu.needs is None:
        return replace(PLAIN, lacking=(f"{qemu.program} is a script",))
    return available()
