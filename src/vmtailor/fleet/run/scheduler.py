# SPDX-License-Identifier: Apache-2.0
"""The scheduler of a fleet: a process that passes orders and answers on, and holds no file."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from vmtailor.base.errors import HostError
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.fleet.model import addresses
from vmtailor.fleet.model.addresses import Address
from vmtailor.fleet.run import certificates, engine_settings
from vmtailor.fleet.run.certificates import Certificates


def serve(listen: Address, shown: Certificates, ready: Callable[[str], None]) -> None:
    """Listen until this process is ended. `ready` gets the address once it listens. Raises HostError where it
    cannot."""
    engine_settings.apply()
    try:
        asyncio.run(_serve(listen, shown, ready))
    except (OSError, RuntimeError) as error:  # the engine wraps those of its start
        why = error.__cause__ or error
        raise HostError(
            f"a scheduler cannot listen on {listen.text}: {getattr(why, 'strerror', None) or why}",
            hint="--listen names another address",
        ) from error


async def _serve(listen: Address, shown: Certificates, ready: Callable[[str], None]) -> None:
    from distributed import Scheduler

    async with Scheduler(
        host=listen.host, port=listen.port, protocol="tls://", security=shown.security(),
        dashboard=False, dashboard_address=engine_settings.NO_DASHBOARD,
    ) as scheduler:  # fmt: skip
        ready(scheduler.address)
        await scheduler.finished()


def main() -> None:
    """Serve as the scheduler of a fleet on this host alone. The arguments are the address, the certificates' folder and
    the file that gets the address once it listens."""
    address, folder, file = sys.argv[1:]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        serve(
            addresses.parse(address), certificates.found(Path(folder)),
            lambda text: write_atomic(Path(file), text.encode()),
        )  # fmt: skip


if __name__ == "__main__":
    main()
