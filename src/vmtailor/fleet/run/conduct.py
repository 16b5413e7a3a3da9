# SPDX-License-Identifier: Apache-2.0
"""Conducts a graph on an engine: each free slot that is able gets one task, and nothing waits at the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vmtailor.base.errors import HostError
from vmtailor.fleet.model.entry import FleetEntry
from vmtailor.fleet.model.orders import Order, RunOutcome, TaskAnswer
from vmtailor.fleet.run.dask_engine import Ended, SeenSlot
from vmtailor.fleet.run.graph import Graph, Task
from vmtailor.fleet.run.task_runner import Needed

#: Seconds that a fleet waits for a worker that is able to do something.
PATIENCE_S = 60.0
#: Seconds between two looks, where nothing ends.
TICK_S = 1.0


class Engine(Protocol):
    """Carries out the runs of tasks."""

    def slots(self, *, now: bool = False) -> tuple[SeenSlot, ...]: ...

    def begin(self, name: str, order: Order, worker: str, needed: Needed) -> None: ...

    def call_off(self, name: str) -> None: ...

    def ended(self, timeout_s: float) -> list[Ended]: ...


@dataclass(eq=False)
class Conductor:
    """`order`: makes a task's order. `needed`: gives what its worker needs. `lacks`: says why a slot is not able; empty
    for one that is. `changed`: called after each change, and every second; True: something ended. `answered`: gets
    each answer first, and returns what counts."""

    graph: Graph
    engine: Engine
    order: Callable[[Task], Order]
    needed: Callable[[FleetEntry], Needed] = lambda entry: Needed()
    lacks: Callable[[SeenSlot], str] = lambda slot: ""
    changed: Callable[[bool], None] = lambda ended: None
    answered: Callable[[Task, TaskAnswer], TaskAnswer] = lambda task, answer: answer
    clock: Callable[[], float] = time.monotonic
    _running: dict[str, Task] = field(default_factory=dict)

    def conduct(self) -> None:
        """Do all of the graph. Raises HostError where no worker is able, or the engine is gone. What runs then, or when
        it is interrupted, is called off."""
        alone_since = self.clock()
        try:
            while not self.graph.is_over:
                slots = self.engine.slots()
                able = [one for one in slots if not self.lacks(one)]
                self._fill(able)
                if able or self._running:
                    alone_since = self.clock()
                elif self.clock() - alone_since >= PATIENCE_S:
                    raise self._nobody(slots)
                ended = self.engine.ended(TICK_S)
                for one in ended:
                    if (task := self._running.pop(one.name, None)) is not None:
                        self.graph.ended(task, self.answered(task, one.answer))
                self._drop()
                self.changed(bool(ended))
        finally:
            for name in self._running:
                self.engine.call_off(name)

    def _fill(self, able: Sequence[SeenSlot]) -> None:
        """Give each free slot one task."""
        busy = {task.worker for task in self._running.values()}
        addresses = {one.name: one.address for one in able}
        for worker, address in addresses.items():
            if worker in busy:
                continue
            task = self.graph.next_for(worker, addresses.keys(), self.clock())
            if task is None:
                continue
            self._running[task.name] = task
            self.engine.begin(task.name, self.order(task), address, self.needed(task.works[0].entry))

    def _drop(self) -> None:
        """Call off what nobody waits for any more."""
        for name, task in list(self._running.items()):
            if not task.works:
                self.engine.call_off(name)
                del self._running[name]
                self.graph.ended(task, TaskAnswer(RunOutcome.NEVER))

    def _nobody(self, slots: Sequence[SeenSlot]) -> HostError:
        waiting = len(self.graph.waiting)
        if not slots:
            return HostError(
                f"no worker has come within {PATIENCE_S:.0f} s, and {waiting} tasks wait",
                hint="vmtailor fleet worker ADDRESS starts one; then give the same command again",
            )
        lacks = "; ".join(dict.fromkeys(f"{one.name}: {self.lacks(one)}" for one in slots))
        return HostError(
            f"no worker is able to do what waits: {lacks[:600]}", hint="install the same tools, and start them again"
        )
