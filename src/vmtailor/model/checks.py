# SPDX-License-Identifier: Apache-2.0
"""The results of `vmtailor doctor` on a host."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class HostPurpose(StrEnum):
    """The work that a host is checked for. `development`: fit, and the tests of vmtailor itself."""

    RUN = "run"
    FIT = "fit"
    DEVELOPMENT = "development"


class Need(StrEnum):
    """`required`: fit does not work without it. `installation`: to install vmtailor from its source. `development`: for
    the tests of vmtailor itself."""

    REQUIRED = "required"
    OPTIONAL = "optional"
    INSTALLATION = "installation"
    DEVELOPMENT = "development"


class State(StrEnum):
    """`old`: there, and too old. `limited`: it works another way, slower or with less."""

    OK = "ok"
    MISSING = "missing"
    OLD = "old"
    LIMITED = "limited"


@dataclass(frozen=True)
class Check:
    """The result of one check. `fix` says what to do where the state is not ok; `package` is the package that helps.
    `runs`: `run` depends on it, too."""

    name: str
    state: State
    need: Need
    found: str
    why: str
    fix: str = ""
    package: str = ""
    runs: bool = False

    @property
    def blocks(self) -> bool:
        """Return whether fit (`run`, if it depends on this) cannot work on this host before this is fixed."""
        return self.need is Need.REQUIRED and self.state in (State.MISSING, State.OLD)
