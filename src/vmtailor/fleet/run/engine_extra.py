# SPDX-License-Identifier: Apache-2.0
"""The engine that carries the work, Dask, which only this wing needs: an extra of the package."""

from __future__ import annotations

import importlib.util

from vmtailor.base.cache.remote_files import INSTALL_EXTRA
from vmtailor.base.errors import HostError

#: Modules of the extra, each by the package that has it.
MODULES = ("distributed", "cryptography", "kubernetes_validate", "tomli_w")


def require() -> None:
    """Raise HostError where the extra is not installed."""
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise HostError(
            f"vmtailor fleet needs the extra vmtailor[fleet]: {' and '.join(missing)} cannot be imported",
            hint=INSTALL_EXTRA,
        )
