# SPDX-License-Identifier: Apache-2.0
"""The counters of a machine in which `vmtailor run` was started twice → the cost of each start by part. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vmtailor.model.boots.counters import Counters, SpanReached, Totals

#: Spans, in the order in which a start passes them: the attendant begins a command; the supervisor's and the launcher's
#: first instruction of their own; QEMU is executed; the guest is entered; its init executes the program.
BEGIN, SUPERVISOR, LAUNCHER, MONITOR, ENTERED, PROGRAM = (
    "begin", "supervisor", "launcher", "monitor", "entered", "program",
)  # fmt: skip
#: What is executed until each of these, and behind the last one.
PARTS = {
    SUPERVISOR: "Python, which makes orders or finds kept ones",
    LAUNCHER: "supervisor, until the launcher runs",
    MONITOR: "launcher, which confines QEMU",
    ENTERED: "QEMU, until it enters the guest",
    PROGRAM: "guest, until the program is executed",
    "": "program, and the end of everything",
}
#: Marks of the attendant around all commands.
_LOAD, _LOAD_END = "load", "load_end"


@dataclass(frozen=True)
class StartPart:
    """A part of a start, in instructions. `exits`: how often the guest was left."""

    title: str
    host_user: int
    host_kernel: int
    guest_kernel: int
    guest_user: int
    exits: int

    @property
    def executed(self) -> int:
        """Return all that was executed."""
        return self.host_user + self.host_kernel + self.guest_kernel + self.guest_user


def part(title: str, cost: Totals) -> StartPart:
    """Return a part by what was counted in it."""
    guest = cost.guest
    return StartPart(
        title, cost.user, cost.kernel + cost.early, guest.kernel + guest.early, guest.user, guest.entries
    )  # fmt: skip


def whole(parts: Iterable[StartPart], title: str) -> StartPart:
    """Return the sum of parts."""
    rows = [(one.host_user, one.host_kernel, one.guest_kernel, one.guest_user, one.exits) for one in parts]
    return StartPart(title, *(sum(column) for column in zip(*rows, strict=True)))


def steps(counters: Counters) -> list[list[StartPart]]:
    """Return the parts of each command of the load, in order. A part whose end was not reached is in the next one, so
    that the parts of a command add up to all of it. Empty where the load did not come to its end."""
    begin, end = counters.at(_LOAD), counters.at(_LOAD_END)
    if begin is None or end is None:
        return []
    passed = [one for one in counters.spans if begin.executed <= one.at.executed <= end.executed]
    starts = [number for number, one in enumerate(passed) if one.name == BEGIN]
    bounds = [*starts, len(passed)]
    found = []
    for number, at in enumerate(starts):
        last = passed[bounds[number + 1]].at if bounds[number + 1] < len(passed) else end
        found.append(_parts(passed[at : bounds[number + 1]], last))
    return found


def _parts(passed: Sequence[SpanReached], last: Totals) -> list[StartPart]:
    """Return the parts of one command. `passed`: its spans; what comes out of its order belongs to the part under
    way. The first start tries the launcher and KVM before it becomes the supervisor."""
    found, here = [], passed[0].at
    left = list(PARTS)
    names = [one.name for one in passed]
    for one in passed[names.index(SUPERVISOR) if SUPERVISOR in names else 1 :]:
        if one.name in left:
            found.append(part(PARTS[one.name], one.at.since(here)))
            here, left = one.at, left[left.index(one.name) + 1 :]
    return [*found, part(PARTS[""], last.since(here))]


HEADER = ("M instructions", "all", "host programs", "host kernel", "guest kernel", "guest programs", "exits")


def lines(parts: Sequence[StartPart], title: str) -> list[tuple[str, ...]]:
    """Return the rows of a table: the whole start, and its parts."""
    return [_row(whole(parts, title)), *(_row(one, "  ") for one in parts)]


def _row(one: StartPart, indent: str = "") -> tuple[str, ...]:
    counts = (one.executed, one.host_user, one.host_kernel, one.guest_kernel, one.guest_user)
    return (indent + one.title, *(f"{count / 1e6:,.1f}" for count in counts), f"{one.exits:,}")


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows as aligned text, the first column to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    cells = ((row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])) for row in rows)
    return "\n".join("  ".join(row) for row in cells)
