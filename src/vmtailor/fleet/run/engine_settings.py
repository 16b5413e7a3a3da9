# SPDX-License-Identifier: Apache-2.0
"""The engine's settings, the same in every process of a fleet, whatever a user's own files say."""

from __future__ import annotations

from typing import Any

#: A task whose worker died comes back to us at once: we count its runs, and blame nobody else. A worker that says
#: nothing for that long is dead. Nothing is moved between workers: each gets what is meant for it.
SETTINGS: dict[str, Any] = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
    "distributed.comm.require-encryption": True,
    "distributed.comm.timeouts.connect": "20s",
    "distributed.admin.tick.limit": "60s",
    "distributed.admin.low-level-log-length": 100,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.logging": {"distributed": "error"},
}
#: Where the engine's own pages would be, if it had any.
NO_DASHBOARD = "127.0.0.1:0"


def apply() -> None:
    """Set them in this process. Called before the engine is imported."""
    import dask

    dask.config.set(SETTINGS)
