# SPDX-License-Identifier: Apache-2.0
"""Loads that the machine's host drives: what the guest is told, what the client is told, and what comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vmtailor.analysis.cost import request_costs
from vmtailor.analysis.guests import load_records
from vmtailor.base.errors import UserInputError
from vmtailor.booting import host_loads
from vmtailor.drivers.lab.lab_monitor import read_console
from vmtailor.model.boots.boot import Boot, ContainerRun, Outcome
from vmtailor.model.boots.exits import MonitorCost, MonitorPart
from vmtailor.model.boots.load_result import LoadResult, LoadStage
from vmtailor.model.boots.workload import Clients, Exercised, Run
from vmtailor.model.exercise import Exercise, Ready, ReadyKind, Step, StepKind
from vmtailor.model.guest import GuestReport, StepResult
from vmtailor.model.load import Load, LoadPage, LoadProtocol
from vmtailor.model.machine import Clock, Machine

PEAK = Step(StepKind.PEAK, port=80, load=Load(pages=(LoadPage(),), sessions=20, at_once=2))
COMMANDS = replace(PEAK, load=Load(pages=(LoadPage(),), protocol=LoadProtocol.COMMAND, sessions=2))
PAGE = Step(StepKind.HTTP, port=80)
EXERCISE = Exercise(ready=Ready(ReadyKind.TCP, Step(StepKind.TCP, port=80)), load=(PEAK, PAGE), origin="file")
WORK = Exercised(Run(exercise=EXERCISE), timeout_s=60.0, clients=Clients.HOST)
IN_LAB = Machine(
    board="microvm", memory_bytes=256 << 20, kernel="/b/vmlinux", network=True, monitor="lab/qemu",
    clock=Clock.INSTRUCTIONS, architecture="x86_64",
)  # fmt: skip
HERE = replace(IN_LAB, monitor="qemu", clock=Clock.WALL)
#: What the client says of one load: its record, and its verdict behind a NUL.
SAID = b"load 1\nstage rate=0 asked=20 right=20 took-ns=1000\nlatency 700:20\nend\n\0done=20\0right=20\0same=1\0"


def test_clients_inside_change_nothing() -> None:
    inside = replace(WORK, clients=Clients.INSIDE)
    assert host_loads.prepared(IN_LAB, inside, 1.0) == (IN_LAB, inside, ())


def test_the_lab_asks_the_guests_own_address() -> None:
    machine, work, (load,) = host_loads.prepared(IN_LAB, WORK, 8.0)
    assert {"address=10.0.2.15", "port=80", "step=1"} <= set(load.words) and not machine.ports
    assert load.most_s == 8 * 600
    assert work.run.hold and work.run.network and work.run.network.startswith("10.0.2.15/")
    assert work.run.exercise is not None and work.run.exercise.load == (PAGE, PEAK)


def test_this_host_asks_a_published_port_of_its_own() -> None:
    machine, _, (load,) = host_loads.prepared(HERE, WORK, 1.0)
    (port,) = machine.ports
    assert port.guest_port == 80 and f"port={port.host_port}" in load.words
    assert not any(word.startswith("address=") for word in load.words)


def test_the_guest_does_the_rest_of_the_exercise() -> None:
    assert host_loads.guests(EXERCISE) == replace(EXERCISE, load=(PAGE,))


@pytest.mark.parametrize(
    ("machine", "exercise", "refused"),
    [
        (replace(IN_LAB, network=False), EXERCISE, "no network"),
        (IN_LAB, replace(EXERCISE, load=(PAGE,)), "no load for the host"),
        (IN_LAB, replace(EXERCISE, load=(COMMANDS,)), "starts them in the container"),
        (replace(HERE, clock=Clock.INSTRUCTIONS), EXERCISE, "do not share the guest's clock"),
    ],
)
def test_what_the_host_cannot_drive_is_refused(machine: Machine, exercise: Exercise, refused: str) -> None:
    with pytest.raises(UserInputError, match=refused):
        host_loads.prepared(machine, replace(WORK, run=Run(exercise=exercise)), 1.0)


def test_what_the_client_says_is_the_loads_result() -> None:
    _, work, loads = host_loads.prepared(IN_LAB, WORK, 1.0)
    before = GuestReport(results=(StepResult(0, "http", 1, 1, True, 5),), files=(("load", "old"), ("memory", "m")))
    report = host_loads.told(before, loads, (SAID,))
    assert [(one.step, one.right) for one in report.results] == [(0, 1), (1, 20)]
    assert report.file("memory") == "m"
    (load,) = load_records.of_exercise(report.file("load"), work.run.exercise)
    assert load.asked == 20 and load.whole and load.title.startswith("peak of GET /")
    assert host_loads.told(before, loads, ()) == before


def test_the_lab_tells_its_clients_lines() -> None:
    lines = [*SAID.partition(b"\0")[0].decode().split("\n"), *SAID.partition(b"\0")[2].decode().split("\0")[:-1]]
    text = "".join(f"vmtailor-lab load: {line}\r\n" for line in lines)
    under_way = read_console(text)
    assert not under_way.loads and under_way.load == tuple(lines)
    assert read_console(f"{text}vmtailor-lab load-end\r\nvmtailor-lab load: second\r\n").loads == (tuple(lines),)


def test_a_request_from_the_lab_is_split_by_who_executed_it() -> None:
    part = MonitorPart("load_asks", "load_asked", 100, 200, 400, 800, 40)
    done = ContainerRun(exit_code=0, answers_right=True, loads=(LoadResult(0, (LoadStage(None, 20, 20),)),))
    boot = Boot(Outcome.READY, (), 1.0, monitor=MonitorCost((part,)), container=done)
    assert request_costs.from_host(boot) == request_costs.HostRequestCost(20, 40, 10, 5, 2, 20)
    assert request_costs.from_host(replace(boot, monitor=None)) is None
