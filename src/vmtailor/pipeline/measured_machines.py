# SPDX-License-Identifier: Apache-2.0
"""Measurements of machines, each made once for the same bytes. Counted boots run beside each other and beside other
work, which changes no instruction; boots on the wall clock have the host for themselves."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.concurrency import Beside
from vmtailor.base.files import records, temporary
from vmtailor.base.progress import step
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.boot_cost import MemoryUse
from vmtailor.stages import measure
from vmtailor.stages.measure import Counted, MeasuredMachine, Timed, Usual

#: Kinds of the cache.
COUNTED, TIMED = "counted", "timed"
_RECORDS = {COUNTED: "counted.json", TIMED: "timed.json"}


@dataclass(frozen=True)
class MeasureRequest:
    """A request to measure a machine. `key`: everything that its boots depend on. `boots`: their number on either
    clock. `subject`: gives the machine and its workload, with its files in a folder that exists while it is booted.
    `known`: an earlier counted boot of exactly this machine. `beside`: the machine it is compared with, whose processor
    time bounds the search for the least memory. (Its key names that one.)"""

    title: str
    key: str
    boots: int
    store: Store
    scratch: Path
    subject: Callable[[Path], MeasuredMachine]
    known: Boot | None = None
    beside: MeasureRequest | None = None


@dataclass(frozen=True)
class Measured:
    """All boots of one machine, as `stages.measure` records them."""

    exact: tuple[Boot, ...]
    wall: tuple[Boot, ...]
    initcalls: tuple[tuple[str, int], ...]
    min_memory_bytes: int
    memory: MemoryUse | None


def _nobody() -> None:
    """Return None: this machine is compared to no other."""


def counted(
    asked: MeasureRequest,
    beside: Callable[[], Usual | None] = _nobody,
    on_usual: Callable[[Usual], None] = lambda usual: None,
) -> Counted:
    """Return a machine's boots on the instruction clock, from the cache if nothing that they depend on has changed.
    `beside`: gives the time of the machine that it is compared with. `on_usual`: called with the time of this one
    (stages/measure.py)."""

    def fill(folder: Path) -> None:
        with step(f"measure: {asked.title}") as progress, temporary.held_folder(asked.scratch) as scratch:
            record = measure.counted(
                asked.subject(scratch), asked.boots, folder, scratch, lambda note: progress.update(0, None, note),
                known=asked.known, beside=beside, on_usual=on_usual,
            )  # fmt: skip
        records.save(record, folder / _RECORDS[COUNTED])

    return records.load(Counted, asked.store.get(COUNTED, asked.key, fill) / _RECORDS[COUNTED])


def timed(asked: MeasureRequest) -> Timed:
    """Return a machine's boots on the wall clock, from the cache if possible. Nothing of ours may run beside them."""

    def fill(folder: Path) -> None:
        title = f"measure on the wall clock: {asked.title}"
        with step(title) as progress, temporary.held_folder(asked.scratch) as scratch:
            record = measure.timed(
                asked.subject(scratch), asked.boots, scratch, lambda note: progress.update(0, None, note)
            )
        records.save(record, folder / _RECORDS[TIMED])

    return records.load(Timed, asked.store.get(TIMED, asked.key, fill) / _RECORDS[TIMED])


class _Told:
    """The facts of a machine that another one waits for: the length of its boot as soon as it is known, and all of it
    once the machine has been counted."""

    def __init__(self) -> None:
        self._there = threading.Event()
        self._latest: Usual | None = None

    def tell(self, usual: Usual | None) -> None:
        self._latest = usual
        self._there.set()

    def known(self) -> Usual | None:
        """Wait for the facts, and return the latest; None when there are none."""
        self._there.wait()
        return self._latest


class Ahead:
    """Machines that are counted before their figures are asked for. Those that wait for no other go first: they get a
    smaller share of the processors than other work."""

    def __init__(self) -> None:
        self._context = copy_context()  # what stops the work around stops them, whoever begins one
        self._begun: dict[str, Beside[Counted]] = {}
        self._told: dict[str, _Told] = {}

    def begin(self, asked: MeasureRequest) -> None:
        """Begin to count a machine, unless it has begun, and before it the machine that it is compared with."""
        if asked.key in self._begun:
            return
        if asked.beside is not None:
            self.begin(asked.beside)
        beside = self._told[asked.beside.key].known if asked.beside is not None else _nobody
        told = self._told[asked.key] = _Told()
        self._begun[asked.key] = self._context.copy().run(Beside, lambda: _telling(asked, beside, told))

    def counted(self, asked: MeasureRequest) -> Counted:
        """Wait for the boots of a machine, and return them. Raises their errors."""
        self.begin(asked)
        return self._begun[asked.key].wait()

    def keep_only(self, *keys: str) -> None:
        """Stop the counting of all other machines."""
        for key in self._begun.keys() - set(keys):
            self._begun.pop(key).stop()


@contextlib.contextmanager
def ahead() -> Iterator[Ahead]:
    """Count machines beside the work in the block; those that have not ended after it are given up."""
    begun = Ahead()
    try:
        yield begun
    finally:
        begun.keep_only()


#: Added to the nice value of boots that nobody waits for yet: about a third of a processor beside one who has it.
_YIELDS = 5


def _telling(asked: MeasureRequest, beside: Callable[[], Usual | None], told: _Told) -> Counted:
    """`counted`, in a thread of its own, whose programs leave the processors to others."""
    own = threading.get_native_id()
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + _YIELDS)
    found = None
    try:
        found = counted(asked, beside, told.tell)
        return found
    finally:
        told.tell(found.usual if found is not None else None)


def measured(asked: MeasureRequest, begun: Ahead | None = None) -> Measured:
    """Return one machine measured on both clocks. `begun`: machines that may already be being counted."""
    return _joined(counted(asked) if begun is None else begun.counted(asked), asked)


def both(first: MeasureRequest, second: MeasureRequest, begun: Ahead | None = None) -> tuple[Measured, Measured]:
    """Return both machines measured on both clocks. `begun`: machines that may already be being counted."""
    if begun is None:
        with ahead() as own:
            return both(first, second, own)
    begun.begin(first)
    other, one = begun.counted(second), begun.counted(first)
    return _joined(one, first), _joined(other, second)


def is_measured(asked: MeasureRequest) -> bool:
    """Return whether the cache has a machine's boots."""
    return all(asked.store.bring(kind, asked.key) for kind in _RECORDS)


def _joined(found: Counted, asked: MeasureRequest) -> Measured:
    return Measured(
        exact=found.exact,
        wall=timed(asked).wall,
        initcalls=found.initcalls,
        min_memory_bytes=found.min_memory_bytes,
        memory=found.memory,
    )
