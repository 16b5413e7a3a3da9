# SPDX-License-Identifier: Apache-2.0
"""From the trace of a system to a configuration of y, m and n."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.kernel_tree import read_tree
from tests.unit.systems.test_system_log import BEGIN

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.analysis.changes.symbol_catalogue import Catalogue, Situation
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.explain.lookup import KnownSource
from vmtailor.analysis.explain.name_index import AskedNames
from vmtailor.analysis.ksource.closure import close
from vmtailor.model.boots.boot import Boot, Outcome
from vmtailor.model.change import Cause, Reason, symbol
from vmtailor.model.machine import Machine
from vmtailor.model.plan import RootFormat
from vmtailor.model.watched.system_trace import LoadedFor, LogFigures, ModuleLoad, SystemTrace
from vmtailor.pipeline.systems import system_plan
from vmtailor.pipeline.systems.system_plan import SystemPlanInputs
from vmtailor.stages.kernel_plan import Wishes

TREE = read_tree()
SOURCE = Path(__file__).parents[2] / "fakes/kernel-tree"
BOOK = Catalogue(
    tuple(
        symbol_catalogue.parse(
            '[[entry]]\nid = "base"\nreason = "the machine"\nsymbols = { 64BIT = "y", EXPERT = "y", DISK = "y" }\n'
            '[[entry]]\nid = "own"\nreason = "its init"\nsymbols = { PROC_FS = "y" }\nwhen = { own_init = true }\n'
            '[[entry]]\nid = "mod"\nreason = "m"\nsymbols = { MODULES = "y" }\nwhen = { modules = true }\n'
            '[[entry]]\nid = "part"\nreason = "x"\nsymbols = { NUMA = "y" }\nwhen = { partitioned = true }\n',
            Cause.PLATFORM,
            "platform",
        )
    )
)
LOADS = (
    ModuleLoad("af", "net/ipv6/af", LoadedFor.REQUEST, "net-pf-10", "engine", 4),
    ModuleLoad("parts", "fs/parts/parts", LoadedFor.DEVICE, "virtio:x", "udev", 5),
)
LOG = BEGIN + b"7<engine> 2.0 socket(AF_INET6, SOCK_STREAM, IPPROTO_TCP) = 3<TCPv6:[1]> <0.1>\n"
BASELINE: Mapping[str, str] = {
    **{name: "y" for name in TREE.kconfig.symbols if TREE.kconfig.is_switch(name)},
    "IPV6": "m",
    "PARTS_FS": "m",
}


@pytest.fixture
def inputs() -> SystemPlanInputs:
    figures = LogFigures(2, 2, 2, 0, 0, len(LOG), 1.0)
    machine, boot = Machine("q35", 1 << 30), Boot(Outcome.READY, (), 1.0, "qemu")
    record = SystemTrace("disk:x", machine, boot, 1.0, "log", figures, True, (), (), LOADS, (), (), ())
    known = KnownSource(TREE.facts, AskedNames("6.12.1", {}, {}), demand_rules.load(), TREE.kconfig)
    return SystemPlanInputs(record, [LOG], BASELINE, SOURCE, TREE, known)


def test_what_was_loaded_when_it_was_asked_for_stays_a_module(inputs: SystemPlanInputs) -> None:
    found = system_plan.make_system_plan(inputs, system_plan.find_demands(inputs), Wishes(), catalogue=BOOK)
    values = {c.id: c.setting.value for c in found.symbols}
    assert values["IPV6"] == "m" and values["INET"] == "y"
    assert found.unexplained == ()
    assert values["PROC_FS"] == "y"  # for its own init
    assert values.get("NUMA", "n") == "n"  # its root is no partition
    assert found.root_format is RootFormat.EXT4


def test_a_root_that_is_an_xfs_on_a_volume_has_both_and_no_ext4() -> None:
    """With the catalogue that comes with the program."""
    book = symbol_catalogue.load(architecture="x86_64")
    own = Situation(machine="q35", root_format=RootFormat.XFS, kernel_version="6.12.1", own_init=True, mapped=True)
    chosen = {name: value for entry in book.chosen(own) for name, value in entry.symbols}
    assert {chosen.get(name) for name in ("XFS_FS", "XFS_POSIX_ACL", "MD", "BLK_DEV_DM", "DM_INIT")} == {"y"}
    assert "EXT4_FS" not in chosen
    plain = replace(own, root_format=RootFormat.EXT4, mapped=False)
    chosen = {name: value for entry in book.chosen(plain) for name, value in entry.symbols}
    assert chosen["EXT4_FS"] == "y" and not {"XFS_FS", "BLK_DEV_DM", "DM_INIT"} & chosen.keys()


def test_a_module_that_a_device_brought_is_the_machines_to_decide(inputs: SystemPlanInputs) -> None:
    found = system_plan.make_system_plan(inputs, system_plan.find_demands(inputs), Wishes(), catalogue=BOOK)
    assert found.symbol("PARTS_FS") is None


def test_without_modules_everything_is_built_in(inputs: SystemPlanInputs) -> None:
    demands = system_plan.find_demands(inputs)
    found = system_plan.make_system_plan(inputs, demands, Wishes(), as_modules=False, catalogue=BOOK)
    assert {c.setting.value for c in found.symbols if c.is_kept} == {"y"}


def test_reasons_lead_to_the_line_and_the_task(inputs: SystemPlanInputs) -> None:
    found = system_plan.make_system_plan(inputs, system_plan.find_demands(inputs), Wishes(), catalogue=BOOK)
    change = found.symbol("IPV6")
    assert change is not None
    assert {reason.reference for reason in change.reasons} == {"trace:requests:2", "trace:requests:4"}
    assert "engine made the kernel load af: the kernel asked for net-pf-10 on its behalf" in {
        reason.text for reason in change.reasons
    }


def test_dependencies_of_modules_are_modules_where_they_may_be() -> None:
    kconfig = TREE.kconfig
    base = (("64BIT", "y"), ("EXPERT", "y"), ("MODULES", "y"), ("DISK", "y"))
    found = dict(close(kconfig, (*base, ("PARTS_XATTR", "y")), frozenset({"PARTS_FS"})).fragment)
    assert found["PARTS_FS"] == "y"  # what is built in needs it so
    assert dict(close(kconfig, (*base, ("IPV6", "m")), frozenset({"NET", "INET"})).fragment)["IPV6"] == "m"


def test_a_module_that_something_built_in_selects_is_built_in() -> None:
    kconfig = TREE.kconfig
    base = (("64BIT", "y"), ("EXPERT", "y"), ("MODULES", "y"), ("BUS_A", "y"), ("DISK", "y"))
    asked = (*base, ("PARTS_FS", "m"), ("PARTS_USER", "y"))
    found = close(kconfig, asked, frozenset({"PARTS_FS"}))
    assert dict(found.fragment)["PARTS_FS"] == "y" and not found.lost
    # Nobody selects it: a module. Nobody had it as one: that it is none is told.
    assert dict(close(kconfig, asked[:-1], frozenset({"PARTS_FS"})).fragment)["PARTS_FS"] == "m"
    assert [item.name for item in close(kconfig, asked).lost] == ["PARTS_FS"]


def test_a_plan_has_a_selected_module_built_in(inputs: SystemPlanInputs) -> None:
    loads = (*LOADS, ModuleLoad("parts", "fs/parts/parts", LoadedFor.REQUEST, "fs-parts", "engine", 6))
    asked = replace(inputs, record=replace(inputs.record, loads=loads))
    demands = system_plan.find_demands(asked)
    made = system_plan.make_system_plan(asked, demands, Wishes(), catalogue=BOOK)
    kept = system_plan.make_system_plan(asked, demands, Wishes(keep=("PARTS_USER",)), catalogue=BOOK)
    values = [{c.id: c.setting.value for c in plan.symbols}["PARTS_FS"] for plan in (made, kept)]
    assert values == ["m", "y"] and ("PARTS_FS", "y") in kept.fragment


def test_conditions_of_entries_know_systems() -> None:
    own = Situation("q35", RootFormat.EXT4, "6.12.1", own_init=True)
    ids = {entry.id for entry in symbol_catalogue.load().chosen(own)}
    assert {"device-nodes", "scripts", "root-ext4", "access-control-lists"} <= ids and "partition-tables" not in ids
    others = {e.id for e in symbol_catalogue.load().chosen(Situation("q35", RootFormat.EXT4, "6.12.1"))}
    assert not {"device-nodes", "access-control-lists"} & others


def test_without_modules_what_was_one_is_built_in(inputs: SystemPlanInputs) -> None:
    demands = system_plan.find_demands(inputs)
    made = system_plan.make_system_plan(inputs, demands, Wishes(), as_modules=False, catalogue=BOOK)
    found = made.symbol("IPV6")
    assert found is not None and found.value == "y" and made.symbol("MODULES") is None


def test_what_a_trial_put_back_is_there_with_its_reason(inputs: SystemPlanInputs) -> None:
    demands, reason = system_plan.find_demands(inputs), Reason(Cause.REPAIR, "repair:trial:2", "without it: it fails")
    put_back = symbol("NUMA", "y", reason, before="n")
    made = system_plan.make_system_plan(inputs, demands, Wishes(), as_modules=False, tried=[put_back], catalogue=BOOK)
    found = made.symbol("NUMA")
    assert found is not None and found.value == "y" and reason in found.reasons
