# SPDX-License-Identifier: Apache-2.0
"""The remote cache that this process uses beside its local one, which is always asked first: the environment names it,
and whoever starts the program says how a host tells its tools."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from vmtailor.base import output

if TYPE_CHECKING:  # few processes need it
    from vmtailor.base.cache.remote_cache import RemoteCache

#: The variable that names the remote cache; a child process inherits it.
VARIABLE = "VMTAILOR_REMOTE_CACHE"

_fingerprint_of: list[Callable[[], tuple[str, bytes]]] = []
_current: dict[str, RemoteCache] = {}
_stays_local: list[str] = []


def use_fingerprint(ask: Callable[[], tuple[str, bytes]]) -> None:
    """Set where the fingerprint of this host comes from: its digest and its record. It is asked for once."""
    _fingerprint_of[:] = [cache(ask)]


def current() -> RemoteCache | None:
    """Return the remote cache that the environment names; None where it names none, or nobody can tell our tools."""
    url = os.environ.get(VARIABLE, "")
    if not url or not _fingerprint_of or _stays_local:
        return None
    if url not in _current:
        from vmtailor.base.cache.remote_cache import RemoteCache

        _current[url] = RemoteCache(url, _fingerprint_of[0])
    return _current[url]


def keep_local(why: str) -> None:
    """Leave the remote cache alone for the rest of this process, since what it makes has keys of this host alone. Says
    so where there is a remote cache."""
    if current() is not None and not _stays_local:
        output.note(f"the remote cache is not used: {why}")
    _stays_local.append(why)
