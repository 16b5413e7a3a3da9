# SPDX-License-Identifier: Apache-2.0
"""A slot of a fleet's worker whose tasks are made up: run as a program in the slot's place, and as its task's.

The name of an entry says what its tasks do: `slow-…` takes half a second a part, `kill-…` kills its worker in `trace`,
`die-…` kills itself there, `never-…` does not end, `spare-…` says so of all parts between the first and the last."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from vmtailor.base.files import records
from vmtailor.fleet.model.orders import Answer, Order, Outcome
from vmtailor.fleet.run import worker_slot
from vmtailor.fleet.run.task import Given
from vmtailor.pipeline.fit_parts import Part

TASK = "task"


def answer_of(order: Order) -> Answer:
    """Do what the name says."""
    name, part = order.entry.name, order.part
    if part is Part.TRACE and name.startswith("kill-"):
        os.kill(os.getppid(), signal.SIGKILL)
    if part is Part.TRACE and name.startswith("die-"):
        sys.stderr.write("its last words\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)
    if name.startswith("never-"):
        time.sleep(3600)
    if name.startswith("slow-"):
        time.sleep(0.5)
    if part is Part.PREPARE:
        spare = tuple(set(Part) - {Part.PREPARE, Part.SEAL}) if name.startswith("spare-") else ()
        return Answer(Outcome.DONE, ((Part.TRACE, f"t-{name}"),), spare)
    if part is Part.PLAN:
        return Answer(Outcome.DONE, ((Part.KERNEL, f"k-{name[-1]}"),))
    return Answer(Outcome.DONE, verified=True if part is Part.SEAL else None)


def main() -> None:
    """Serve as a slot, or do one task."""
    if sys.argv[1] == TASK:
        given = msgspec.json.decode(sys.stdin.buffer.read(), type=Given)
        answer = answer_of(records.from_bytes(Order, given.order))
        sys.stderr.write(given.credentials)
        records.save(answer, Path(sys.argv[2]), private=True)
        return
    worker_slot.task_program = (sys.executable, __file__, TASK)
    worker_slot.main()


if __name__ == "__main__":
    main()
