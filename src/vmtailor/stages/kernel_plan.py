# SPDX-License-Identifier: Apache-2.0
"""Stage plan: choose the smallest configuration that has all demands, and name the reasons of each symbol."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vmtailor.analysis.changes import symbol_catalogue as catalogues
from vmtailor.analysis.changes.symbol_catalogue import Catalogue, CatalogueEntry, Situation
from vmtailor.analysis.demands import demand, demand_rules
from vmtailor.analysis.demands.demand import Demand, Demands, Head
from vmtailor.analysis.ksource import facts as ksource_facts
from vmtailor.analysis.ksource.closure import Closure, close
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.analysis.ksource.kconfig import Kconfig, Lost, Resolution, unknown_symbol
from vmtailor.analysis.ksource.kconfig_record import FORMAT as KCONFIG_FORMAT
from vmtailor.analysis.ksource.reasons import why_set
from vmtailor.analysis.reach.reach_symbols import Reached
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import BuildError
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.base.garbage import no_collections
from vmtailor.drivers.kernel.kconfig_shell import KconfigShell
from vmtailor.model.architecture import named, presumed, presumed_name
from vmtailor.model.change import Cause, Change, ChangeKind, Figure, Reason, Setting, exact, symbol
from vmtailor.model.exercise import Exercise
from vmtailor.model.image import ImageConfig
from vmtailor.model.kernel_needs import KernelNeed
from vmtailor.model.margin import Margin
from vmtailor.model.plan import Plan, RootFormat
from vmtailor.model.reach import Nearness
from vmtailor.model.syscalls import SyscallEvent

if TYPE_CHECKING:  # it brings numpy, which `explain` has no use for
    from vmtailor.analysis.cost.attribution import SymbolCost

#: Versions of tools that builds do without (drivers/kernel/kconfig_shell.py): pahole would put megabytes of types into
#: the kernel for whoever reads /sys/kernel/btf/vmlinux.
NO_TOOLS = frozenset({"PAHOLE_VERSION"})


@dataclass(frozen=True)
class KernelTree:
    """The facts of one kernel source tree."""

    facts: Facts
    kconfig: Kconfig

    architecture: str = field(default_factory=presumed_name)

    def always(self) -> frozenset[str]:
        """Return symbols that every kernel of this tree, architecture and compiler has."""
        return self.kconfig.resolve(tuple(named(self.architecture).kernel.always.items())).enabled


def read_tree(
    source: Path, version: str, source_id: str, store: Store | None = None, *, architecture: str | None = None,
    llvm: str = "",
) -> KernelTree:  # fmt: skip
    """Return the facts of a source tree for an architecture, from the store if it has them. `source_id`: names its
    content by a digest, or by package and version. `llvm`: the suffix of LLVM's programs, where these compile it.

    Raises BuildError when its Kconfig files cannot be read.
    """
    row = presumed() if architecture is None else named(architecture)
    shell = KconfigShell(source, architecture=row, store=store, source_id=source_id, llvm=llvm)
    with no_collections():
        kconfig = _kconfig(shell, store or Store())
    return KernelTree(ksource_facts.load(source, version, source_id, store, architecture=row), kconfig, row.name)


def _kconfig(shell: KconfigShell, store: Store) -> Kconfig:
    """Return the symbols of a tree: as they were parsed before, where the store has them."""
    if not shell.key:
        return _parsed(shell)
    made: list[Kconfig] = []

    def fill(folder: Path) -> None:
        made.append(_parsed(shell))
        write_atomic(folder / _PARSED, made[0].to_bytes(), private=True)

    file = store.get("kconfig", digest(KCONFIG_FORMAT, *shell.key), fill) / _PARSED
    if made:
        return made[0]
    try:
        return Kconfig.restored(file.read_bytes())
    except (msgspec.DecodeError, IndexError, OSError):  # damaged: it is only a copy
        return _parsed(shell)


_PARSED = "kconfig.msgpack"


def _parsed(shell: KconfigShell) -> Kconfig:
    try:
        return Kconfig(shell.env, shell)
    finally:
        shell.close()


#: Begins the reference of a symbol's reason where a target of `export` needs it.
TARGET_REFERENCE = "target:"


@dataclass(frozen=True)
class Wishes:
    """The user's wishes: symbols to keep (`NAME` or `NAME=value`) and to drop, machine, CPUs, format of the root.
    `needs`: of targets that the bundle is exported to, each with the target's text.

    `network`: None lets the trace decide. `terminal`: the entry point gets one. `writable`: the root can be written.
    `margins`: what is kept beyond what was demanded. `own_init`: the root has an init of its own; `partitioned`: it
    is a partition of its disk; `mapped`: it is a volume of the device mapper's; `on_demand`: symbols that are modules
    in the root where they are demanded."""

    architecture: str = field(default_factory=presumed_name)
    machine: str = field(default_factory=lambda: presumed().board_names[0])
    cpus: int = 1
    root_format: RootFormat = RootFormat.EROFS
    network: bool | None = None
    terminal: bool = False
    writable: bool = True
    keep: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    needs: tuple[tuple[str, KernelNeed], ...] = ()
    margins: tuple[Margin, ...] = ()
    own_init: bool = False
    partitioned: bool = False
    mapped: bool = False
    on_demand: frozenset[str] = frozenset()


@dataclass
class _Wanted:
    """Symbols wanted, with value and reasons, in the order in which they were asked for."""

    values: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, list[Reason]] = field(default_factory=dict)
    optional: set[str] = field(default_factory=set)

    def add(self, name: str, value: str, reason: Reason, *, optional: bool = False) -> None:
        known = self.values.get(name)
        if known is not None and value == "n" != known:
            return  # what one entry wants off and another on is on
        if known is None or (known == "n" and value != "n"):
            self.values[name] = value
            self.reasons[name] = []
            self.optional.discard(name)
            if optional:
                self.optional.add(name)
        elif reason.cause is not Cause.DEMANDED:
            # Of two values the later one is the more special: repair over policy over platform. Both meet a demand.
            self.values[name] = value
        if not optional:
            self.optional.discard(name)
        if reason not in self.reasons[name]:
            self.reasons[name].append(reason)

    def is_policy(self, name: str) -> bool:
        """Return whether policy alone asks for a symbol."""
        return all(reason.cause is Cause.POLICY for reason in self.reasons.get(name, ()))

    def may_lose(self, item: Lost) -> bool:
        """Return whether the machine can do without a symbol: its request is optional, or only a trace or a margin asks
        for it and no build of ours has the tools to make it."""
        seen = {reason.cause for reason in self.reasons.get(item.name, ())} <= {Cause.DEMANDED, Cause.MARGIN}
        return item.name in self.optional or (seen and not NO_TOOLS.isdisjoint(item.blocking))

    def forget(self, name: str) -> None:
        self.values.pop(name, None)
        self.reasons.pop(name, None)


def find_demands(
    image: ImageConfig,
    exercise: Exercise,
    events: Iterable[SyscallEvent],
    tree: KernelTree,
    baseline: Mapping[str, str],
    *,
    head: Head = lambda path: b"",
    architecture: str | None = None,
) -> Demands:
    """Return the demands of the container. `baseline`: the traced configuration. `head`: gives the first bytes of a
    file."""
    row = presumed() if architecture is None else named(architecture)
    enabled = {n: v for n, v in baseline.items() if v in ("y", "m")}
    demands = Demands(tree.facts, demand_rules.load(architecture=row), enabled, head)
    demand.of_image(image, demands)
    demand.of_exercise(exercise, demands)
    demand.of_events(events, demands)
    demand.of_user(image, demands)
    return demands


def make_plan(
    image: ImageConfig | None,
    demands: Demands,
    tree: KernelTree,
    baseline: Mapping[str, str],
    wishes: Wishes = Wishes(),
    *,
    ran: Mapping[str, SymbolCost] | None = None,
    tried: Sequence[Change] = (),
    reached: Sequence[Reached] = (),
    catalogue: Catalogue | None = None,
) -> Plan:
    """Choose the configuration. `image`: None for a system with an init of its own. `ran`: symbol → what it cost in the
    trace, which is what is expected of leaving it out, and nothing else depends on it. `tried`: symbols that trials put
    back, or have shown to be unneeded, in their order.
    `reached`: what the image could ask for, of which the margin `reachable` keeps what is near to what was opened.

    Raises BuildError when a symbol that must be there cannot be set on this tree, with the dependency that lost it;
    UserInputError when the user keeps or drops an unknown symbol.
    """
    book = catalogue if catalogue is not None else catalogues.load(architecture=wishes.architecture)
    network = wishes.network
    if network is None:
        network = image is None or demand.wants_network(image, demands)
    situation = Situation(
        machine=wishes.machine,
        root_format=wishes.root_format,
        kernel_version=tree.facts.kernel_version,
        cpus=wishes.cpus,
        network=network,
        terminal=wishes.terminal,
        writable=wishes.writable,
        architecture=wishes.architecture,
        own_init=wishes.own_init,
        partitioned=wishes.partitioned,
        mapped=wishes.mapped,
        modules=bool(wishes.on_demand),
    )
    entries = book.chosen(situation)
    margin = (*_listed(wishes, situation), *(_reachable(reached) if Margin.REACHABLE in wishes.margins else ()))
    wanted = _collect(demands.result(), entries, margin, tried, tree.kconfig, wishes)
    modules = frozenset(name for name, value in baseline.items() if value == "m") if wishes.on_demand else frozenset()
    closure, given_up = _close(tree.kconfig, wanted, wishes, baseline, modules)
    fragment = _minimal(tree.kconfig, closure, wanted)
    resolution = tree.kconfig.resolve(fragment)
    reasons = _reasons(tree.kconfig, resolution, wanted, closure, dict(fragment))
    changes = (
        *_symbols(tree.kconfig, resolution, reasons, baseline, ran or {}),
        *(_word(word, Reason(entry.cause, entry.reference, entry.reason)) for entry in entries for word in entry.words),
        *_gone(tree.kconfig, resolution, reasons, baseline, ran or {}),
    )
    return Plan(
        kernel_version=tree.facts.kernel_version,
        machine=wishes.machine,
        cpus=wishes.cpus,
        root_format=wishes.root_format,
        fragment=tuple(fragment),
        changes=changes,
        total_y=resolution.total_y,
        prompted_y=resolution.prompted_y,
        unexplained=tuple(name for name, found in reasons.items() if not found),
        given_up=given_up,
        network=network,
        architecture=wishes.architecture,
        margins=wishes.margins,
    )


def _listed(wishes: Wishes, situation: Situation) -> Iterator[tuple[str, str, Reason]]:
    """Yield symbols of the margins that are lists of ours."""
    for margin in wishes.margins:
        for entry in catalogues.of_margin(margin).chosen(situation):
            reason = Reason(entry.cause, entry.reference, entry.reason)
            yield from ((name, value, reason) for name, value in entry.symbols)


def _reachable(reached: Sequence[Reached]) -> Iterator[tuple[str, str, Reason]]:
    """Yield symbols that files near to what was opened could ask for, each with the first that does."""
    seen = set()
    for one in reached:
        if one.file.nearness is Nearness.IN_IMAGE:
            continue
        for name in one.symbols:
            if name not in seen:
                seen.add(name)
                yield name, "y", Reason(Cause.MARGIN, one.reference, one.text)


def _collect(
    demands: Sequence[Demand],
    entries: Sequence[CatalogueEntry],
    margin: Sequence[tuple[str, str, Reason]],
    tried: Sequence[Change],
    kconfig: Kconfig,
    wishes: Wishes,
) -> _Wanted:
    wanted = _wanted(demands, entries, margin, kconfig, wishes.on_demand)
    for change in tried:
        name, value = change.setting.name, change.setting.value or "n"
        if value == "n":
            wanted.forget(name)
        for reason in change.reasons:
            wanted.add(name, value, reason)
    for text in wishes.keep:
        name, _, value = text.removeprefix("CONFIG_").partition("=")
        _require_known(kconfig, name)
        wanted.add(name, value or "y", Reason(Cause.POLICY, "user:keep", "the user keeps it"))
    for target, need in wishes.needs:
        for name, value in need.symbols.items():
            if kconfig.known(name):
                wanted.add(name, value, Reason(Cause.USER, f"{TARGET_REFERENCE}{target}", need.reason))
    for text in wishes.drop:
        name = text.removeprefix("CONFIG_")
        _require_known(kconfig, name)
        wanted.forget(name)
        wanted.add(name, "n", Reason(Cause.POLICY, "user:drop", "the user drops it"))
    return wanted


def _wanted(
    demands: Sequence[Demand],
    entries: Sequence[CatalogueEntry],
    margin: Sequence[tuple[str, str, Reason]],
    kconfig: Kconfig,
    on_demand: Container[str],
) -> _Wanted:
    """Return the symbols that are wanted in any trial, before the user's choices of single symbols."""
    wanted = _Wanted()
    for entry in entries:
        for name, value in entry.symbols:
            if value == "n" and not kconfig.known(name):
                continue
            reason = Reason(entry.cause, entry.reference, entry.reason)
            wanted.add(name, value, reason, optional=entry.if_possible)
    for found in demands:
        for name in found.symbols:
            if kconfig.known(name):
                value = "m" if name in on_demand else "y"
                wanted.add(name, value, Reason(Cause.DEMANDED, found.reference, found.text))
    for name, value, reason in margin:  # a margin that cannot be had is given up, whatever it is
        if kconfig.known(name):
            wanted.add(name, value, reason, optional=True)
    return wanted


def _require_known(kconfig: Kconfig, name: str) -> None:
    if not kconfig.known(name):
        raise unknown_symbol(name, kconfig.symbols)


def _close(
    kconfig: Kconfig, wanted: _Wanted, wishes: Wishes, baseline: Mapping[str, str], modules: Container[str]
) -> tuple[Closure, tuple[str, ...]]:
    """Add what dependencies need. What is lost is given up where it may be, and an error otherwise.

    What the user drops excuses only what falls with it, and what the user keeps only policy that cannot be had beside
    it: a symbol that would be lost without that, too, is an error."""
    dropped = named_symbols(wishes.drop)
    kept = named_symbols(wishes.keep) | {name for _, need in wishes.needs for name in need.symbols}
    given_up: list[str] = []
    while True:
        closure = close(kconfig, wanted.values.items(), modules, baseline)
        lost = [item for item in closure.lost if item.name not in dropped]
        hard = [item for item in lost if not wanted.may_lose(item)]
        if hard and (dropped or kept):
            anyway = _lost_without(kconfig, wanted, dropped)
            own = _lost_without(kconfig, wanted, dropped | kept)
            hard = [item for item in hard if item.name in (own if wanted.is_policy(item.name) else anyway)]
        if hard:
            raise BuildError(
                f"the configuration cannot have {', '.join(item.name for item in hard)}",
                hint="look at the dependency that lost it; --drop SYMBOL does without",
                details="\n".join(_sentence(item, wanted) for item in hard),
            )
        for item in lost:
            given_up.append(_sentence(item, wanted))
            wanted.forget(item.name)
        if not lost:
            given_up += [_sentence(item, wanted) for item in closure.lost]
            return closure, tuple(given_up)


def named_symbols(wishes: Iterable[str]) -> set[str]:
    """Return the symbols that a user keeps or drops: `NAME` or `NAME=value`, with or without `CONFIG_`."""
    return {wish.removeprefix("CONFIG_").partition("=")[0] for wish in wishes}


def _lost_without(kconfig: Kconfig, wanted: _Wanted, names: Set[str]) -> set[str]:
    """Return the symbols that would be lost if some symbols were not set."""
    return {item.name for item in close(kconfig, [(n, v) for n, v in wanted.values.items() if n not in names]).lost}


def _sentence(item: Lost, wanted: _Wanted) -> str:
    reasons = "; ".join(f"{r.reference} ({r.text})" for r in wanted.reasons.get(item.name, ())[:3])
    return f"{item}, wanted by {reasons}" if reasons else str(item)


def _minimal(kconfig: Kconfig, closure: Closure, wanted: _Wanted) -> list[tuple[str, str]]:
    """Return the lines for allnoconfig: only symbols with a prompt (others cannot be set), n only against a default."""
    return [
        (name, value)
        for name, value in closure.fragment
        if kconfig.known(name) and kconfig.prompted(name) and (name in wanted.values or value != "n")
    ]


def _reasons(
    kconfig: Kconfig, resolution: Resolution, wanted: _Wanted, closure: Closure, fragment: Mapping[str, str]
) -> dict[str, tuple[Reason, ...]]:
    """Return every symbol that is set, and what else was asked for, with its reasons: none where nothing explains
    it."""
    added = {a.name: Reason(Cause.DEPENDENCY, f"symbol:{a.parent}", a.how) for a in closure.added}
    found = {}
    for name in sorted(resolution.enabled | {n for n in wanted.values if kconfig.known(n)}):
        reasons = list(wanted.reasons.get(name, ()))
        if not reasons and name in added and name in fragment:
            reasons.append(added[name])
        if not reasons and (why := why_set(kconfig, name)) is not None:
            reasons.append(why)
        found[name] = tuple(reasons)
    return found


def _symbols(
    kconfig: Kconfig,
    resolution: Resolution,
    reasons: Mapping[str, tuple[Reason, ...]],
    baseline: Mapping[str, str],
    ran: Mapping[str, SymbolCost],
) -> Iterator[Change]:
    for name, why in reasons.items():
        value = resolution.values.get(name, "n")
        change = symbol(name, value, *why, before=baseline.get(name), chosen=kconfig.prompted(name))
        yield _expecting(change, ran.get(name)) if value == "n" else change


def _word(word: str, reason: Reason) -> Change:
    name, _, value = word.partition("=")
    return Change(word, "", (Setting(ChangeKind.COMMAND_LINE, name, value),), (reason,))


def _gone(
    kconfig: Kconfig,
    resolution: Resolution,
    named: Container[str],
    baseline: Mapping[str, str],
    ran: Mapping[str, SymbolCost],
) -> tuple[Change, ...]:
    """Return the symbols of the baseline that the plan leaves out because nothing asked for them. Those that ran most
    come first, then the built-in ones. Symbols without a prompt are listed only if they ran."""
    found = []
    for name, value in baseline.items():
        if value not in ("y", "m") or name in resolution.enabled or name in named or not kconfig.is_switch(name):
            continue
        cost, prompted = ran.get(name), kconfig.prompted(name)
        if cost is None and (value != "y" or not prompted):
            continue  # a module that was not even loaded, or nothing that anybody could have set
        found.append(_expecting(symbol(name, "n", before=value, chosen=prompted), cost))
    return tuple(sorted(found, key=lambda c: (-c.saves(Figure.TRACE_INSTRUCTIONS), c.id)))


def _expecting(change: Change, cost: SymbolCost | None) -> Change:
    """Return a change that leaves a symbol out, with what its code cost on the baseline."""
    if cost is None:
        return change
    source = "the instructions put down to it on the baseline"
    expected = (
        exact(Figure.INIT_INSTRUCTIONS_NET, -cost.to_init_net, source),
        exact(Figure.TRACE_INSTRUCTIONS, -cost.instructions, source),
    )
    return replace(change, evidence=cost.evidence, expected=expected)
