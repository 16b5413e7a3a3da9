# SPDX-License-Identifier: Apache-2.0
"""Machines and boots as they are saved; what an older version saved is refused with a word."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.fakes.boot_data import series_boot
from tests.fakes.bundle_data import trace_record

from vmtailor.analysis.guests.machine_variants import USUAL, on_loopback
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.model.boots.boot import Boot, ContainerRun, Milestone, Outcome, Phase, PhaseCounts
from vmtailor.model.boots.series import BootSeries, Variant
from vmtailor.model.boots.workload import Exercised, Nothing, OwnInit, ReadyBy, ReadySignal, Run
from vmtailor.model.machine import Clock, Disk, DiskFormat, DiskMode, Machine, PublishedPort
from vmtailor.model.trace import Trace
from vmtailor.stages.measure import Counted

CONTAINER = Machine(
    "microvm", 64 << 20, "/k", ("quiet",), disks=(Disk("/root"), Disk("/run", mode=DiskMode.WRITTEN)),
    network=True, ports=(PublishedPort("127.0.0.1", 8080, 80),),
)  # fmt: skip
SYSTEM = replace(USUAL, disks=(Disk("/d", DiskFormat.QCOW2, DiskMode.OVERLAID),), ports=on_loopback([22]))
BOOT = Boot(
    Outcome.WRONG, (Milestone("ready", 5, 7, 0.5, "mark of our init"),), 1.5, "qemu", ("wrong", "late"),
    phases=(PhaseCounts(Phase.KERNEL, 3, 0),), instructions=9, container=ContainerRun(1, False, 3, "out", "err"),
)  # fmt: skip
SERIES = BootSeries(
    "1", "x", ReadySignal(ReadyBy.LOGIN), 9.0, (Variant("base", SYSTEM, "qemu"),), (series_boot("base", 1),)
)


@pytest.mark.parametrize("record", [CONTAINER, SYSTEM, BOOT, SERIES, trace_record(machine=CONTAINER)])
def test_what_is_saved_is_read_back(record: Any) -> None:
    assert records.from_bytes(type(record), records.to_bytes(record)) == record


@pytest.mark.parametrize(
    ("kind", "older"),
    [
        (Machine, "vmtailor/machine/1"),
        (Boot, "vmtailor/boot/1"),
        (BootSeries, "vmtailor/boots/1"),
        (Trace, "vmtailor/trace/1"),
        (Counted, "vmtailor/measured/4"),
    ],
)
def test_what_an_older_version_saved_is_refused_with_a_word(kind: type[Any], older: str) -> None:
    with pytest.raises(UserInputError, match=f"schema '{older}', this version reads '{kind.SCHEMA}'") as caught:
        records.from_bytes(kind, msgspec.json.encode({"schema": older, "number": 1}))
    assert "make it again" in caught.value.hint


def test_a_boot_has_its_times_on_both_clocks() -> None:
    assert (BOOT.at("ready"), BOOT.at("ready", Clock.INSTRUCTIONS), BOOT.at("never")) == (0.5, 7e-9, None)
    assert BOOT.problem == "wrong; late"


def test_every_workload_has_a_signal_for_the_record() -> None:
    own = OwnInit(
        ReadySignal(ReadyBy.SSH, port=22), 9.0, (ReadySignal(ReadyBy.HTTP, port=80), ReadySignal(ReadyBy.LOG))
    )
    assert str(own.signal) == "ssh:22" and own.ports == (22, 80)
    assert str(Nothing(3.0).signal) == "nothing:3" and Nothing(3.0).ports == ()
    assert str(Exercised(Run(), 9.0).signal) == "exercise"
