# SPDX-License-Identifier: Apache-2.0
"""A container's boot, played: every way it can end is a result, and what it was told lies on a disk behind its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vmtailor.booting import container_boot
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.booter import boot
from vmtailor.drivers.qemu import qemu_program
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.counters import CountingConfig, CountingMode
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, Patience, Run
from vmtailor.model.exercise import Exercise, Ready, ReadyKind
from vmtailor.model.machine import Clock, Disk, Machine

FAKE = Path(__file__).parent.parent / "fakes" / "qemu-system"


def machine(folder: Path, what: str) -> Machine:
    for name in ("kernel", "root"):
        (folder / name).write_bytes(b"x" * 512)
    words = ("quiet", f"fake={what}")
    return Machine("microvm", 64 << 20, str(folder / "kernel"), words, disks=(Disk(str(folder / "root")),))


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("what", "outcome", "said"),
    [
        ("panic", Outcome.PANIC, "the guest's kernel panicked"),
        ("exit", Outcome.STOPPED, "the program did not run to its end"),
        ("crash", Outcome.STOPPED, "QEMU ended with status -11"),
        ("hang", Outcome.TIMEOUT, "the guest was not done after"),
    ],
)
def test_every_end_is_a_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str, outcome: Outcome, said: str
) -> None:
    monkeypatch.setenv(qemu_program.BINARY_VARIABLE, str(FAKE))
    work = Exercised(Run(exercise=Exercise("x", Ready(ReadyKind.EXIT)), key=FIXED_KEY), 3.0 if what == "hang" else 20.0)
    seconds: list[float] = []
    found, gathered = boot(machine(tmp_path, what), work, tmp_path, on_progress=seconds.append)
    assert found.outcome is outcome and said in found.problem
    assert found.container is not None and found.container.answers_right is False
    assert gathered.console.startswith(b"fake guest") and seconds
    assert f"fake={what} VT_RUN=1" in found.command
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kernel", "root"]  # nothing is left


def test_without_an_exercise_nothing_is_judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(qemu_program.BINARY_VARIABLE, str(FAKE))
    found, _ = boot(machine(tmp_path, "exit"), Exercised(Run(argv=("/x",), key=FIXED_KEY), 20.0), tmp_path)
    assert (found.outcome, found.failures) == (Outcome.READY, ())
    assert found.container is not None and found.container.answers_right is None


def test_a_guest_that_nobody_counts_waits_for_its_disks_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On the instruction clock an idle guest jumps to its next timer, while a busy host still reads its disk."""
    told: list[Counting | None] = []

    def play(machine: Machine, work: Exercised, scratch: Path, counting: Counting | None, on_progress: object) -> Any:
        told.append(counting)
        return None, None

    monkeypatch.setattr(container_boot, "boot", play)
    work = Exercised(Run(argv=("/x",), key=FIXED_KEY), 20.0)
    one = machine(tmp_path, "exit")
    for asked in (one, replace(one, clock=Clock.WALL), replace(one, cpus=2)):
        boot(asked, work, tmp_path)
    settled, wall, two = told
    assert settled is not None and settled.config.mode is CountingMode.SETTLE and (wall, two) == (None, None)
    own = Counting(settled.natives, CountingConfig())
    boot(one, work, tmp_path, counting=own)
    assert told[-1] is own


@pytest.mark.parametrize(
    ("start_s", "now_s", "given_up"),
    [
        (None, 4.9, False),
        (None, 5.1, True),
        (1.0, 5.1, False),
        (1.0, 9.9, False),
        (1.0, 10.1, True),
        (None, None, False),
    ],
)
def test_patience_is_of_processor_time(start_s: float | None, now_s: float | None, given_up: bool) -> None:
    """Until init has spoken, and in all; a machine whose processor time is not known is not given up for it."""
    assert container_boot.Used(start_s, now_s).beyond(Patience(5.0, 10.0)) is given_up


@pytest.mark.parametrize(("executed", "given_up"), [(None, False), (10**9, False), (10**9 + 1, True)])
def test_patience_may_be_in_instructions_which_no_host_changes(executed: int | None, given_up: bool) -> None:
    used = container_boot.Used(1.0, 9.0, executed=executed)
    assert used.beyond(Patience(5.0, 10.0, instructions=1e9)) is given_up


def test_what_init_took_to_start_is_what_was_used_when_it_first_spoke() -> None:
    class Running:
        cpu_s: float | None = 1.0
        elapsed_s = held_up_s = 0.0
        wants_to_run = False

    running, used = Running(), container_boot.Used()
    for cpu_s, listening in ((1.0, False), (2.0, False), (3.0, True), (4.0, True), (None, True)):
        running.cpu_s = cpu_s
        used.look(running, listening)  # type: ignore[arg-type]
    assert (used.start_s, used.now_s) == (3.0, 4.0)


def test_a_machine_that_uses_no_processor_time_stands_still() -> None:
    """Housekeeping is none; a busy host that gives it little gives it some."""
    patience, used = Patience(still_s=30.0), container_boot.Used()
    seen = []
    for elapsed_s, cpu_s in ((10.0, 1.0), (39.0, 1.05), (41.0, 1.05), (42.0, 1.2), (71.0, 1.25)):
        running = SimpleNamespace(cpu_s=cpu_s, elapsed_s=elapsed_s, held_up_s=0.0, wants_to_run=False)
        used.look(running, True)  # type: ignore[arg-type]
        seen.append(used.beyond(patience))
    assert seen == [False, False, True, False, False]


@pytest.mark.parametrize(
    ("held_up_s", "wants", "given_up"),
    [
        (0.0, False, True),
        (0.2, False, True),  # a housekeeper waited for its turn: that is none of the machine's
        (25.0, False, False),  # it was ready to run, and others ran
        (-3.0, False, True),  # a thread ended, and took its waiting with it
        (0.0, True, False),  # it waits for its turn, or for its disk, at this moment
    ],
)
def test_a_machine_that_a_busy_host_does_not_let_run_does_not_stand_still(
    held_up_s: float, wants: bool, given_up: bool
) -> None:
    patience, used = Patience(still_s=30.0), container_boot.Used()
    looks = ((1.0, 0.0, 0.0, False), (2.0, 1.0, 0.0, False), (3.0, 1.0, 0.0, False), (40.0, 1.05, held_up_s, wants))
    for elapsed_s, cpu_s, more_s, wants_to_run in looks:
        held_s = 5.0 + more_s
        running = SimpleNamespace(cpu_s=cpu_s, elapsed_s=elapsed_s, held_up_s=held_s, wants_to_run=wants_to_run)
        used.look(running, True)  # type: ignore[arg-type]
    assert used.beyond(patience) is given_up
