# SPDX-License-Identifier: Apache-2.0
"""`vmtailor fleet worker`: the slots of this host. What it lacks is said before the engine knows of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

from vmtailor.base import output
from vmtailor.base.errors import HostError
from vmtailor.base.files import records, temporary
from vmtailor.base.text import plural
from vmtailor.drivers.host import host
from vmtailor.drivers.host.fingerprint import fingerprint
from vmtailor.fleet.model import addresses
from vmtailor.fleet.run import certificates, clusters, dask_engine, worker_slots, worker_values
from vmtailor.fleet.run.worker_slots import WorkerSlots
from vmtailor.model.checks import HostPurpose
from vmtailor.model.host_fingerprint import Fingerprint

#: Seconds between two looks at the slots.
_LOOK_S = 0.5
#: Lacks that a refusal names.
_MOST = 3


def work(address: str, folder: Path, slots: int, secrets: Path | None = None) -> None:
    """Do tasks of a scheduler until this process is ended. Raises HostError for what `doctor` finds missing, for tools
    that are not the client's, and where no scheduler answers. `secrets`: the folder of values that lists only name."""
    if secrets is not None:
        os.environ[worker_values.FOLDER] = str(worker_values.required(secrets))
    to, shown = addresses.parse(address), certificates.found(folder)
    _require_able()
    tools = fingerprint()
    with dask_engine.connected(to, shown) as engine:
        told = engine.told(clusters.TOOLS)
        if told is not None:
            _require_same(tools, records.from_bytes(Fingerprint, told, "the client's tools"))
        engine.tell(tools.digest[:16], records.to_bytes(tools))
    with temporary.held_folder() as place:
        kept = WorkerSlots(to, shown, place, tools.digest)
        with worker_slots.started(kept, slots):
            output.note(f"{plural(slots, 'slot')} of {worker_slots.host_name()} at {to.text}")
            while True:
                kept.keep()
                time.sleep(_LOOK_S)


def _require_able() -> None:
    blocked = [check for check in host.check_all(HostPurpose.FIT) if check.blocks]
    if blocked:
        names = ", ".join(check.name for check in blocked[:_MOST])
        raise HostError(f"this host cannot fit images: {names}", hint="vmtailor doctor says what to install")


def _require_same(own: Fingerprint, theirs: Fingerprint) -> None:
    differences = own.differences(theirs)
    if differences:
        more = f" and {len(differences) - _MOST} more" if len(differences) > _MOST else ""
        raise HostError(
            f"this host's tools are not the client's: {'; '.join(differences[:_MOST])}{more}",
            hint="install the same versions on both",
        )
