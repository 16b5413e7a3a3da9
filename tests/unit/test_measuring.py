# SPDX-License-Identifier: Apache-2.0
"""Figures from boots: the least memory, subsystems, one side of the table, what of a log is the container's."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.cost import side_figures
from vmtailor.analysis.cost.loops import LoopNames
from vmtailor.analysis.cost.side_figures import TO_INIT, KernelFacts, loops_of, make_side, spread
from vmtailor.analysis.cost.waterfall import folder_of
from vmtailor.analysis.demands import container_calls
from vmtailor.base.errors import HostError, NotStarted
from vmtailor.model.boots.boot import Boot, ContainerRun, FunctionCost, Milestone, Outcome, Phase, PhaseCounts
from vmtailor.model.boots.system_exercise import SystemExercise, SystemReady, SystemReadyKind
from vmtailor.model.boots.workload import BUSY_TIMES, FIXED_KEY, NETWORK, STILL_S, Attended, Exercised, Until
from vmtailor.model.exercise import Exercise, Ready, ReadyKind
from vmtailor.model.guest import GuestMark, GuestReport
from vmtailor.model.machine import Clock, Machine
from vmtailor.stages import measure
from vmtailor.stages.measure import MEMORY_STEP, least_memory

MIB = 1 << 20


LEAST_MEMORY = 16 * MIB


@given(st.integers(LEAST_MEMORY // MIB, 4096), st.integers(0, 4096))
def test_the_least_memory_is_found_for_any_threshold(needed: int, more: int) -> None:
    """To one step, and to a sixteenth of large sizes."""
    known = needed + more
    tried: list[int] = []

    def passes(size: int) -> bool:
        tried.append(size)
        return size >= needed * MIB

    found = least_memory(known * MIB, LEAST_MEMORY, passes)
    assert needed * MIB <= found < (needed + max(1, needed // 16)) * MIB
    assert found == known * MIB or found in tried  # it was seen to pass
    assert len(tried) == len(set(tried)) and len(tried) <= 14
    assert all(size % MEMORY_STEP == 0 and LEAST_MEMORY <= size < known * MIB for size in tried)


@given(st.integers(LEAST_MEMORY // MIB, 4096), st.integers(0, 4096), st.integers(0, 8192))
def test_a_guess_changes_how_many_sizes_are_tried_and_not_what_is_found(needed: int, more: int, guess: int) -> None:
    known = (needed + more) * MIB
    tried: list[int] = []

    def passes(size: int) -> bool:
        tried.append(size)
        return size >= needed * MIB

    plain = least_memory(known, LEAST_MEMORY, passes)
    most = len(measure._sizes(LEAST_MEMORY // MIB - 1, known // MIB)).bit_length()  # halved until one is left
    assert len(tried) <= most
    tried[:] = []
    assert least_memory(known, LEAST_MEMORY, passes, guess * MIB) == plain
    assert len(tried) == len(set(tried)) and len(tried) <= most + 7
    assert plain == known or plain in tried
    tried[:] = []
    assert least_memory(known, LEAST_MEMORY, passes, plain) == plain and len(tried) <= 2


@pytest.mark.parametrize(
    ("needed", "guess", "tried"), [(90, 90, 2), (90, 102, 3), (20, 22, 3), (44, 50, 4), (47, 57, 4), (73, 69, 3)]
)
def test_a_guess_that_is_a_little_wrong_costs_few_boots(needed: int, guess: int, tried: int) -> None:
    asked: list[int] = []

    def passes(size: int) -> bool:
        asked.append(size)
        return size >= needed * MIB

    least_memory(512 * MIB, LEAST_MEMORY, passes, guess * MIB)
    assert len(asked) == tried


def test_subsystems() -> None:
    assert folder_of("kernel/sched/core.c") == "kernel"
    assert folder_of("drivers/virtio/virtio.c") == "drivers/virtio"
    assert folder_of("arch/x86/kernel/tsc.c") == "arch/x86"
    assert folder_of("fs/open.c") == "fs"
    assert folder_of("main.c") == folder_of("") == "other"


def boot(kernel: int = 1000, load: int = 50, *, firmware: int = 7) -> Boot:
    return Boot(
        milestones=(
            Milestone("kernel", firmware, firmware),
            Milestone("init", firmware + kernel, 5_007_000, 0.5),
            Milestone("ready", firmware + kernel + 300, 9_007_000, 0.75),
        ),
        phases=(
            PhaseCounts(Phase.FIRMWARE, firmware, 0, port_accesses=1, mmio_accesses=1),
            PhaseCounts(Phase.KERNEL, kernel, 0, port_accesses=10, mmio_accesses=5),
            PhaseCounts(Phase.INIT, 90, 10, client_kernel=1000, client_user=1000, port_accesses=3, mmio_accesses=None),
            PhaseCounts(Phase.START_UP, 150, 50, port_accesses=2, mmio_accesses=2),
            PhaseCounts(Phase.LOAD, load, 2 * load, port_accesses=100, mmio_accesses=100),
        ),
        functions=(
            FunctionCost("delay_tsc.part.0", Phase.KERNEL, 400, port_accesses=4),
            FunctionCost("delay_tsc", Phase.LOAD, 20, port_accesses=50),
            FunctionCost("tsc_read_refs", Phase.FIRMWARE, 3, port_accesses=1),
            FunctionCost("memset", Phase.KERNEL, 500),
        ),
        outcome=Outcome.READY, seconds=1.0, container=ContainerRun(exit_code=0, answers_right=True, requests=5),
    )  # fmt: skip


FACTS = KernelFacts("6.12", "vmlinux", 900, 100, 5_000_000, 2_000_000)
LOOPS = (
    LoopNames("calibration", ("delay_tsc", "tsc_read_refs"), "waits for a timer"),
    LoopNames("never", ("nothing",), "never runs"),
)


def test_a_side_of_equal_boots() -> None:
    side = make_side(
        FACTS, "tailored", [boot(), boot(), boot()], device_boot=boot(), wall_boots=[boot()], loops=LOOPS,
        min_memory_bytes=20 * MIB,
    )  # fmt: skip
    assert (side.init_instructions, side.reset_instructions, side.ready_instructions) == (1000, 1007, 1300)
    assert (side.init_instructions_net, side.reset_instructions_net) == (600, 604)
    assert [(loop.name, loop.instructions) for loop in side.loops] == [("calibration", 403)]
    assert side.init_virtual_us == (5_007_000 - 7) / 1000
    assert side.init_wall_us == 500_000 and side.ready_wall_us == 750_000
    assert side.device_accesses == 10 + 5 + 3 + 2 + 2
    assert side.device_accesses_net == side.device_accesses - 4
    assert side.request_kernel_instructions == 10 and side.request_user_instructions == 20
    assert dict(side.spread) == dict.fromkeys(
        (
            "init_instructions",
            "ready_instructions",
            "init_virtual_us",
            "ready_virtual_us",
            "request_kernel_instructions",
        ),
        0,
    )
    assert side.functions[0] == FunctionCost("memset", Phase.KERNEL, 500)
    assert side.boots == 3 and side.min_memory_bytes == 20 * MIB


def test_a_side_whose_boots_differ_says_so() -> None:
    boots = [boot(990), boot(1000), boot(1010, load=55)]
    side = make_side(FACTS, "x", boots, device_boot=None, wall_boots=[], loops=LOOPS, min_memory_bytes=None)
    found = dict(side.spread)
    assert found["init_instructions"] == 20 / 1000
    assert found["request_kernel_instructions"] == 0.1
    assert side.init_instructions == 1000
    assert side.device_accesses is None and side.device_accesses_net is None and side.init_wall_us is None


def test_a_first_boot_that_took_longer_is_not_the_figure() -> None:
    def ready_at(virtual_ns: int) -> Boot:
        *early, last = boot().milestones
        return dataclasses.replace(boot(), milestones=(*early, dataclasses.replace(last, virtual_ns=virtual_ns)))

    boots = [ready_at(9_500_007), ready_at(9_000_007), ready_at(8_900_007)]
    side = make_side(FACTS, "x", boots, device_boot=None, wall_boots=[], loops=LOOPS, min_memory_bytes=None)
    assert side.ready_virtual_us == 9_000 and side.init_virtual_us == (5_007_000 - 7) / 1000
    found = dict(side.spread)
    assert found["ready_virtual_us"] == 600 / 9_000 and found["ready_instructions"] == found["init_virtual_us"] == 0


def test_a_boot_that_never_reached_ready_gives_no_figure() -> None:
    early = dataclasses.replace(boot(), milestones=boot().milestones[:2], container=None)
    side = make_side(FACTS, "x", [early], device_boot=None, wall_boots=[early], loops=(), min_memory_bytes=None)
    assert side.ready_instructions is None and side.ready_virtual_us is None and side.ready_wall_us is None
    assert side.request_kernel_instructions is None and "request_kernel_instructions" not in dict(side.spread)


@given(st.lists(st.integers(1, 10**12), max_size=9))
def test_spread(values: list[int]) -> None:
    found = spread(values)
    assert found >= 0
    assert (found == 0) == (len(set(values)) <= 1)


def test_executed_leaves_the_client_out() -> None:
    assert side_figures.executed(boot(), [Phase.INIT]) == 100


LOG = b"""\
10 100.000000 execve("/.vmtailor/init", ["/.vmtailor/init", "--exec"], 0x7) = 0 <0.000100>
10 100.000100 setgid(33) = 0 <0.000001>
10 100.000200 execve("/bin/app", ["app"], 0x7) = 0 <0.000100>
10 100.000300 openat(AT_FDCWD, "/etc/app", O_RDONLY) = 3</etc/app> <0.000001>
11 101.500000 execve("/.vmtailor/init", ["/.vmtailor/init", "--exec"], 0x7) = 0 <0.000100>
11 101.500100 setuid(33) = 0 <0.000001>
10 101.500200 read(3</etc/app>, "x", 1) = 1 <0.000001>
11 101.500300 execve("/bin/check", ["check"], 0x7) = -1 ENOENT (No such file or directory) <0.000100>
11 101.500400 execve("/usr/bin/check", ["check"], 0x7) = 0 <0.000100>
11 101.500500 getpid() = 11 <0.000001>
"""


def test_what_our_init_prepares_is_not_the_containers() -> None:
    report = GuestReport(
        marks=(
            GuestMark("init", 1, 1, 99_000_000_000),
            GuestMark("entry", 2, 2, 100_000_000_000),
            GuestMark("ready", 3, 3, 100_500_000_000),
            GuestMark("load", 4, 4, 101_000_000_000),
        )
    )
    begins = container_calls.phases(report)
    assert begins == (("start-up", 100.0), ("settle", 100.5), ("load", 101.0))
    events = container_calls.read(LOG, begins).events
    assert [(event.pid, event.name, event.phase) for event in events] == [
        (10, "execve", "start-up"),
        (10, "openat", "start-up"),
        (10, "read", "load"),
        (11, "execve", "load"),
        (11, "getpid", "load"),
    ]


def test_what_attaching_takes_is_not_the_containers() -> None:
    log = b"""\
1 100.000000 read(9<pipe:[480]>,  <unfinished ...>
3 100.000050 execve("/.vmtailor/init", ["/.vmtailor/init", "--attached", "10"], 0x7) = 0 <0.000100>
3 100.000100 write(10<pipe:[480]>, "\\0", 1) = 1 <0.000001>
1 100.000110 <... read resumed>"\\0", 1) = 1 <0.000100>
3 100.000120 exit_group(0) = ?
1 100.000200 execve("/.vmtailor/init", ["/.vmtailor/init", "--exec", "8", "7", "1"], 0x7) = 0 <0.000100>
1 100.000300 ptrace(PTRACE_TRACEME) = -1 EPERM (Operation not permitted) <0.000001>
3 100.000310 +++ exited with 0 +++
1 100.000400 execve("/bin/app", ["app"], 0x7) = 0 <0.000100>
1 100.000500 read(3</etc/app>, "x", 1) = 1 <0.000001>
1 100.000600 execve("/bin/other", ["other"], 0x7) = 0 <0.000100>
"""
    assert [(event.pid, event.name) for event in container_calls.read(log, ()).events] == [
        (1, "execve"), (1, "read"), (1, "execve"),
    ]  # fmt: skip


def test_a_loop_is_found_in_the_parts_that_the_compiler_made_of_its_function() -> None:
    rows = tuple(FunctionCost(name, Phase.KERNEL, 5) for name in ("wait_tick", "wait_tick.part.0", "wait_tickle"))
    boot = Boot(Outcome.READY, (), 1.0, functions=rows)
    (found,) = loops_of(boot, [LoopNames("tick", ("wait_tick",), "emulated")], TO_INIT)
    assert found.instructions == 10


@pytest.mark.parametrize("clock", [Clock.INSTRUCTIONS, Clock.WALL])
def test_a_busy_host_does_not_make_the_least_memory_larger(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the instruction clock only processor time and standing still end a boot, not the host's seconds."""
    told: list[Exercised] = []
    paces: list[int] = []

    def boot(machine: Machine, work: Exercised, scratch: Path) -> tuple[Any, Any]:
        told.append(work)
        paces.append(machine.pace)
        return SimpleNamespace(failures=()), SimpleNamespace(start_cpu_s=2.0, cpu_s=5.0, executed=None)

    monkeypatch.setattr(measure, "boot", boot)
    exercise = Exercise("x", Ready(ReadyKind.EXIT, None, 20.0))
    machine = Machine("microvm", 64 << 20, "k", clock=clock)
    subject = cast(Any, SimpleNamespace(attended=None, network=False, machine=machine, exercise=exercise))
    assert measure._MemorySearch(subject, Path()).passes(32 << 20)
    first, second = told
    whole = measure.BOOT_S + 80
    if clock is Clock.INSTRUCTIONS:
        assert first.timeout_s == second.timeout_s == BUSY_TIMES * whole and second.patience.still_s == STILL_S
    else:
        assert first.timeout_s == whole and STILL_S <= second.timeout_s < STILL_S + 1
    # A slower machine has as many instructions to be ready in.
    pace = measure.SEARCH_PACE if clock is Clock.INSTRUCTIONS else 0
    assert paces == [pace, pace]
    assert second.run.exercise is not None and second.run.exercise.ready.timeout_s == 20.0 * 2**pace
    assert second.patience.start_s == measure.SLACK_S + 4 and second.patience.all_s == measure.SLACK_S + 10


def test_what_only_a_fast_machine_does_is_searched_on_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, float]] = []

    def boot(machine: Machine, work: Exercised, scratch: Path) -> tuple[Any, Any]:
        assert work.run.exercise is not None
        seen.append((machine.pace, work.run.exercise.stop_timeout_s))
        failures = ("late",) if machine.pace else ()
        return SimpleNamespace(failures=failures), SimpleNamespace(start_cpu_s=2.0, cpu_s=5.0, executed=None)

    monkeypatch.setattr(measure, "boot", boot)
    exercise = Exercise("x", Ready(ReadyKind.EXIT, None, 20.0))
    subject = cast(
        Any, SimpleNamespace(attended=None, network=False, machine=Machine("microvm", 64 << 20, "k"), exercise=exercise)
    )
    assert measure._MemorySearch(subject, Path()).passes(32 << 20)
    assert seen == [(measure.SEARCH_PACE, 80.0), (0, 10.0), (0, 10.0)]


def test_memory_in_which_qemu_refuses_the_machine_is_too_little(monkeypatch: pytest.MonkeyPatch) -> None:
    def boot(machine: Machine, work: Exercised, scratch: Path) -> tuple[Any, Any]:
        if machine.memory_bytes < 20 << 20:
            raise NotStarted("QEMU did not start", details="Some ROM regions are overlapping")
        if machine.memory_bytes == 24 << 20:
            raise HostError("the disk is full")
        return SimpleNamespace(failures=()), SimpleNamespace(start_cpu_s=2.0, cpu_s=5.0, executed=None)

    monkeypatch.setattr(measure, "boot", boot)
    exercise = Exercise("x", Ready(ReadyKind.EXIT, None, 20.0))
    subject = cast(
        Any, SimpleNamespace(attended=None, network=False, machine=Machine("microvm", 64 << 20, "k"), exercise=exercise)
    )
    search = measure._MemorySearch(subject, Path())
    assert not search.passes(16 << 20) and search.passes(20 << 20)
    with pytest.raises(HostError, match="disk is full"):
        search.passes(24 << 20)


def test_a_system_is_searched_until_it_is_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the usual pace: a system has timers of its own."""
    seen: list[tuple[Machine, Attended]] = []

    def boot(machine: Machine, work: Attended, scratch: Path) -> tuple[Any, Any]:
        seen.append((machine, work))
        return SimpleNamespace(failures=()), SimpleNamespace(start_cpu_s=2.0, cpu_s=5.0, executed=None)

    monkeypatch.setattr(measure, "boot", boot)
    exercise = SystemExercise("x", SystemReady(SystemReadyKind.UNIT, unit="multi-user.target"))
    work = Attended(exercise, Path("volume"), FIXED_KEY, 60.0, until=Until.READY)
    machine = Machine("q35", 512 << 20, "k")
    subject = cast(Any, SimpleNamespace(attended=work, network=False, machine=machine, exercise=None))
    assert measure._MemorySearch(subject, Path()).passes(64 << 20)
    assert [(m.memory_bytes >> 20, m.clock, m.pace) for m, _ in seen] == [
        (512, Clock.INSTRUCTIONS, 0),
        (64, Clock.INSTRUCTIONS, 0),
    ]
    assert all(w.until is Until.REST for _, w in seen)
    assert seen[1][1].patience.start_s == measure.SLACK_S + 4 and seen[1][1].patience.all_s == measure.SLACK_S + 10


def test_a_machine_set_beside_another_may_take_as_long_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Attended] = []

    def boot(machine: Machine, work: Attended, scratch: Path) -> tuple[Any, Any]:
        told.append(work)
        return SimpleNamespace(failures=()), SimpleNamespace(start_cpu_s=2.0, cpu_s=5.0, executed=None)

    monkeypatch.setattr(measure, "boot", boot)
    exercise = SystemExercise("x", SystemReady(SystemReadyKind.UNIT, unit="multi-user.target"))
    work = Attended(exercise, Path("volume"), FIXED_KEY, 60.0, until=Until.READY)
    subject = cast(
        Any, SimpleNamespace(attended=work, network=False, machine=Machine("q35", 512 << 20, "k"), exercise=None)
    )
    own: list[measure.Usual] = []
    search = measure._MemorySearch(subject, Path(), lambda: measure.Usual(1.0, 40.0), own.append)
    assert search.passes(64 << 20) and [search.usual] == own == [measure.Usual(2.0, 5.0)]
    # Its own start, which is the longer one, and the other's boot.
    assert told[1].patience.start_s == measure.SLACK_S + 4 and told[1].patience.all_s == measure.SLACK_S + 80


def test_systems_are_bounded_by_instructions_and_only_guarded_by_processor_time() -> None:
    found = measure._patience(
        [measure.Usual(2.0, 5.0, instructions=10**9), measure.Usual(1.0, 40.0, instructions=10**10)]
    )
    assert found.instructions == measure.SLACK_INSTRUCTIONS + 2 * 10**10
    assert found.start_s == measure.SLACK_S + 4 and found.all_s == 2 * (measure.SLACK_S + 80)


@pytest.mark.parametrize(("more_mib", "boots"), [(0, 11), (56, 2), (-30, 11)])
def test_where_the_other_needed_more_than_was_guessed_this_one_is_expected_to(more_mib: int, boots: int) -> None:
    tried: list[int] = []

    class Search:
        known, floor, more_bytes, usual = 512 * MIB, LEAST_MEMORY, more_mib * MIB, measure.Usual(1.0, 2.0)

        def told(self) -> int:
            return 72 * MIB

        def passes(self, memory_bytes: int) -> bool:
            tried.append(memory_bytes)
            return memory_bytes >= 124 * MIB

        def use(self, memory_bytes: int) -> None:
            return None

        def tell(self, more_bytes: int) -> None:
            told.append(more_bytes)

    told: list[int] = []
    search: Any = Search()
    plain = least_memory(search.known, search.floor, search.passes)
    tried.clear()
    found = measure._least(search)
    assert found.memory_bytes == plain and len(tried) == boots
    assert found.usual == measure.Usual(1.0, 2.0, plain - 72 * MIB)  # what the next one beside it is told
    assert told == sorted(told, reverse=True) and told[-1] == plain - 72 * MIB  # and what it is told before


#: In place of a search.
LEAST = SimpleNamespace(memory_bytes=16 << 20, memory=None, usual=None)


@pytest.mark.parametrize(
    ("executed", "count", "made"),
    [((7, 7, 7), 3, 2), ((7, 8, 8), 3, 3), ((7, 8, 7, 7, 7), 5, 4), ((7, 7), 1, 1), ((7, 8, 9), 3, 3)],
)
def test_boots_are_counted_until_two_agree(
    executed: tuple[int, ...], count: int, made: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boots = iter(executed)
    kept: list[object] = []

    def counted(*given: Any) -> tuple[Boot, tuple[tuple[str, int], ...]]:
        kept.append(given[-1])
        return Boot(Outcome.READY, (), 1.0, functions=(FunctionCost("f", Phase.KERNEL, next(boots)),)), ()

    monkeypatch.setattr(measure, "_counted", counted)
    monkeypatch.setattr(measure, "initcall_spans", lambda table: ())
    monkeypatch.setattr(measure, "_MemorySearch", lambda *_: None)
    monkeypatch.setattr(measure, "_least", lambda *_: LEAST)
    subject = cast(Any, SimpleNamespace(marks=(), table=None, machine=Machine("microvm", 64 << 20, "k")))
    found = measure.counted(subject, count, tmp_path, tmp_path, lambda note: None)
    assert len(found.exact) == made and kept == [tmp_path / measure.COUNTS] + [None] * (made - 1)


@pytest.mark.parametrize(
    ("known", "executed", "count", "made", "kept"),
    [(7, (7,), 3, 1, 2), (7, (8, 8), 3, 2, 3), (7, (8, 9), 3, 2, 3), (7, (7,), 1, 1, 1), (7, (8, 7, 7), 5, 3, 4)],
)
def test_a_boot_that_is_known_is_one_of_them(
    known: int,
    executed: tuple[int, ...],
    count: int,
    made: int,
    kept: int,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def of(instructions: int) -> Boot:
        return Boot(Outcome.READY, (), 1.0, functions=(FunctionCost("f", Phase.KERNEL, instructions),))

    boots = iter(executed)
    monkeypatch.setattr(measure, "_counted", lambda *_: (of(next(boots)), (("init", 1),)))
    monkeypatch.setattr(measure, "initcall_spans", lambda table: ())
    monkeypatch.setattr(measure, "_MemorySearch", lambda *_: None)
    monkeypatch.setattr(measure, "_least", lambda *_: LEAST)
    subject = cast(Any, SimpleNamespace(marks=(), table=None, machine=Machine("microvm", 64 << 20, "k")))
    found = measure.counted(subject, count, tmp_path, tmp_path, lambda note: None, known=of(known))
    assert next(boots, None) is None and len(found.exact) == kept
    # What only a boot of its own tells comes first.
    assert found.exact[0] == of(executed[0]) and found.initcalls == (("init", 1),)
    assert (of(known) in found.exact) is (count > 1 or known in executed)


@pytest.mark.parametrize(
    ("seconds", "count", "made"), [(2.0, 3, 3), (4.9, 5, 3), (5.0, 3, 2), (100.0, 3, 2), (100.0, 1, 1)]
)
def test_of_long_boots_on_the_wall_clock_two_are_enough(
    seconds: float, count: int, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "_walled", lambda *_: Boot(Outcome.READY, (), seconds))
    found = measure.timed(cast(Any, None), count, Path(), lambda note: None)
    assert len(found.wall) == made


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("late", [False, True])
def test_the_least_memory_is_that_of_the_machine_that_people_start(
    network: bool, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` gives a container's machine its network device, whose buffers need memory; it is counted without one."""
    seen: list[tuple[bool, str | None]] = []

    def boot(machine: Machine, work: Exercised, scratch: Path, **_: object) -> tuple[Any, Any]:
        seen.append((machine.network, work.run.network))
        failures = ("late",) if late and machine.pace else ()
        return SimpleNamespace(failures=failures), SimpleNamespace(start_cpu_s=2.0, cpu_s=5.0, executed=None)

    monkeypatch.setattr(measure, "boot", boot)
    exercise = Exercise("x", Ready(ReadyKind.EXIT, None, 20.0))
    machine = Machine("microvm", 64 << 20, "k")
    subject = measure.MeasuredMachine(machine, cast(Any, None), exercise, cast(Any, None), network=network)
    assert measure._MemorySearch(subject, Path()).passes(32 << 20)
    assert set(seen) == {(network, NETWORK if network else None)} and len(seen) == (3 if late else 2)
    seen.clear()
    measure.timed(subject, 1, Path(), lambda note: None)
    assert seen == [(False, None)]
