# SPDX-License-Identifier: Apache-2.0
"""The scheduler of a fleet: a process that passes orders and answers on, and holds no file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from vmtailor.base.errors import HostError
from vmtailor.fleet.model.addresses import Address
from vmtailor.fleet.run import engine_settings
from vmtailor.fleet.run.certificates import Certificates


def serve(listen: Address, certificates: Certificates, ready: Callable[[str], None]) -> None:
    """Listen until this process is ended. `ready` gets the address once it listens. Raises HostError where it
    cannot."""
    engine_settings.apply()
    try:
        asyncio.run(_serve(listen, certificates, ready))
    except (OSError, RuntimeError) as error:  # the engine wraps those of its start
        why = error.__cause__ or error
        raise HostError(
            f"a scheduler cannot listen on {listen.text}: {getattr(why, 'strerror', None) or why}",
            hint="--listen names another address",
        ) from error


async def _serve(listen: Address, certificates: Certificates, ready: Callable[[str], None]) -> None:
    from distributed import Scheduler

    async with Scheduler(
        host=listen.host, port=listen.port, protocol="tls://", security=certificates.security(),
        dashboard=False, dashboard_address=engine_settings.NO_DASHBOARD,
    ) as scheduler:  # fmt: skip
        ready(scheduler.address)
        await scheduler.finished()
