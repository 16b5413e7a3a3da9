# SPDX-License-Identifier: Apache-2.0
"""A phase of a followed boot: what each kind of work cost, and the tree of calls with its figures. Pure.

All figures are instructions of the kernel. Three sums of a phase are the same number: of its rows, of its tree, and of
its functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from vmtailor.analysis.calls import followed_code
from vmtailor.analysis.cost.plugin_counts import PHASE_MARKS, UNKNOWN
from vmtailor.base.errors import UserInputError
from vmtailor.model.boots.boot import Phase
from vmtailor.model.boots.call_graph import (
    INTERRUPTS,
    OTHERS,
    ROOT,
    ROOT_NODES,
    THREADS,
    CallCase,
    CallGraph,
    CallPurpose,
    CallStretch,
    WorkKind,
)
from vmtailor.model.call_code import CallCode

#: The owner of the container's own programs, as people know it: the plugin tells ours from all others.
PROGRAM = "program"
_OWNERS = {"other": PROGRAM, "boot": "kernel"}
#: Work of the code that the kernel begins with, and which becomes its idle thread.
_FIRST = "[boot and idle]"
_ROOTS = {ROOT: "[kernel]", INTERRUPTS: "[interrupts]", THREADS: "[threads]", OTHERS: "[other paths]"}


class During(StrEnum):
    """The parts of a boot that figures are told of: the load, all until ready, or everything."""

    LOAD = "load"
    BOOT = "boot"
    ALL = "all"


_PHASES = {
    During.LOAD: frozenset({Phase.LOAD}),
    During.BOOT: frozenset({Phase.FIRMWARE, Phase.KERNEL, Phase.INIT, Phase.START_UP}),
    During.ALL: frozenset(Phase),
}


@dataclass(frozen=True)
class CallCost:
    """The cost of one kind of work of one owner. `call`: a system call's name, or the function that began other work;
    `on`: what it is made on, or empty. `own` and `soft`: instructions that were executed for it, and within it deferred
    work of interrupts. Of those that ended, `count`: the least, the mean, the most, and the most of all but one in a
    hundred (None where fewer than a hundred ended), without deferred work; `lengths`: instructions → how many."""

    kind: WorkKind
    call: str
    on: str
    owner: str
    own: int
    soft: int
    count: int
    least: int | None = None
    mean: float | None = None
    most: int | None = None
    p99: int | None = None
    lengths: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class FollowedBoot:
    """A followed boot with the names of its functions, by number. `code`: how its processor's calls look. `requests`:
    of its exercise, 0 where it asks for none."""

    graph: CallGraph
    names: Sequence[str]
    code: CallCode
    requests: int = 0

    def function(self, number: int) -> str:
        """Return the name of a function."""
        return self.names[number] if number < len(self.names) else UNKNOWN

    def stretches(self, during: During) -> tuple[CallStretch, ...]:
        """Return the stretches of a part of the boot. A phase never comes back, as in the figures of counted boots."""
        order, now, found = list(Phase), Phase.FIRMWARE, []
        for stretch in self.graph.stretches:
            now = max(now, PHASE_MARKS.get(stretch.begin, now), key=order.index)
            if now in _PHASES[during]:
                found.append(stretch)
        return tuple(found)

    def total(self, during: During) -> int:
        """Return the kernel's instructions in a part of the boot, as they were counted."""
        return sum(stretch.kernel for stretch in self.stretches(during))

    def owner(self, name: str) -> str:
        """Return an owner's name for people."""
        return _OWNERS.get(name, name)

    def work(self, purpose: CallPurpose) -> str:
        """Return the system call's name, or that of the function that began other work."""
        if purpose.function >= len(self.names):
            return _FIRST
        return followed_code.call_name(self.function(purpose.function), self.code)

    def object_title(self, number: int) -> str:
        """Return the title of what calls are made on, or empty."""
        known = followed_code.objects().object
        return known[number].title if 0 <= number < len(known) else ""

    def costs(self, during: During) -> tuple[CallCost, ...]:
        """Return the cost of each kind of work, dearest first. Their sum is the kernel's total."""
        Key = tuple[WorkKind, str, str, str]
        work: dict[Key, list[int]] = {}
        ended: dict[Key, list[CallCase]] = {}

        def key(purpose: CallPurpose) -> Key:
            on = self.object_title(purpose.object)
            return purpose.kind, self.work(purpose), on, self.owner(purpose.owner)

        for stretch in self.stretches(during):
            for one in stretch.works:
                if not one.own + one.soft:
                    continue  # done in another stretch
                sums = work.setdefault(key(one.purpose), [0, 0])
                sums[0] += one.own
                sums[1] += one.soft
            for case in stretch.cases:
                ended.setdefault(key(case.purpose), []).append(case)
        rows = [_cost(one, work.get(one, [0, 0]), ended.get(one, [])) for one in {**work, **ended}]
        return tuple(sorted(rows, key=lambda row: (-row.own - row.soft, row.call, row.on, row.owner)))

    def tree(self, during: During, call: str = "", on: str = "", owner: str = "") -> CallTree:
        """Return the tree of calls with its figures: of all work, or of one call, of calls on one thing, of one owner's
        where they are named. Raises UserInputError for a name that nothing in this part of the boot has."""
        own = np.zeros(len(self.graph.parent), np.int64)
        entered = np.zeros(len(self.graph.parent), np.int64)
        stretches = self.stretches(during)
        purposes = [work.purpose for stretch in stretches for work in stretch.works if work.own or work.soft]
        self._require("call", call, {self.work(one) for one in purposes})
        self._require("thing that calls are made on", on, {self.object_title(one.object) for one in purposes})
        self._require("owner of work", owner, {self.owner(one.owner) for one in purposes})
        for stretch in stretches:
            matching = [self._is_of(work.purpose, call, on, owner) for work in stretch.works]
            chosen = np.array(matching, np.bool_)[stretch.purpose.astype(np.int64)]
            np.add.at(own, stretch.node[chosen], stretch.self[chosen].astype(np.int64))
            np.add.at(entered, stretch.node[chosen], stretch.entered[chosen].astype(np.int64))
        return CallTree(self, own, entered)

    def _is_of(self, purpose: CallPurpose, call: str, on: str, owner: str) -> bool:
        return (
            (not call or self.work(purpose) == call)
            and (not on or self.object_title(purpose.object) == on)
            and (not owner or self.owner(purpose.owner) == owner)
        )

    @staticmethod
    def _require(what: str, name: str, known: set[str]) -> None:
        if name and name not in known:
            near = ", ".join(sorted(one for one in known if one)[:40])
            raise UserInputError(f"no {what} is called '{name[:64]}' here", hint=f"there are: {near}")


@dataclass(frozen=True, eq=False)
class CallTree:
    """The tree of calls with figures by node: `own` instructions, without those of callees, and times `entered`."""

    boot: FollowedBoot
    own: NDArray[np.int64]
    entered: NDArray[np.int64]

    @cached_property
    def whole(self) -> NDArray[np.int64]:
        """Return the instructions of each node with those of its callees. Parents come before their children."""
        found = self.own.copy()
        parent = self.boot.graph.parent
        for node in range(len(found) - 1, ROOT_NODES - 1, -1):
            found[parent[node]] += found[node]
        return found

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """Return the children of each node that ran, dearest first."""
        found: dict[int, list[int]] = {}
        parent, whole, entered = self.boot.graph.parent, self.whole, self.entered
        for node in np.flatnonzero((whole > 0) | (entered > 0)).tolist():
            if node >= ROOT_NODES:
                found.setdefault(int(parent[node]), []).append(node)
        for nodes in found.values():
            nodes.sort(key=lambda node: (-int(whole[node]), node))
        return found

    def name(self, node: int) -> str:
        """Return the name of a node's function, or of a root."""
        return _ROOTS[node] if node < ROOT_NODES else self.boot.function(int(self.boot.graph.function[node]))

    def roots(self) -> tuple[int, ...]:
        """Return the roots that ran."""
        return tuple(node for node in range(ROOT_NODES) if self.whole[node])

    def functions(self) -> dict[str, int]:
        """Return each function's own instructions, along all paths."""
        sums = np.zeros(len(self.boot.names) + 1, np.int64)
        at = np.minimum(self.boot.graph.function[ROOT_NODES:], len(self.boot.names))
        np.add.at(sums, at, self.own[ROOT_NODES:])
        found: dict[str, int] = {}
        for number in np.flatnonzero(sums).tolist():
            name = self.boot.function(number)
            found[name] = found.get(name, 0) + int(sums[number])
        return found


def _cost(key: tuple[WorkKind, str, str, str], work: Sequence[int], cases: Iterable[CallCase]) -> CallCost:
    kind, call, on, owner = key
    lengths: dict[int, int] = {}
    count = total = 0
    for case in cases:
        lengths[case.own] = lengths.get(case.own, 0) + case.count
        count += case.count
        total += case.all_own
    ordered = tuple(sorted(lengths.items()))
    return CallCost(
        kind=kind, call=call, on=on, owner=owner, own=work[0], soft=work[1], count=count,
        least=ordered[0][0] if ordered else None,
        mean=total / count if count else None,
        most=ordered[-1][0] if ordered else None,
        p99=_percentile(ordered, count) if count >= 100 else None,
        lengths=ordered,
    )  # fmt: skip


def _percentile(ordered: Sequence[tuple[int, int]], count: int) -> int:
    """Return the least length that at least 99 of 100 do not exceed."""
    seen = 0
    for length, how_many in ordered:
        seen += how_many
        if seen * 100 >= count * 99:
            return length
    raise AssertionError("nothing ended")
