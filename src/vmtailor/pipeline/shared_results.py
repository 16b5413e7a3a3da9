# SPDX-License-Identifier: Apache-2.0
"""Results that hosts share through a remote cache: which tools they were made with says the fingerprint of a host."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vmtailor.base.cache import remote

if TYPE_CHECKING:  # few verbs need them
    from vmtailor.base.cache.remote_cache import RemoteCache


def begin(url: str = "") -> None:
    """Have results looked for in a remote cache, too, and uploaded there. `url`: that cache, for this process and its
    children; without one, what VMTAILOR_REMOTE_CACHE names. Raises HostError and UserInputError for a URL that cannot
    be one."""
    if url:
        from vmtailor.base.cache.remote_files import RemoteFiles

        RemoteFiles(url)  # who names it now is told now
        os.environ[remote.VARIABLE] = url
    remote.use_fingerprint(_fingerprint)


def remote_cache(url: str) -> RemoteCache:
    """Return a remote cache for the tools of this host. Raises as `begin`."""
    from vmtailor.base.cache.remote_cache import RemoteCache

    found = RemoteCache(url, _fingerprint)
    found.open()
    return found


def _fingerprint() -> tuple[str, bytes]:
    # It asks compilers and emulators, which few verbs need.
    from vmtailor.base.files import records
    from vmtailor.drivers.host import fingerprint

    found = fingerprint.fingerprint()
    return found.digest, records.to_bytes(found)
