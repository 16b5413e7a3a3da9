# SPDX-License-Identifier: Apache-2.0
"""The verdict on a container: each kind of failure alone fails it, and nothing else does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.boot_data import GATHERED
from tests.fakes.bundle_data import trace_record

from vmtailor.analysis.demands import strace_log
from vmtailor.analysis.guests import boots
from vmtailor.drivers.host import host_client
from vmtailor.model.boots.boot import Boot, ContainerRun
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.workload import Exercised
from vmtailor.model.exercise import Exercise, Ready, ReadyKind, Step, StepKind
from vmtailor.model.guest import READY_STEP, GuestNote, GuestReport, StepResult
from vmtailor.model.image import ImageConfig, Port
from vmtailor.model.machine import Clock, Machine
from vmtailor.stages import verify
from vmtailor.stages.verify import Target

EXERCISE = Exercise(
    "x", Ready(ReadyKind.TCP, Step(StepKind.TCP, port=80)),
    (Step(StepKind.HTTP, port=80), Step(StepKind.COMMAND, argv=("app", "check"))),
)  # fmt: skip
ANSWERS = tuple(StepResult(step, "http", 1, 1, True, 1000) for step in (READY_STEP, 0, 1))
FINE = GuestReport(exit_code=0, results=ANSWERS, files=(("kernel-log", "<4>[    1.000000] a known complaint\n"),))
CALLS = b"100 1000.000001 epoll_create1(0) = 3 <0.000002>\n"
DENIED = b"100 1000.000001 epoll_create1(0) = -1 ENOSYS (Function not implemented) <0.000002>\n"
TRACE = trace_record(requests_report=FINE, kernel_warnings=("a known complaint",))
MACHINE = Machine("microvm", 64 << 20, "k")
TARGET = Target(MACHINE, ImageConfig("amd64", exposed_ports=(Port(80), Port(81))), EXERCISE, Path("/tools"), True)


@dataclass
class Bench:
    """Boots that leave what the test says; what was asked for, and what a client on the host would say."""

    left: list[GuestReport] = field(default_factory=lambda: [FINE, FINE])
    requests: bytes = CALLS
    answers: list[str] = field(default_factory=list)
    booted: list[tuple[Machine, Exercised]] = field(default_factory=list)
    asked: list[dict[int, int]] = field(default_factory=list)

    def boot(self, machine: Machine, work: Exercised, _scratch: Path) -> tuple[Boot, Gathered]:
        report = self.left[len(self.booted)]
        self.booted.append((machine, work))
        if work.at_load is not None:
            work.at_load()
        gathered = replace(GATHERED, report=report, requests=self.requests if work.tools else b"")
        return boots.make_boot(gathered, work.run.exercise), gathered

    def wrong_answers(self, _exercise: Exercise, where: Mapping[int, int], _listening: Sequence[int]) -> list[str]:
        self.asked.append(dict(where))
        return self.answers


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    found = Bench()
    monkeypatch.setattr(verify, "boot", found.boot)
    monkeypatch.setattr(host_client, "wrong_answers", found.wrong_answers)
    return found


def verified(target: Target = TARGET) -> Any:
    return verify.verify(target, TRACE, strace_log.parse(CALLS).events, Path("/scratch"))


def test_where_nothing_fails_it_passes_after_two_boots(bench: Bench) -> None:
    found = verified()
    assert found.passed and found.evidence == "" and found.complaints == () == found.degraded
    (seen, first), (used, second) = bench.booted
    assert seen == MACHINE and first.tools == Path("/tools") and first.at_load is None
    # As it will be used: on the host's clock, nothing of ours in it, and what is asked from outside is published.
    assert used.clock is Clock.WALL and second.tools is None and second.run.hold
    assert [port.guest_port for port in used.ports] == [80] == [*bench.asked[0]]


@pytest.mark.parametrize(
    ("changes", "said", "boots_asked"),
    [
        ({"left": [replace(FINE, exit_code=3)]}, "the exit code is 3, on the baseline 0", 1),
        (
            {"left": [replace(FINE, files=(("kernel-log", "<3>[    1.000000] BUG: it is lost\n"),))]},
            "the kernel complains: BUG: it is lost",
            1,
        ),
        ({"left": [replace(FINE, console="Oops: gone\n")]}, "the kernel complains: Oops: gone", 1),
        ({"left": [replace(FINE, results=ANSWERS[:2])]}, "load step 2 (app check) was not done", 1),
        ({"requests": DENIED}, "epoll_create1() newly fails with ENOSYS", 1),
        ({"left": [FINE, replace(FINE, results=ANSWERS[:2])]}, "load step 2 (app check) was not done", 2),
        ({"answers": ["from the host, GET :80/: status 500"]}, "from the host, GET :80/: status 500", 2),
    ],
)
def test_each_kind_of_failure_alone_fails_it(
    bench: Bench, changes: dict[str, Any], said: str, boots_asked: int
) -> None:
    for name, value in changes.items():
        setattr(bench, name, value)
    found = verified()
    assert not found.passed and found.failures == (said,) and said in found.evidence
    assert len(bench.booted) == boots_asked


def test_what_the_baseline_prints_otherwise_each_time_is_not_compared(bench: Bench) -> None:
    printed = {name: f"{clock} {name}: pid {pid}\nready\n" for name, clock, pid in (
        ("app", "00:00:02", 41), ("other", "00:00:01", 17),
    )}  # fmt: skip
    again = printed["app"].replace("00:00:02", "01:01:04").replace("41", "42")
    ended = GuestReport(exit_code=0, stdout=printed["app"])
    counted = replace(trace_record().coverage_boot, container=ContainerRun(0, None, 0, again, ""))
    traced = trace_record(requests_report=ended, coverage_boot=counted)
    target = replace(TARGET, exercise=Exercise("x", Ready(ReadyKind.EXIT)), network=False)

    def judged(stdout: str) -> Any:
        bench.booted.clear()
        bench.left = [replace(ended, stdout=stdout)] * 2
        return verify.verify(target, traced, strace_log.parse(CALLS).events, Path("/scratch"))

    found = judged(printed["other"].replace("other", "app"))
    assert found.passed
    assert found.varying == ("*:*:* app: pid *",)
    traced = replace(traced, coverage_boot=replace(counted, container=ContainerRun()))
    assert not judged(printed["other"].replace("other", "app")).passed
    traced = replace(traced, coverage_boot=counted)
    (said,) = judged(printed["other"]).failures
    assert said.startswith(
        "the output differs from the baseline's: line 1 is '00:00:01 other: pid 17', on the baseline '"
    )


def test_what_init_itself_asked_for_is_named(bench: Bench) -> None:
    bench.left = [replace(FINE, fatal=GuestNote("TMPFS", "mount: no such device"))]
    found = verified()
    assert not found.passed and found.needs == ("TMPFS",)


def test_a_machine_without_a_network_is_asked_nothing_from_outside(bench: Bench) -> None:
    bench.answers = ["nobody should have asked"]
    found = verified(replace(TARGET, network=False))
    (_, (used, second)) = bench.booted
    assert found.passed and used.clock is Clock.WALL and used.ports == () and second.at_load is None
    bench.booted.clear()
    bench.left = [FINE, replace(FINE, results=ANSWERS[:2])]
    assert verified(replace(TARGET, network=False)).failures == ("load step 2 (app check) was not done",)
