# SPDX-License-Identifier: Apache-2.0
"""Machines that version 0.1.0 saved: they are read, and QEMU is started with the same words (tests/data/machines)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vmtailor.analysis.comparison import judged_document
from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.drivers.qemu.plugin import Plugin
from vmtailor.drivers.qemu.qemu_command import Ends, command
from vmtailor.model.boots.series import BootSeries
from vmtailor.model.machine import Machine
from vmtailor.model.trace import Trace
from vmtailor.model.watched.system_trace import SystemTrace

DATA = Path(__file__).parent.parent / "data" / "machines"
MACHINES = json.loads((DATA / "machine-2.json").read_text())
COUNTING = Plugin(Path("/n/plugin.so"), Path("/s/plugin.conf"), Path("/s/plugin.counts"))


@pytest.mark.parametrize("one", MACHINES, ids=[one["name"] for one in MACHINES])
def test_a_machine_of_0_1_0_is_started_with_the_same_words(one: dict[str, Any]) -> None:
    machine = records.from_bytes(Machine, msgspec.json.encode(one["machine"]))
    assert command(machine, Ends(**one["ends"]), plugin=COUNTING if one["counted"] else None) == one["argv"]
    assert records.from_bytes(Machine, records.to_bytes(machine)) == machine


def test_records_that_hold_a_machine_are_read() -> None:
    trace = records.load(Trace, DATA / "trace-3.json").machine
    assert (trace.board, trace.words, trace.kernel) == ("microvm", ("quiet",), "/k")
    system = records.load(SystemTrace, DATA / "system-trace-1.json").machine
    assert (system.board, system.extras, system.firmware) == ("q35", ("-device", "usb-tablet"), "qboot.rom")
    assert records.load(BootSeries, DATA / "boots-2.json").variants[0].machine == system
    assert judged_document.read(DATA / "boots-2.json").metrics["boots_failed"] == [0.0]


def test_options_of_the_machine_type_stay_with_it() -> None:
    old = {**MACHINES[0]["machine"], "machine_options": ["smm=off", "hpet=off"]}
    machine = records.from_bytes(Machine, msgspec.json.encode(old))
    assert command(machine)[-2:] == ["-machine", "smm=off,hpet=off"]


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        (Trace, {"schema": "vmtailor/trace/3", "machine": 7}),
        (BootSeries, {"schema": "vmtailor/boots/2", "variants": 7}),
        (BootSeries, {"schema": "vmtailor/boots/2", "variants": [7, {"machine": [1]}, {"machine": {}}]}),
        (Machine, {"schema": "vmtailor/machine/2", "options": 7, "machine_options": 8}),
        (Machine, {"schema": "vmtailor/machine/2", "options": 7, "machine_options": ["x"]}),
        (Machine, {"schema": ["vmtailor/machine/2"]}),
    ],
)
def test_what_is_damaged_is_refused_with_a_word(kind: type[Any], document: dict[str, Any]) -> None:
    with pytest.raises(UserInputError, match=r"is damaged|has schema"):
        records.from_bytes(kind, msgspec.json.encode(document))
