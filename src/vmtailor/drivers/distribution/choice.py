# SPDX-License-Identifier: Apache-2.0
"""Which distribution is asked for packages: the one place that knows them all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vmtailor.base import installing
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.distribution.debian import Debian
from vmtailor.drivers.distribution.protocol import Distribution
from vmtailor.drivers.distribution.unpackaged import Unpackaged

#: By what os-release calls them, or what others say that they are like.
_KNOWN: dict[str, Callable[[], Distribution]] = {"debian": Debian}


def by_name(name: str) -> Distribution:
    """A distribution that vmtailor knows. Raises UserInputError for another one."""
    if name not in _KNOWN:
        raise UserInputError(f"vmtailor knows no distribution '{name}'", hint=f"known: {', '.join(_KNOWN)}")
    return _KNOWN[name]()


def of_host(ids: Sequence[str] | None = None) -> Distribution:
    """The distribution of this host (or of one that calls itself `ids`), or the one it is like; one without packaged
    kernels when none is known."""
    names = installing.host_ids() if ids is None else ids
    known = next((one for one in names if one in _KNOWN), None)
    return by_name(known) if known else Unpackaged(names[0] if names else "")
