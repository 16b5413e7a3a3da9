# SPDX-License-Identifier: Apache-2.0
"""The instructions of a load by who executed them and what for: programs, system calls, exceptions, interrupts, their
deferred work, threads, and the load's client. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from vmtailor.analysis.calls.call_shares import PROGRAM, CallCost, During, FollowedBoot
from vmtailor.model.boots.call_graph import WorkKind

CLIENT = "client"
#: Names a program's instructions, beside the calls that it makes.
OWN = "its own code"


class SplitPart(StrEnum):
    """The parts of a load's instructions, in the order in which they are told."""

    PROGRAM = "programs"
    CALL = "system calls"
    EXCEPTION = "exceptions"
    INTERRUPT = "interrupts"
    SOFT = "softirqs"
    THREAD = "threads and idle"
    CLIENT = "the client's program"
    CLIENT_KERNEL = "the client's calls"
    OURS = "init"


_OF_KIND = {
    WorkKind.CALL: SplitPart.CALL,
    WorkKind.EXCEPTION: SplitPart.EXCEPTION,
    WorkKind.INTERRUPT: SplitPart.INTERRUPT,
    WorkKind.SYSTEM: SplitPart.THREAD,
}
#: The work that softirqs ran within.
_WITHIN = {WorkKind.INTERRUPT: "at the end of interrupts", WorkKind.SYSTEM: "in threads"}


@dataclass(frozen=True)
class SplitRow:
    """One row: what executed the instructions, and how many during the load."""

    part: SplitPart
    what: str
    instructions: int


def rows(boot: FollowedBoot) -> tuple[SplitRow, ...]:
    """Return the rows of a followed boot's load, dearest first within a part. They add up to all that the kernel and
    all programs executed."""
    found: Counter[tuple[SplitPart, str]] = Counter()
    for stretch in boot.stretches(During.LOAD):
        for name, count in stretch.users.items():
            owner = boot.owner(name)
            part = {PROGRAM: SplitPart.PROGRAM, CLIENT: SplitPart.CLIENT}.get(owner, SplitPart.OURS)
            found[part, OWN] += count
        if stretch.early:
            found[SplitPart.THREAD, "code of no address"] += stretch.early
    for cost in boot.costs(During.LOAD):
        found[_part(cost), _what(cost)] += cost.own
        found[SplitPart.SOFT, _WITHIN.get(cost.kind, f"in the {_whose(cost.owner)} calls")] += cost.soft
    ordered = sorted(found.items(), key=lambda item: (list(SplitPart).index(item[0][0]), -item[1], item[0][1]))
    return tuple(SplitRow(part, what, count) for (part, what), count in ordered if count)


def _part(cost: CallCost) -> SplitPart:
    if cost.kind in (WorkKind.INTERRUPT, WorkKind.SYSTEM) or cost.owner == PROGRAM:
        return _OF_KIND[cost.kind]
    return SplitPart.CLIENT_KERNEL if cost.owner == CLIENT else SplitPart.OURS


def _what(cost: CallCost) -> str:
    return f"{cost.call} on {cost.on}" if cost.on else cost.call


def _whose(owner: str) -> str:
    return {PROGRAM: "programs'", CLIENT: "client's"}.get(owner, f"{owner}'s")


def table(boot: FollowedBoot) -> list[dict[str, Any]]:
    """Return the rows as they are printed: a sum for each part and for the whole, and each part's rows below."""
    found = rows(boot)
    whole = sum(row.instructions for row in found)

    def line(part: str, what: str, count: int) -> dict[str, Any]:
        each = round(count / boot.requests, 1) if boot.requests else ""
        return {"part": part, "what": what, "instructions": count, "a_request": each, "share": f"{count / whole:.1%}"}

    lines = []
    for part in SplitPart:
        inner = [row for row in found if row.part is part]
        if inner:
            lines.append(line(part, "all", sum(row.instructions for row in inner)))
        if len(inner) > 1:
            lines += [line("", row.what, row.instructions) for row in inner]
    return [*lines, line("everything", "", whole)] if found else []
