# SPDX-License-Identifier: Apache-2.0
"""The machine in which a system is watched, what its initial RAM disk gets, and what is kept of its log."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.systems.test_loads import INDEX
from tests.unit.systems.test_system_log import EXCERPT
from typer.testing import CliRunner

from vmtailor.analysis.guests import machine_variants
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.natives import Natives
from vmtailor.cli import main
from vmtailor.drivers.rootfs import initrd_additions
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.boots.ending import End, Ending, Gathered
from vmtailor.model.boots.workload import Attended, OwnInit, ReadyBy, ReadySignal
from vmtailor.model.machine import Disk, DiskMode, Machine
from vmtailor.model.watched.system_trace import LoadedFor
from vmtailor.stages import system_watch
from vmtailor.stages.system_watch import SystemTraceInputs

MACHINE = Machine(
    "q35", 1 << 30, kernel="/k", words=("root=/dev/vda", "ro"), disks=(Disk("/d", mode=DiskMode.OVERLAID),)
)
WORK = OwnInit(ReadySignal(ReadyBy.SYSTEMD), 10.0)


@pytest.fixture
def natives(tmp_path: Path) -> Natives:
    (tmp_path / "natives").mkdir()
    (tmp_path / "natives" / "small-init").write_bytes(b"the init")
    return Natives(tmp_path / "natives")


def test_the_last_disk_takes_the_log_and_nothing_is_given_up_early(natives: Natives, tmp_path: Path) -> None:
    found = system_watch.watched_machine(MACHINE, (("ext4", b"module"),), natives, tmp_path)
    assert found.disks[0] == MACHINE.disks[0] and found.disks[1].mode is DiskMode.WRITTEN
    assert set(machine_variants.TIMES) <= set(found.words)
    initrd = Path(found.initrd or "").read_bytes()
    assert b"/dev/vdb" in initrd and b"@" not in initrd_additions.OPTIONS[0].encode()
    for name in (b"watch/strace", b"watch/ld.so", b"watch/options", b"modules/ext4.ko"):
        assert name in initrd
    assert Path(found.disks[1].path).stat().st_blocks == 0  # sparse


def test_without_options_nothing_is_traced_and_the_way_in_is_the_same(natives: Natives, tmp_path: Path) -> None:
    found = system_watch.watched_machine(MACHINE, (), natives, tmp_path, ())
    initrd = Path(found.initrd or "").read_bytes()
    assert b"watch/disk" in initrd and b"watch/strace" not in initrd
    assert found.words == system_watch.watched_machine(MACHINE, (), natives, tmp_path).words


def test_a_machine_that_a_loader_starts_is_refused(natives: Natives, tmp_path: Path) -> None:
    with pytest.raises(UserInputError, match="own kernel"):
        system_watch.watched_machine(Machine("q35", 1 << 30), (), natives, tmp_path)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 0.0),
        ("+++ vmtailor time 12.500000 busy +++\n1 x\n", 12.5),
        ("+++ vmtailor time 12", 0.0),
        ("+++ vmtailor time x y +++", 0.0),
    ],
)
def test_the_last_mark_says_how_far_the_log_is_on_its_disk(tmp_path: Path, text: str, seconds: float) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        file.write(text.encode())
        file.truncate(1 << 30)
    assert system_watch.last_time(log) == seconds


def booted(written: bytes, problem: str = "") -> system_watch.Booter:
    """A boot that leaves this in its log."""

    def boot(machine: Machine, work: OwnInit | Attended, scratch: Path) -> tuple[Boot, Gathered]:
        with Path(machine.disks[-1].path).open("r+b") as log:
            log.write(written)
        failures = (problem,) if problem else ()
        outcome = Outcome.TIMEOUT if problem else Outcome.READY
        return Boot(outcome, (), 9.0, "qemu", failures), Gathered(End(Ending.DEADLINE, "qemu", "", "", 9.0, None), 0.0)

    return boot


def inputs(natives: Natives, boot: system_watch.Booter, plain_s: float | None = 5.0) -> SystemTraceInputs:
    return SystemTraceInputs("disk:x", MACHINE, WORK, INDEX, (), natives, plain_s, boot)


def test_a_trace_is_kept_and_found_again(natives: Natives, tmp_path: Path) -> None:
    made = system_watch.trace(inputs(natives, booted(EXCERPT.read_bytes())), tmp_path / "seen", tmp_path / "scratch")
    assert made.figures.skipped == 0 and made.events
    assert {load.reason for load in made.loads} >= {LoadedFor.REQUEST, LoadedFor.NAME, LoadedFor.WATCHING}
    assert (tmp_path / "seen" / made.requests_file).read_bytes() == EXCERPT.read_bytes()
    broken = inputs(natives, booted(b""))
    assert system_watch.trace(broken, tmp_path / "seen", tmp_path / "scratch") == made


def test_a_system_that_hangs_under_the_tracer_has_what_was_seen_until_then(natives: Natives, tmp_path: Path) -> None:
    boot = booted(EXCERPT.read_bytes(), "not seen within 10 s: systemd")
    made = system_watch.trace(inputs(natives, boot), tmp_path / "seen", tmp_path / "scratch")
    assert made.boot.failures and made.figures.calls == 28


def test_one_that_does_not_come_to_its_init_is_an_error(natives: Natives, tmp_path: Path) -> None:
    boot = booted(b"+++ vmtailor time 1.0 idle +++\n", "the kernel panicked")
    with pytest.raises(GuestError, match="did not reach its init"):
        system_watch.trace(inputs(natives, boot), tmp_path / "seen", tmp_path / "scratch")
    assert not (tmp_path / "seen" / system_watch.RECORD).exists()


def test_one_that_does_not_work_as_it_is_is_not_traced(natives: Natives, tmp_path: Path) -> None:
    with pytest.raises(GuestError, match="does not get ready on its own kernel"):
        system_watch.trace(inputs(natives, booted(b"", "never"), None), tmp_path / "seen", tmp_path / "scratch")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--requests", "x"], "--requests needs a disk"),
        (["DISK", "--requests", "x", "--kernel", "DISK"], "--requests, which starts the disk's own kernel"),
        (["DISK", "--requests", "x", "--ready", "nothing:3"], "needs a moment to be ready at"),
        (["missing.img", "--requests", "x"], "cannot be read"),
    ],
)
def test_bad_questions_are_refused(tmp_path: Path, words: list[str], says: str) -> None:
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(4096))
    done = CliRunner().invoke(main.app, ["boot", *(str(disk) if word == "DISK" else word for word in words)])
    assert isinstance(done.exception, UserInputError), done.output
    assert says in done.exception.message
