# SPDX-License-Identifier: Apache-2.0
"""A host whose distribution's packages vmtailor cannot read: its baseline is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError
from vmtailor.drivers.distribution.protocol import PackagedKernel
from vmtailor.model.architecture import Architecture


class Unpackaged:
    """A Distribution without kernels. `name`: the host's own, or empty when it does not say."""

    refresh = ""

    def __init__(self, name: str) -> None:
        self.name = name

    def lacking(self) -> str:
        """That this is no distribution we know."""
        return f"vmtailor cannot read the packages of {self.name or 'this distribution'}"

    def state(self, row: Architecture) -> str:
        """The same for ever."""
        return "unpackaged"

    def kernels(self, row: Architecture) -> Sequence[PackagedKernel]:
        """None."""
        return ()

    def program(self, row: Architecture, package: str, name: str, store: Store) -> Path:
        """Raises HostError."""
        raise HostError(
            f"{self.lacking()}: {name} for {row.title} cannot be had",
            hint=f"fit images for {row.title} on a host with Debian, or on such a processor",
        )

    def version_key(self, version: str) -> str:
        """There is nothing to order."""
        return version
