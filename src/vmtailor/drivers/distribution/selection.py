# SPDX-License-Identifier: Apache-2.0
"""Select the distribution that packages come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from vmtailor.base import package_manager
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import HostError, UserInputError
from vmtailor.drivers.distribution.debian import Debian
from vmtailor.drivers.distribution.distribution import Distribution, PackagedKernel
from vmtailor.model.architecture import Architecture


class Unpackaged:
    """A Distribution without kernels. `name`: the host's own, or empty when it does not say."""

    refresh = ""

    def __init__(self, name: str) -> None:
        self.name = name

    def lacking(self) -> str:
        """Say that the distribution is unknown."""
        return f"vmtailor cannot read the packages of {self.name or 'this distribution'}"

    def state(self, architecture: Architecture) -> str:
        """Return one word for ever."""
        return "unpackaged"

    def kernels(self, architecture: Architecture) -> Sequence[PackagedKernel]:
        """Return no kernels."""
        return ()

    def program(self, architecture: Architecture, package: str, name: str, store: Store) -> Path:
        """Raise HostError: there are no packages."""
        raise HostError(
            f"{self.lacking()}: {name} for {architecture.title} is not available",
            hint=f"fit images for {architecture.title} on a host with Debian, or on such a processor",
        )

    def version_key(self, version: str) -> str:
        """Return the version: there is nothing to order."""
        return version


#: By what os-release calls them, or what others say that they are like.
_KNOWN: dict[str, Callable[[], Distribution]] = {"debian": Debian}


def by_name(name: str) -> Distribution:
    """Return a distribution that vmtailor knows. Raises UserInputError for another one."""
    if name not in _KNOWN:
        raise UserInputError(f"vmtailor knows no distribution '{name}'", hint=f"known: {', '.join(_KNOWN)}")
    return _KNOWN[name]()


def of_host(ids: Sequence[str] | None = None) -> Distribution:
    """Return the distribution of this host (or of one that calls itself `ids`), or the one it is like. If none is
    known, it is one without packaged kernels."""
    names = package_manager.host_ids() if ids is None else ids
    known = next((one for one in names if one in _KNOWN), None)
    return by_name(known) if known else Unpackaged(names[0] if names else "")
