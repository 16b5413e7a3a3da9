# SPDX-License-Identifier: Apache-2.0
"""The plan of a system: the smallest configuration that has everything its trace asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.changes.symbol_catalogue import Catalogue
from vmtailor.analysis.cost.attribution import SymbolCost
from vmtailor.analysis.demands import demand_rules
from vmtailor.analysis.demands.demand import Demands, Head
from vmtailor.analysis.explain.lookup import KnownSource
from vmtailor.analysis.ksource import kbuild
from vmtailor.analysis.ksource.facts import reader
from vmtailor.analysis.systems.demands import SystemDemands
from vmtailor.analysis.systems.log import Mark, Reading
from vmtailor.base.cache.store import Store
from vmtailor.base.files import dot_config, records
from vmtailor.base.progress import step
from vmtailor.model.architecture import named
from vmtailor.model.change import Change
from vmtailor.model.plan import Plan, RootFormat
from vmtailor.model.watched.system_trace import LoadedFor, ModuleLoad, SystemTrace
from vmtailor.pipeline.known_source import whole_source
from vmtailor.stages.kernel_plan import KernelTree, Wishes, make_plan
from vmtailor.stages.system_files import OpenedSystem
from vmtailor.stages.system_watch import chunks_of


@dataclass(frozen=True)
class SystemPlanInputs:
    """The evidence of a plan. `requests`: the log in pieces; `baseline`: the configuration that was traced;
    `source`: the kernel's source folder; `known`: what it can be asked for; `head`: first bytes of a file of the
    system."""

    record: SystemTrace
    requests: Iterable[bytes]
    baseline: Mapping[str, str]
    source: Path
    tree: KernelTree
    known: KnownSource
    head: Head = lambda path: b""


def find_demands(inputs: SystemPlanInputs) -> SystemDemands:
    """Return all demands of the system, in one pass over its log."""
    enabled = {name: value for name, value in inputs.baseline.items() if value in ("y", "m")}
    demands = Demands(
        inputs.tree.facts,
        demand_rules.load(architecture=named(inputs.tree.architecture)),
        enabled,
        inputs.head,
        who="the system",
    )
    found = SystemDemands(demands, inputs.known, enabled)
    for one in Reading().read(inputs.requests):
        if not isinstance(one, Mark):
            found.event(one)
    found.loads(inputs.record.loads, symbol_in(inputs.source))
    return found


def symbol_in(source: Path) -> Callable[[str], str | None]:
    """Return a module's path in the tree, without ending → its symbol."""
    read = reader(source)
    return lambda path: kbuild.symbol_of_module(path, read)


#: Modules loaded for these reasons come after the root is mounted, on demand: they may stay modules.
_LATER = (LoadedFor.REQUEST, LoadedFor.NAME, LoadedFor.PERHAPS, LoadedFor.DEPENDENCY)


def on_demand(
    loads: Iterable[ModuleLoad], baseline: Mapping[str, str], symbol_of: Callable[[str], str | None]
) -> frozenset[str]:
    """Return the symbols whose modules were loaded while the system worked, and not for a device or the root. A module
    of the distribution that the system asks for when it needs it stays one, in its root."""
    found = (symbol_of(load.path) for load in loads if load.reason in _LATER and load.path)
    return frozenset(name for name in found if name is not None and baseline.get(name) == "m")


def make_system_plan(
    inputs: SystemPlanInputs,
    demands: SystemDemands,
    wishes: Wishes,
    *,
    as_modules: bool = True,
    ran: Mapping[str, SymbolCost] | None = None,
    tried: Sequence[Change] = (),
    catalogue: Catalogue | None = None,
) -> Plan:
    """Choose the configuration. `wishes` has the target machine and what the user says; devices are that machine's
    alone. Without `as_modules` everything is built in, and the root needs no folder of modules. `ran`, `tried`: as in
    `make_plan`.

    Raises as `make_plan` does."""
    later: frozenset[str] = frozenset()
    if as_modules:
        later = on_demand(inputs.record.loads, inputs.baseline, symbol_in(inputs.source))
    form = wishes.root_format if wishes.root_format is RootFormat.XFS else RootFormat.EXT4
    wishes = replace(wishes, root_format=form, writable=False, own_init=True, on_demand=later)
    return make_plan(
        None, demands.demands, inputs.tree, inputs.baseline, wishes, ran=ran, tried=tried, catalogue=catalogue
    )


#: The plan's file beside a trace.
PLAN = "plan.json"
#: Bytes of a configuration, and of a program, that are read of a system.
CONFIG_BYTES, HEAD_BYTES = 16 << 20, 64


def planned(found: OpenedSystem, record: SystemTrace, folder: Path, wishes: Wishes, store: Store) -> Plan | None:
    """Plan from the trace in `folder`, and keep the plan there. None when the system lacks its kernel's configuration,
    or the cache the source of its version."""
    installed = found.subject.installed
    if installed is None or not installed.config:
        return None
    source = whole_source(installed.release, found.subject.architecture, store)
    if source is None:
        return None
    baseline = dot_config.parse(found.root.text(installed.config, CONFIG_BYTES))
    with step("plan: what the system asked for"):
        inputs = SystemPlanInputs(
            record=record,
            requests=chunks_of(folder / record.requests_file),
            baseline=baseline,
            source=source.tree.path,
            tree=source.read,
            known=source.known,
            head=lambda path: found.root.begin(path, HEAD_BYTES),
        )
        disk = found.subject.disk
        if disk is not None:
            form = RootFormat(disk.root_type)
            wishes = replace(wishes, partitioned=disk.root != 0, mapped=disk.volume is not None, root_format=form)
        plan = make_system_plan(inputs, find_demands(inputs), wishes)
    records.save(plan, folder / PLAN)
    return plan
