# SPDX-License-Identifier: Apache-2.0
"""The cluster that `--on` names: this host with so many slots, or a scheduler elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.base.text import is_number
from vmtailor.fleet.model import addresses
from vmtailor.fleet.model.addresses import Address
from vmtailor.fleet.run import certificates, dask_engine, local_cluster
from vmtailor.fleet.run.dask_engine import DaskEngine, SeenSlot
from vmtailor.fleet.run.local_cluster import LocalCluster
from vmtailor.model.host_fingerprint import Fingerprint

#: The cluster of a command that names none.
USUAL = "local:1"
#: Slots of this host, at most.
MOST_SLOTS = 256
_HINT = "--on local:N, or --on tls://HOST:PORT --certificates DIR"
#: The name under which a client tells its tools; workers tell theirs by the digest.
TOOLS = "tools"


@dataclass(frozen=True)
class ClusterPlace:
    """`slots`: of this host; 0 where there is a scheduler at an address."""

    slots: int = 0
    address: Address | None = None


def parse(text: str) -> ClusterPlace:
    """Return the place that a word names. Raises UserInputError."""
    kind, _, count = text.partition(":")
    if kind == "local":
        if not is_number(count) or not 1 <= int(count[:9]) <= MOST_SLOTS:
            raise UserInputError(f"{text[:100]!r} is not a number of slots of this host", hint=_HINT)
        return ClusterPlace(int(count))
    return ClusterPlace(0, addresses.parse(text))


@dataclass(frozen=True)
class Cluster:
    """A cluster that was reached. `local`: where its processes are ours."""

    engine: DaskEngine
    tools: Fingerprint
    local: LocalCluster | None = None

    def slots(self) -> tuple[SeenSlot, ...]:
        """Return the slots that are there, having started again those of ours that died."""
        return self.engine.slots()

    def lacks(self, slot: SeenSlot) -> str:
        """Return why a slot is not able to work for us; empty for one that is."""
        if slot.digest == self.tools.digest[: len(slot.digest)] and slot.digest:
            return ""
        told = self.engine.told(slot.digest)
        if told is None:
            return "it has other tools"
        other = records.from_bytes(Fingerprint, told, "what a worker told")
        return "; ".join(self.tools.differences(other)[:3]) or "it has other tools"


@contextlib.contextmanager
def reached(place: ClusterPlace, folder: Path | None, tools: Fingerprint) -> Iterator[Cluster]:
    """Reach a cluster, or start one on this host, for as long as the block runs. Raises UserInputError without
    certificates for one elsewhere, HostError where it cannot be reached."""
    with contextlib.ExitStack() as held:
        if place.address is None:
            if folder is not None:
                raise UserInputError("--on local:N makes its own certificates", hint="leave --certificates out")
            local = held.enter_context(local_cluster.started(place.slots, tools.digest))
            engine = held.enter_context(dask_engine.connected(local.address, local.shown))
            yield Cluster(engine, tools, local)
            return
        if folder is None:
            raise UserInputError(f"{place.address.text} needs --certificates", hint=_HINT)
        engine = held.enter_context(dask_engine.connected(place.address, certificates.found(folder)))
        engine.tell(TOOLS, records.to_bytes(tools))
        yield Cluster(engine, tools)
