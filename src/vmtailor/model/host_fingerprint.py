# SPDX-License-Identifier: Apache-2.0
"""The tools that results depend on, beside their inputs: hosts that agree in them can share results."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar

from vmtailor.base.files import records

#: The text for a tool that a host does not have.
ABSENT = "not installed"


@dataclass(frozen=True)
class Fingerprint:
    """The tools of a host. `tools`: name → version, or digest of the content, in a fixed order. `architecture`: the
    processor family that they make machines for."""

    SCHEMA: ClassVar[str] = "vmtailor/fingerprint/1"

    architecture: str
    tools: tuple[tuple[str, str], ...]

    @property
    def digest(self) -> str:
        """Return the digest of all tools: hex SHA-256. Equal digests mean equal tools."""
        return hashlib.sha256(records.to_bytes(self)).hexdigest()

    def differences(self, other: Fingerprint) -> tuple[str, ...]:
        """Return a phrase for each tool that differs, such as `gcc: 12.2.0 here, 14.2.0 there`; none when all are
        equal. `here` is this fingerprint, `there` the other one."""
        mine = {"processor": self.architecture, **dict(self.tools)}
        theirs = {"processor": other.architecture, **dict(other.tools)}
        return tuple(
            f"{name}: {mine.get(name, ABSENT)} here, {theirs.get(name, ABSENT)} there"
            for name in dict.fromkeys((*mine, *theirs))
            if mine.get(name, ABSENT) != theirs.get(name, ABSENT)
        )
