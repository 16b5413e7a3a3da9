# SPDX-License-Identifier: Apache-2.0
"""A scheduler and workers on this host alone, as processes that end with this one. Their certificates live as long."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vmtailor.base import process
from vmtailor.base.errors import HostError
from vmtailor.base.files import temporary
from vmtailor.base.text import plain
from vmtailor.fleet.model import addresses
from vmtailor.fleet.model.addresses import LOOPBACK, Address
from vmtailor.fleet.run import certificates, worker_slots
from vmtailor.fleet.run.certificates import Certificates
from vmtailor.fleet.run.worker_slots import WorkerSlots

PROGRAM = (sys.executable, "-P", "-m", "vmtailor.fleet.run.scheduler")
#: Seconds within which a scheduler listens.
LISTENS_S = 60.0


@dataclass(frozen=True)
class LocalCluster:
    """The cluster's scheduler (by its address and its process), its certificates and its workers."""

    address: Address
    shown: Certificates
    slots: WorkerSlots
    scheduler_pid: int


@contextlib.contextmanager
def started(count: int, digest: str, program: Sequence[str] = worker_slots.PROGRAM) -> Iterator[LocalCluster]:
    """Start them, with so many slots, for as long as the block runs. `digest`: of the tools of this host."""
    with temporary.held_folder() as folder, contextlib.ExitStack() as held:
        shown = certificates.make(folder / "certificates", days=365)
        listens, log = folder / "address", folder / "scheduler.log"
        argv = [*PROGRAM, Address(LOOPBACK, 0).text, str(shown.folder), str(listens)]
        output = held.enter_context(log.open("wb"))
        scheduler = held.enter_context(process.spawn(argv, stdout=output, stderr=output))
        end = time.monotonic() + LISTENS_S
        while not listens.exists():
            if scheduler.poll() is not None or time.monotonic() > end:
                words = log.read_text("utf-8", "replace").strip().splitlines()
                raise HostError("the scheduler of this host does not start", details=plain(words[-1] if words else ""))
            time.sleep(0.05)
        address = addresses.parse(listens.read_text())
        slots = WorkerSlots(address, shown, folder, digest, program)
        yield LocalCluster(address, shown, held.enter_context(worker_slots.started(slots, count)), scheduler.pid)
