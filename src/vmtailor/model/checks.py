# SPDX-License-Identifier: Apache-2.0
"""The results of `vmtailor doctor` on a host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Need(StrEnum):
    """`required`: fit does not work without it. `development`: for the tests of vmtailor itself."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    DEVELOPMENT = "development"


class State(StrEnum):
    """`old`: there, and too old. `limited`: it works another way, slower or with less."""

    OK = "ok"
    MISSING = "missing"
    OLD = "old"
    LIMITED = "limited"


@dataclass(frozen=True)
class Check:
    """The result of one check. `fix` says what to do where the state is not ok; `package` is the package that helps."""

    name: str
    state: State
    need: Need
    found: str
    why: str
    fix: str = ""
    package: str = ""

    @property
    def blocks(self) -> bool:
        """Return whether fit cannot work on this host before this is fixed."""
        return self.need is Need.REQUIRED and self.state in (State.MISSING, State.OLD)
