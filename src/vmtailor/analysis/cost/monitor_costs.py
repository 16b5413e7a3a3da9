# SPDX-License-Identifier: Apache-2.0
"""The plugin's counters of a lab and its guest → milestones and cost of the monitor. Pure."""

from __future__ import annotations

import io
import re
from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.model.boots.boot import Milestone
from vmtailor.model.boots.counters import ENTRY, START_KERNEL, CodeMark, CodeSpan, Counters, CountingConfig, Totals
from vmtailor.model.boots.exits import ExitCost, ExitPlace, ExitRows, MonitorCost, MonitorPart
from vmtailor.model.guest import GuestMark

#: Milestones around the guest's own: the monitor is executed, has made a machine, enters it first, is gone.
MONITOR, MACHINE, ENTERED, GONE = "monitor", "machine", "entered", "gone"
#: KVM calls this when it has made a machine: it alone is told when its threads are preempted.
_MACHINE_MADE = "preempt_notifier_inc"
#: The span at each entry into the guest; other spans have the names of functions.
_ENTRY = "entry"
#: Begins the line of an exit in KVM's trace.
_EXIT_LINE = "kvm_exit:"
OTHER = "other"


def config(
    lab: SymbolTable, around: Mapping[str, int], guest: Sequence[CodeMark], kernel: int | None, rows: ExitRows
) -> CountingConfig:
    """Return what is counted in a lab: `lab` names its functions, `around` the marks of the program that begins the
    monitor; `guest` are the milestones within the guest, and `kernel` is the address of its start_kernel."""
    marks = [CodeMark(name, at) for name, at in around.items()]
    marks += [CodeMark(MACHINE, lab.addresses[_MACHINE_MADE]), CodeMark(ENTERED, ENTRY)]
    marks += [replace(mark, in_guest=True) for mark in guest if mark.name != START_KERNEL]
    functions = {name for cause in rows.cause for name in (*cause.passes, *cause.then) if name in lab.addresses}
    spans = [CodeSpan(_ENTRY, ENTRY), *(CodeSpan(name, lab.addresses[name]) for name in sorted(functions))]
    return CountingConfig(
        kernel=lab.addresses[START_KERNEL], marks=tuple(marks), spans=tuple(spans), architecture=lab.architecture,
        guests=True, guest_kernel=kernel,
    )  # fmt: skip


def reached(counters: Counters) -> dict[str, Totals]:
    """Return the totals at each milestone since the monitor's exec, in order, those of the guest behind its entry. None
    of them before the exec: starting the lab is no part of it. Empty where the monitor was not executed."""
    found: dict[str, Totals] = {}
    for name, totals in counters.marks:
        if name == MONITOR or found:
            found.setdefault(name, totals)
    return found


def cost(counters: Counters, rows: ExitRows, lab: SymbolTable, lasted_ns: int | None) -> MonitorCost | None:
    """Return the cost of the monitor; None where it was not executed. `lab`: the functions of the lab's kernel;
    `lasted_ns`: from the monitor's exec to its end."""
    at = reached(counters)
    if MONITOR not in at:
        return None
    by_bytes = _by_bytes(counters, at, lab, rows.by_bytes)
    parts = tuple(_part(begin, end, at[end].since(at[begin]), by_bytes[end]) for begin, end in pairwise(at))
    waited = None
    if lasted_ns is not None and GONE in at:
        waited = max(0, lasted_ns - at[GONE].since(at[MONITOR]).executed)
    return MonitorCost(parts=parts, causes=_causes(counters, rows, at), waited_ns=waited)


def _by_bytes(counters: Counters, at: Mapping[str, Totals], lab: SymbolTable, functions: Iterable[str]) -> Tally[str]:
    """Return the instructions of some functions of the lab's kernel in each part, by the milestone that ends it."""
    names = {number for number, name in enumerate(lab.names) if name in set(functions)}
    wanted = np.isin(lab.index_of(counters.blocks.vaddr), list(names))
    found: Tally[str] = Tally()
    ends = iter(at)
    end = next(ends)
    for stretch in counters.stretches:
        found[end] += int(stretch.executed[wanted[stretch.block]].sum())
        if stretch.end == end:  # a milestone that comes again ends no part
            end = next(ends, "")
    return found


def _part(begin: str, end: str, totals: Totals, by_bytes: int) -> MonitorPart:
    return MonitorPart(
        begin=begin, end=end, host_user=totals.user, host_kernel=totals.kernel + totals.early,
        guest_kernel=totals.guest.kernel + totals.guest.early, guest_user=totals.guest.user,
        exits=totals.guest.entries, by_bytes=by_bytes,
    )  # fmt: skip


def _causes(counters: Counters, rows: ExitRows, at: Mapping[str, Totals]) -> tuple[ExitCost, ...]:
    """Return the exits until the guest was ready, or gone, by cause; those that cost most first."""
    end = next((at[name] for name in ("ready", "end", GONE) if name in at), None)
    found: dict[str, ExitCost] = {}
    passed: set[str] = set()
    entered: Totals | None = None
    for span in counters.spans:
        if span.name != _ENTRY:
            passed.add(span.name)
            continue
        if end is not None and span.at.executed > end.executed:
            break
        if entered is not None:
            spent = span.at.since(entered)
            cause = _cause(passed, rows)
            row = found.get(cause, ExitCost(cause))
            found[cause] = replace(
                row, exits=row.exits + 1, to_monitor=row.to_monitor + (spent.user > 0),
                host_kernel=row.host_kernel + spent.kernel + spent.early, host_user=row.host_user + spent.user,
            )  # fmt: skip
        entered, passed = span.at, set()
    return tuple(sorted(found.values(), key=lambda one: (-one.host_kernel - one.host_user, one.cause)))


def _cause(passed: set[str], rows: ExitRows) -> str:
    for row in rows.cause:
        if passed.intersection(row.passes) and (not row.then or passed.intersection(row.then)):
            return row.title
    return OTHER


def places(trace: bytes, rows: ExitRows, exits: int) -> tuple[ExitPlace, ...]:
    """Return the accesses that a trace of KVM's events tells, those of the first `exits` exits, the most first. A line
    that is no such event is passed over."""
    patterns = {f"{row.name}:": (row.name, re.compile(row.pattern)) for row in rows.event}
    found: Tally[tuple[str, str]] = Tally()
    for line in io.BytesIO(trace):
        word, _, rest = line.decode("ascii", "replace").strip().partition(" ")
        if word == _EXIT_LINE:
            exits -= 1
            if exits < 0:
                break
        elif word in patterns:
            event, pattern = patterns[word]
            match = pattern.match(rest)
            if match:
                found[event, _title(event, match, rows)] += 1
    return tuple(ExitPlace(event, title, count) for (event, title), count in found.most_common())


def _title(event: str, match: re.Match[str], rows: ExitRows) -> str:
    said = match.groupdict()
    number, writes = int(said["number"], 16), said.get("write") is not None
    fitting = (row for row in rows.device if row.event == event and row.first <= number <= row.last)
    return next((row.title for row in fitting if writes or not row.written), f"{number:#x}")


def has_exits(trace: bytes, exits: int) -> bool:
    """Return whether a trace came to its end, and has so many exits unless there were fewer: events that it had no room
    for come later. Behind the events are the statistics of their buffer."""
    if not trace.endswith(b"end\n"):
        return False
    return b"\ndropped events: 0\n" in trace[-4096:] or trace.count(f"\n{_EXIT_LINE}".encode()) >= exits


def milestones(counters: Counters, told: Iterable[GuestMark], lasted_ns: int | None) -> tuple[Milestone, ...]:
    """Return the milestones since the monitor's exec. Their virtual time is what was executed and waited.

    A guest tells its own clock at its marks, so that waits between these are known. What is left of all the monitor's
    waits is put at the first of them: a guest that ends waits for nothing."""
    at = reached(counters)
    if MONITOR not in at:
        return ()
    executed = {name: totals.since(at[MONITOR]).executed for name, totals in at.items()}
    clocks = {mark.name: mark.cycles for mark in told if mark.name in executed}
    first = next((name for name in executed if name in clocks), None)
    if first is None or lasted_ns is None or GONE not in executed:
        return tuple(Milestone(name, executed=count) for name, count in executed.items())
    last = [name for name in executed if name in clocks][-1]
    waits = {name: clocks[name] - clocks[first] - (executed[name] - executed[first]) for name in clocks}
    before = max(0, lasted_ns - executed[GONE] - waits[last])
    found, waited = [], 0
    for name, count in executed.items():
        if name in waits:
            waited = before + max(0, waits[name])
        found.append(Milestone(name, executed=count, virtual_ns=count + waited, source="the plugin's mark"))
    return tuple(found)
