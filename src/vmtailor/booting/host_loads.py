# SPDX-License-Identifier: Apache-2.0
"""Loads that the machine's host drives, over the machine's network: the guest waits until they are done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vmtailor.base.errors import UserInputError
from vmtailor.drivers.guest import load_words
from vmtailor.drivers.guest.guest_text import parse_result
from vmtailor.drivers.host.host_client import free_port
from vmtailor.drivers.monitors.running_machine import RunningMachine
from vmtailor.model.boots.workload import NETWORK, Clients, Exercised
from vmtailor.model.exercise import Exercise
from vmtailor.model.guest import GuestReport
from vmtailor.model.load import LoadProtocol
from vmtailor.model.machine import LAB, Clock, Machine, PublishedPort

#: Names the guest's file with the record of loads.
_RECORD = "load"


@dataclass(frozen=True)
class HostLoad:
    """One load. `number`: of its step; `words`: for the client; `most_s`: host seconds that it may take."""

    number: int
    kind: str
    words: tuple[str, ...]
    most_s: float


def prepared(machine: Machine, work: Exercised, slowness: float) -> tuple[Machine, Exercised, tuple[HostLoad, ...]]:
    """Return the machine with its network, and the boot with the loads behind all other steps, as its host drives them;
    all as it was where the clients are inside. `slowness`: of the monitor. Raises UserInputError for a machine without
    a network, an exercise without loads or with loads of commands, and a clock that this host does not share."""
    exercise = work.run.exercise
    if work.clients is Clients.INSIDE or exercise is None:
        return machine, work, ()
    in_lab = machine.monitor.startswith(LAB)
    if not exercise.loads:
        raise UserInputError("the exercise has no load for the host to drive", hint="add a [[load]] of many requests")
    if any(step.load.protocol is LoadProtocol.COMMAND for step in exercise.loads if step.load is not None):
        raise UserInputError(
            "a load of commands starts them in the container, which its host cannot", hint="leave --clients out"
        )
    if not machine.network:
        raise UserInputError(
            "the machine has no network by which its host could ask", hint="fit an image that exposes a port"
        )
    if machine.clock is Clock.INSTRUCTIONS and not in_lab:
        raise UserInputError(
            "this host's clients do not share the guest's clock of instructions",
            hint="--lab starts the machine beside its clients on one clock",
        )
    exercise = exercise.loads_last()
    numbered = enumerate(exercise.loads, len(exercise.without_loads().guest_steps))
    ports = {step.port: free_port() for step in exercise.loads} if not in_lab else {}
    address = NETWORK.partition("/")[0] if in_lab else ""
    loads = tuple(
        HostLoad(
            number, step.kind, load_words.words(replace(step, port=ports.get(step.port, step.port)), number, address),
            slowness * step.load.limit_s,
        )
        for number, step in numbered
        if step.load is not None
    )  # fmt: skip
    published = tuple(PublishedPort("127.0.0.1", own, guest) for guest, own in ports.items())
    run = replace(work.run, exercise=exercise, network=NETWORK, hold=True)
    return replace(machine, ports=published), replace(work, run=run), loads


def guests(exercise: Exercise | None) -> Exercise | None:
    """Return what the guest itself does of an exercise."""
    return None if exercise is None else exercise.without_loads()


def driven(running: RunningMachine, loads: Sequence[HostLoad]) -> tuple[bytes, ...]:
    """Drive the loads, one after another, and return what the client said of each."""
    return tuple(running.load(place, load.words, load.most_s) for place, load in enumerate(loads))


def told(report: GuestReport, loads: Sequence[HostLoad], said: Sequence[bytes]) -> GuestReport:
    """Return a report with the results of the loads that the host drove."""
    texts, results = [], list(report.results)
    for load, text in zip(loads, said, strict=False):
        record, _, verdict = text.partition(b"\0")
        texts.append(record.decode("utf-8", "replace"))
        results.append(replace(parse_result(verdict), step=load.number, kind=load.kind))
    if not texts:
        return report
    files = tuple(file for file in report.files if file[0] != _RECORD)
    return replace(report, results=tuple(results), files=(*files, (_RECORD, "".join(texts))))
