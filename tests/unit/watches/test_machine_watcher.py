# SPDX-License-Identifier: Apache-2.0
"""Samples as a boot takes them: beside what the host knows, with the steps of the exercise; and who is told to send
them."""

from __future__ import annotations

import socket
from typing import Any, cast

import pytest

from vmtailor.base.errors import UserInputError
from vmtailor.booting.machine_watcher import MachineWatcher
from vmtailor.drivers.guest import attendant_volume, guest_volume
from vmtailor.drivers.guest.guest_session import GuestSession
from vmtailor.drivers.guest.wire import encode
from vmtailor.drivers.monitors.running_machine import DiskCounts
from vmtailor.drivers.qemu.qemu import _disk_counts
from vmtailor.model.boots.workload import FIXED_KEY, Run
from vmtailor.model.exercise import Step, StepKind
from vmtailor.model.guest import GuestMark, GuestReport
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.machine_watch import WatchedKind
from vmtailor.pipeline.machine_watches import left_alone, parse_every


class Monitor:
    """Plays a monitor that has used ten seconds more at each look."""

    resident_bytes: int | None = 4096

    def __init__(self) -> None:
        self.looks = 0

    @property
    def cpu_s(self) -> float | None:
        self.looks += 1
        return 10.0 * self.looks

    def disk_counts(self) -> dict[str, DiskCounts]:
        return {"disk0": DiskCounts(1, 2, 3, 4)}


def watcher(sample_ms: int = 1000, clock: Clock = Clock.WALL) -> MachineWatcher:
    return MachineWatcher(Machine("q35", 64 << 20, clock=clock), cast(Any, Monitor()), sample_ms)


def samples(*times: int) -> bytes:
    return b"".join(b"sample %d %d\nload 1 2 3\nend\n" % (at, at) for at in times)


def test_each_look_at_the_host_belongs_to_the_sample_that_came() -> None:
    one = watcher()
    one.takes["sample"](samples(1, 2) + b"sample 3")
    one.takes["sample"](b" 3\nload 4 5 6\nend\n")
    marks = (GuestMark("step-0", 0, 2, 0), GuestMark("step-7", 0, 3, 0), GuestMark("step-\u0663", 0, 3, 0))
    step = Step(StepKind.COMMAND, argv=("sh", "-c", "echo \x1b[31m\n" + "x" * 500))
    found = one.record("x", GuestReport(marks=marks), (step,))
    assert found is not None and found.times_ns == (1, 2, 3)
    cpu = found.find(WatchedKind.HOST, "cpu_us")
    disk = found.find(WatchedKind.HOST_DISK, "written_bytes", "disk0")
    assert cpu is not None and cpu.values == (None, 10_000_000, 20_000_000)
    assert disk is not None and disk.values == (None, 4, 4)
    first, *others = found.marks
    assert first.title.startswith("sh -c echo \\x1b[31m") and len(first.title) == 200 and "\n" not in first.title
    assert [mark.title for mark in others] == ["", ""] and not found.notes


def test_what_a_boot_without_samples_says() -> None:
    assert watcher(0).takes == {} and watcher(0).record("x", GuestReport(), ()) is None
    found = watcher(clock=Clock.INSTRUCTIONS).record("x", GuestReport(), ())
    assert found is not None and found.times_ns == () and any("no sample came" in note for note in found.notes)


def test_a_file_that_somebody_takes_is_not_kept() -> None:
    ours, theirs = socket.socketpair()
    taken: list[bytes] = []
    with ours, theirs:
        session = GuestSession(ours, key=FIXED_KEY, takes={"sample": taken.append})
        for number, payload in enumerate((b"sample\0one", b"memory\0two", b"sample\0three")):
            theirs.sendall(encode("D", payload, number, FIXED_KEY))
        session.pump(1.0)
        assert taken == [b"one", b"three"] and session.report().files == (("memory", "two"),)


def test_who_is_told_how_often() -> None:
    exercise = left_alone(5.0)
    assert b"sample-ms 200\0" in attendant_volume.config_bytes(exercise, FIXED_KEY, 200)
    assert b"sample-ms" not in attendant_volume.config_bytes(exercise, FIXED_KEY)
    assert ("sample-ms", "200") in guest_volume.run_records(Run(sample_ms=200))
    assert "sample-ms" not in dict(guest_volume.run_records(Run()))
    assert guest_volume.takes_samples(b"x\0sample-ms\0y") and not guest_volume.takes_samples(b"sample-ms")


def test_how_often_is_in_bounds() -> None:
    assert (parse_every("1s"), parse_every("200ms"), parse_every("1m")) == (1000, 200, 60_000)
    for text in ("0", "1ms", "2h", "often", ""):
        with pytest.raises(UserInputError):
            parse_every(text)


def test_counts_of_disks_are_read_from_the_monitors_answer() -> None:
    stats = {"rd_operations": 1, "rd_bytes": 2, "wr_operations": 3, "wr_bytes": 4}
    assert _disk_counts([{"device": "x", "stats": stats}, {"device": "", "stats": {}}]) == {
        "x": DiskCounts(1, 2, 3, 4), "disk1": DiskCounts(0, 0, 0, 0),
    }  # fmt: skip
    assert _disk_counts({"error": 1}) == {}
