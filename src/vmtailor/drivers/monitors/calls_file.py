# SPDX-License-Identifier: Apache-2.0
"""File of calls, as the plugin that follows them leaves it.

It is `VTCALLS1`, then chunks (plugin_chunks.py):

    OWNR MRKN  `count` strings, each ended by a zero byte: names of owners, of marks
    NODE   nodes of the tree since the last NODE: parent u32, function u32; the first four are no functions
    STEP   a stretch that ended: mark i64 (-1: QEMU's end); early, kernel, user instructions since reset, three u64
    USER   behind a STEP: instructions of each owner's programs since the last one, u64
    WORK   likewise: rows (purpose, own u64, soft u64); a purpose has the same place in all of them
    CASE   likewise: rows (purpose, own u64, soft u64, count u64, sum of own u64, sum of soft u64)
    CONT   likewise: rows of nodes that ran: node u32, place of the purpose u32, own instructions u64, times entered u64
    CUT.   entries for which there was no node, u64; whether cases were rounded, u64
    END.   nothing; its absence says that QEMU died

purpose: kind u16, owner u16, object i32, function u32, 0 u32.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np

from vmtailor.drivers.monitors import plugin_chunks
from vmtailor.model.boots.call_graph import (
    ROOT_NODES,
    CallCase,
    CallGraph,
    CallPurpose,
    CallStretch,
    KernelWork,
    WorkKind,
)
from vmtailor.model.boots.counters import END_MARK

MAGIC = b"VTCALLS1"
_STEP = struct.Struct("<q3Q")
_PURPOSE = "HHiII"
_WORK = struct.Struct(f"<{_PURPOSE}2Q")
_CASE = struct.Struct(f"<{_PURPOSE}5Q")
_NODE = np.dtype([("parent", "<u4"), ("function", "<u4")])
_COUNT = np.dtype([("node", "<u4"), ("purpose", "<u4"), ("self", "<u8"), ("entered", "<u8")])


def parse(data: bytes, origin: str = "calls") -> CallGraph:
    """Return the calls in a file. Raises UserInputError when it is damaged; a file that lacks its end is read as far as
    it goes, and says so (`complete`)."""
    reader = _Reader()
    return plugin_chunks.read(data, MAGIC, origin, reader.take, reader.finish)


@dataclass
class _Step:
    mark: int
    early: int
    kernel: int
    users: list[int] = field(default_factory=list)
    rows: np.ndarray = field(default_factory=lambda: np.empty(0, _COUNT))
    works: list[KernelWork] = field(default_factory=list)
    cases: list[CallCase] = field(default_factory=list)
    whole: bool = False


@dataclass
class _Reader:
    owners: list[str] = field(default_factory=list)
    marks: list[str] = field(default_factory=list)
    nodes: list[np.ndarray] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)
    limits: tuple[int, ...] = (0, 0)
    complete: bool = False

    def take(self, tag: bytes, count: int, payload: memoryview) -> None:
        if tag in (b"OWNR", b"MRKN"):
            names = plugin_chunks.texts(payload, count)
            self.owners, self.marks = (names, self.marks) if tag == b"OWNR" else (self.owners, names)
        elif tag == b"NODE":
            self.nodes.append(np.frombuffer(payload, _NODE))
        elif tag == b"STEP":
            mark, early, kernel, _ = _STEP.unpack(payload)
            self.steps.append(_Step(mark, early, kernel))
        elif tag == b"USER":
            self.steps[-1].users = list(struct.unpack(f"<{count}Q", payload))
        elif tag == b"CONT":
            self.steps[-1].rows = np.frombuffer(payload, _COUNT)
            self.steps[-1].whole = True
        elif tag == b"WORK":
            self.steps[-1].works = [KernelWork(self._purpose(row[:5]), *row[5:]) for row in _WORK.iter_unpack(payload)]
        elif tag == b"CASE":
            self.steps[-1].cases = [_case(self._purpose(row[:5]), row) for row in _CASE.iter_unpack(payload)]
        elif tag == b"CUT.":
            self.limits = struct.unpack("<2Q", payload)
        elif tag == b"END.":
            self.complete = True
        else:
            raise ValueError(f"unknown chunk {tag!r}")

    def _purpose(self, row: tuple[int, ...]) -> CallPurpose:
        kind, owner, on, function, _ = row
        return CallPurpose(WorkKind(kind), self.owners[owner], on, function)

    def finish(self) -> CallGraph:
        table = np.concatenate([np.empty(0, _NODE), *self.nodes])
        parent = table["parent"]
        # Parents come before their children, which keeps every walk upwards finite.
        if (parent[ROOT_NODES:] >= np.arange(ROOT_NODES, max(len(parent), ROOT_NODES))).any() or parent[
            :ROOT_NODES
        ].any():
            raise ValueError("a node's parent comes behind it")
        begin, found, early, kernel = "reset", [], 0, 0
        for step in (one for one in self.steps if one.whole):  # the last one may be cut off
            if len(step.rows) and step.rows["node"].max() >= len(table):
                raise ValueError("a count of an unknown node")
            if len(step.rows) and step.rows["purpose"].max() >= len(step.works):
                raise ValueError("a count of an unknown purpose")
            end = END_MARK if step.mark < 0 else self.marks[step.mark]
            found.append(
                CallStretch(
                    begin=begin, end=end, early=step.early - early, kernel=step.kernel - kernel,
                    users=dict(zip(self.owners, step.users, strict=True)),
                    node=step.rows["node"], self=step.rows["self"], entered=step.rows["entered"],
                    purpose=step.rows["purpose"],
                    works=tuple(step.works), cases=tuple(step.cases),
                )
            )  # fmt: skip
            begin, early, kernel = end, step.early, step.kernel
        cut, rounded = self.limits
        return CallGraph(
            parent=parent,
            function=table["function"],
            owners=tuple(self.owners),
            stretches=tuple(found),
            complete=self.complete,
            cut=cut,
            rounded=bool(rounded),
        )


def _case(purpose: CallPurpose, row: tuple[int, ...]) -> CallCase:
    own, soft, count, all_own, all_soft = row[5:]
    return CallCase(purpose=purpose, own=own, soft=soft, count=count, all_own=all_own, all_soft=all_soft)
