# SPDX-License-Identifier: Apache-2.0
"""Dask as the engine: one task at a time on each slot, which we choose. Its scheduler passes orders and answers on, and
tells who is there."""

from __future__ import annotations

import contextlib
import queue
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vmtailor.base.errors import HostError
from vmtailor.base.files import records
from vmtailor.fleet.model.addresses import Address
from vmtailor.fleet.model.orders import Order, RunOutcome, TaskAnswer
from vmtailor.fleet.run import engine_settings, worker_slot
from vmtailor.fleet.run.certificates import Certificates
from vmtailor.fleet.run.task_runner import Needed
from vmtailor.fleet.run.worker_slots import DIGEST_MARK, STARTS_MARK

#: Seconds within which a scheduler answers, and that it may be out of reach.
REACHED_S, GONE_S = 15.0, 20.0
#: Seconds between two looks at who is there.
LOOK_S = 2.0


@dataclass(frozen=True)
class Ended:
    """A run that ended. `name`: of the run."""

    name: str
    answer: TaskAnswer


@dataclass(frozen=True)
class SeenSlot:
    """A slot that is there. `name`: the same after it was started again; `digest`: of its host's tools."""

    address: str
    name: str
    digest: str


@dataclass(eq=False)
class DaskEngine:
    """The engine behind a scheduler. `client`: the library's. `work`: does an order on a worker."""

    client: Any
    address: Address
    work: Callable[..., Any] = worker_slot.carry_out
    _futures: dict[str, Any] = field(default_factory=dict)
    _workers: dict[str, str] = field(default_factory=dict)
    _answers: dict[str, bytes] = field(default_factory=dict)
    _ended: queue.SimpleQueue[str] = field(default_factory=queue.SimpleQueue)
    _seen: tuple[SeenSlot, ...] = ()
    _looked: float = 0.0
    _answered: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        """Listen to what comes of runs."""
        self.client.subscribe_topic(worker_slot.ANSWERS, self._hear)

    def _hear(self, event: tuple[float, tuple[str, bytes]]) -> None:
        name, answer = event[1]
        if name in self._futures:
            self._answers[name] = answer

    def slots(self, *, now: bool = False) -> tuple[SeenSlot, ...]:
        """Return the slots that are there; asked for every two seconds, or `now`. Raises HostError where the scheduler
        is gone."""
        if now or time.monotonic() - self._looked >= LOOK_S:
            self._look()
        return self._seen

    def _look(self) -> None:
        self._looked = time.monotonic()
        try:
            found = self.client.sync(self.client.scheduler.identity, n_workers=-1)["workers"]
        except Exception as error:  # whatever the library raises for a line that broke
            if time.monotonic() - self._answered > GONE_S:
                raise HostError(
                    f"the scheduler at {self.address.text} is gone",
                    hint="start it again, then give the same command: finished work is found in the caches",
                ) from error
            return
        self._answered = time.monotonic()
        self._seen = tuple(_seen(address, one) for address, one in found.items())

    def begin(self, name: str, order: Order, worker: str, needed: Needed) -> None:
        """Order a run of a worker, by its address."""
        self._answers.pop(name, None)
        future: Any = self.client.submit(
            self.work, name, records.to_bytes(order), needed,
            key=name, workers=[worker], allow_other_workers=False, retries=0, pure=False,
        )  # fmt: skip
        self._futures[name], self._workers[name] = future, worker
        future.add_done_callback(lambda _: self._ended.put(name))

    def call_off(self, name: str) -> None:
        """Let a run end, whose answer nobody wants."""
        if (future := self._futures.pop(name, None)) is not None:
            self._workers.pop(name, None)
            future.cancel()

    def ended(self, timeout_s: float) -> list[Ended]:
        """Return the runs that have ended, waiting so long for one; those whose worker left before they began, too."""
        names: list[str] = []
        with contextlib.suppress(queue.Empty):
            names.append(self._ended.get(timeout=timeout_s))
            while True:
                names.append(self._ended.get_nowait())
        found = [Ended(name, self._answer(name, self._futures.pop(name))) for name in names if name in self._futures]
        there = {one.address for one in self.slots()}
        if time.monotonic() - self._looked < LOOK_S / 2:  # who is there is known as of now
            for name, worker in list(self._workers.items()):
                if worker not in there and name in self._futures and self._futures[name].status == "pending":
                    self.call_off(name)
                    found.append(Ended(name, TaskAnswer(RunOutcome.NEVER, says="its worker left")))
        for one in found:
            self._workers.pop(one.name, None)
        return found

    def _answer(self, name: str, future: Any) -> TaskAnswer:
        from distributed.scheduler import KilledWorker

        try:
            if future.status == "finished":
                return records.from_bytes(TaskAnswer, self._answers.pop(name), "the answer")
            if future.status == "cancelled":
                return TaskAnswer(RunOutcome.NEVER, says="it was called off")
            error = future.exception(timeout=REACHED_S)
        except Exception as failure:
            error = failure
        if isinstance(error, KilledWorker):
            return TaskAnswer(RunOutcome.DIED, says="its worker died")
        return TaskAnswer(RunOutcome.HOST, says=f"the engine could not run it: {type(error).__name__}")

    def told(self, name: str) -> bytes | None:
        """Return what somebody has told under a name; None for nothing."""
        found = self.client.get_metadata(["vmtailor", name], None)
        return found if isinstance(found, bytes) else None

    def tell(self, name: str, said: bytes) -> None:
        """Tell everybody something under a name."""
        self.client.set_metadata(["vmtailor", name], said)


def _seen(address: str, known: Mapping[str, Any]) -> SeenSlot:
    name, _, digest = str(known.get("name", address)).partition(DIGEST_MARK)
    return SeenSlot(address, name.rpartition(STARTS_MARK)[0] or name, digest)


@contextlib.contextmanager
def connected(address: Address, shown: Certificates) -> Iterator[DaskEngine]:
    """Reach a scheduler for as long as the block runs. Raises HostError: nobody answers there, or with other
    certificates."""
    engine_settings.apply()
    from distributed import Client

    try:
        client = Client(
            address.text, security=shown.security(), timeout=REACHED_S, set_as_default=False, name="vmtailor"
        )
    except Exception as error:
        raise _not_reached(address, error) from error
    try:
        yield DaskEngine(client, address)
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=5)


def _not_reached(address: Address, error: Exception) -> HostError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return HostError(
                f"{address.text} has other certificates than ours", hint="--certificates names the folder of that fleet"
            )
        cause = cause.__cause__ or cause.__context__
    return HostError(
        f"no scheduler answers at {address.text}", hint="vmtailor fleet scheduler starts one; check its address"
    )
