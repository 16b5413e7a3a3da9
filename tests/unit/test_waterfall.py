# SPDX-License-Identifier: Apache-2.0
"""The way from the baseline to the tailored machine: what is measured, what is expected, what is left, add up."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from vmtailor.analysis.cost import waterfall
from vmtailor.analysis.cost.attribution import AttributedCost, Attribution
from vmtailor.analysis.cost.loops import LoopNames
from vmtailor.model.boots.boot import Boot, FunctionCost, Outcome, Phase, PhaseCounts
from vmtailor.model.change import Figure, Verdict, symbol
from vmtailor.model.plan import Plan, RootFormat

LOOPS = (LoopNames("calibration", ("wait",), "emulated"),)
ROWS = {
    ("hash", "crypto/hash.c", "HASH"): 500,
    ("hash_test", "crypto/test.c", "HASH_TEST"): 300,
    ("copy", "lib/copy.c", ""): 90,
    ("print", "kernel/print.c", "PRINTK"): 40,
    ("print", "kernel/print.c", "HASH"): 10,  # inlined
    ("wait.part.0", "arch/x86/tsc.c", ""): 1000,
}


def boot(functions: Mapping[str, int], user: int = 0, uncounted: int = 0) -> Boot:
    costs = tuple(FunctionCost(name, Phase.KERNEL, count) for name, count in functions.items())
    phases = (
        PhaseCounts(Phase.FIRMWARE, 7, 0),
        PhaseCounts(Phase.KERNEL, sum(functions.values()) + uncounted, user),
        PhaseCounts(Phase.LOAD, 99, 99),
    )
    later = FunctionCost("copy", Phase.LOAD, 50)
    return Boot(Outcome.READY, (), 0.0, phases=phases, functions=(*costs, later))


def costs(rows: Mapping[tuple[str, str, str], int] = ROWS, unknown: int = 0) -> Attribution:
    made = tuple(AttributedCost("kernel", *key, count) for key, count in rows.items())
    return Attribution((*made, AttributedCost("load", "copy", "lib/copy.c", "HASH", 50)), {"kernel": unknown}, {})


PLAN = Plan(
    "6.12", "microvm", 1, RootFormat.EROFS, (),
    (symbol("PRINTK", "y", before="y"), symbol("HASH", "n", before="y"), symbol("HASH_TEST", "n", before="m")), 1, 1,
)  # fmt: skip


def test_a_folder_is_one_change_with_what_was_expected_beside_what_was_measured() -> None:
    trace = waterfall.traced(costs(), LOOPS)
    before = boot({"hash": 500, "hash_test": 300, "copy": 90, "print": 50, "wait.part.0": 1000}, user=30)
    after = boot({"copy": 20, "print": 45, "wait": 2000}, user=5)
    found = {change.id: change for change in waterfall.subsystems(PLAN, trace, [before] * 3, [after] * 3, LOOPS)}
    figure = Figure.INIT_INSTRUCTIONS_NET
    measured = {name: change.measured[0].value for name, change in found.items()}
    assert measured == {"crypto": -800, "lib": -70, "kernel": -5, "other": 0, waterfall.PROGRAMS: -25}
    crypto = found["crypto"]
    assert [(e.source, e.value, e.figure) for e in crypto.expected] == [
        ("HASH", -500, figure), ("HASH_TEST", -300, figure),
    ]  # fmt: skip
    assert [(s.name, s.value, s.before) for s in crypto.settings] == [("HASH", "n", "y"), ("HASH_TEST", "n", "m")]
    assert crypto.verdict is Verdict.BETTER and found["other"].verdict is Verdict.SAME
    assert [(e.source, e.value) for e in found["kernel"].expected] == [("HASH", -10)]  # what was inlined there


def test_the_remainder_is_named() -> None:
    trace = waterfall.traced(costs(unknown=8), LOOPS)
    before = boot({"hash": 500, "hash_test": 300, "copy": 90, "print": 50, "wait.part.0": 1000, "asm": 8}, user=30)
    after = boot({"copy": 20, "print": 35, "wait": 2000, "mine": 6}, user=5)
    parts = {part.name: part for part in waterfall.remainder(PLAN, trace, before, after, LOOPS)}
    assert (parts[waterfall.ALWAYS].before, parts[waterfall.ALWAYS].after) == (90, 20)
    assert parts[waterfall.ALWAYS].functions == (("copy", -70),)
    assert (parts[waterfall.BOTH].before, parts[waterfall.BOTH].after) == (40, 35)
    assert parts[waterfall.NEW].functions == (("mine", 6),)
    assert parts["code without debug information"].before == 8
    assert (parts[waterfall.PROGRAMS].before, parts[waterfall.PROGRAMS].after) == (30, 5)


NAMES = ("hash", "hash_test", "copy", "print", "wait.part.0", "mine", "asm")
COUNTS = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10**9))


@given(COUNTS, COUNTS, st.integers(0, 1000), st.integers(0, 1000), st.integers(0, 50), st.integers(0, 50))
def test_rows_and_remainder_are_what_was_measured(
    one: dict[str, int], other: dict[str, int], user: int, user_after: int, unknown: int, uncounted: int
) -> None:
    """To the instruction, whatever ran: also where trace and measurement do not agree."""
    trace = waterfall.traced(costs(unknown=unknown), LOOPS)
    before, after = boot(one, user, uncounted), boot(other, user_after, uncounted)

    def net(counts: dict[str, int], user: int) -> int:
        return sum(count for name, count in counts.items() if not name.startswith("wait")) + user + uncounted

    difference = net(other, user_after) - net(one, user)
    rows = waterfall.subsystems(PLAN, trace, [before], [after], LOOPS)
    parts = waterfall.remainder(PLAN, trace, before, after, LOOPS)
    expected = sum(effect.value for row in rows for effect in row.expected)
    assert sum(row.measured[0].value for row in rows) == difference
    assert expected + sum(part.after - part.before for part in parts) == difference
    gone = sum(cost for (_, _, name), cost in ROWS.items() if name in ("HASH", "HASH_TEST"))
    assert expected == -gone
