# SPDX-License-Identifier: Apache-2.0
"""The cost of each choice of margins: always counted from its plan, and measured when its kernel is built or asked
for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from vmtailor.analysis.ksource.expr import holds
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.base import output
from vmtailor.base.errors import BuildError, VmtailorError
from vmtailor.base.progress import step
from vmtailor.base.text import plural
from vmtailor.model.fit_run import Side
from vmtailor.model.kernel import KernelFiles
from vmtailor.model.margin import CHOICES, Margin, MarginPrice, label
from vmtailor.model.plan import Plan
from vmtailor.pipeline import fit_sides, kernel_trials, measured_machines
from vmtailor.pipeline.kernel_repair import repairs_of
from vmtailor.pipeline.subject import Built, Findings, Fitted
from vmtailor.stages import build

NOT_COMPILED = "not measured: its kernel is not in the cache; fit --price-margins compiles it"
NOT_MEASURED = "not measured: its kernel is in the cache, its boots are not; fit --price-margins boots it"
NOT_VERIFIED = "not measured: the container does not work in the machine that was built"


def calls(facts: Facts, enabled: Mapping[str, str]) -> int:
    """Count the system calls of the processor's table that a kernel has. `enabled`: its symbols that are y or m."""
    found = 0
    for name in facts.table:
        known = facts.syscall(name)
        found += known is not None and holds(known[0], enabled)
    return found


def enabled(plan: Plan) -> dict[str, str]:
    """Symbol → y or m, of a plan."""
    return {one.id: one.value for one in plan.symbols if one.is_kept}


def prices(
    findings: Findings[Any], fitted: Fitted, tailored: Side, chosen: tuple[Margin, ...], *, all_of_them: bool = False
) -> tuple[MarginPrice, ...]:
    """Return one price for each choice of margins, the smallest first. `tailored`: the figures of the `chosen` one.
    With `all_of_them` the others are compiled and measured; otherwise they are read from the cache if it has them."""
    rows: dict[tuple[Margin, ...], MarginPrice] = {}
    open_: dict[tuple[Margin, ...], Plan] = {}
    first: dict[tuple[tuple[str, str], ...], tuple[Margin, ...]] = {}
    same: dict[tuple[Margin, ...], tuple[Margin, ...]] = {}
    with step("what the other margins would cost"):
        for choice in (chosen, *(one for one in CHOICES if one != chosen)):
            try:
                made = fitted.plan if choice == chosen else _planned(findings, fitted, choice)
            except BuildError as error:
                rows[choice] = MarginPrice(choice, 0, 0, 0, note=f"cannot be had: {error.message}")
                continue
            row = _counted(findings, choice, made)
            fragment = tuple(sorted(made.fragment))
            if choice == chosen:
                row = replace(_measured(row, tailored), chosen=True)
            elif fragment in first:  # another choice, and the same kernel
                same[choice] = first[fragment]
                continue
            else:
                row = _from_cache(findings, made, row)
                if row.note:
                    open_[choice] = made
            first.setdefault(fragment, choice)
            rows[choice] = row
    if all_of_them and fitted.verification.passed:
        rows |= _compiled(findings, fitted, rows, open_)
    rows |= {choice: replace(rows[other], margins=choice, chosen=False) for choice, other in same.items()}
    return tuple(rows[choice] for choice in CHOICES)


def _planned(findings: Findings[Any], fitted: Fitted, choice: tuple[Margin, ...]) -> Plan:
    return findings.planned(repairs_of(fitted.plan), margins=choice)


def _counted(findings: Findings[Any], choice: tuple[Margin, ...], made: Plan) -> MarginPrice:
    return MarginPrice(choice, made.prompted_y, made.total_y, calls(findings.tree.facts, enabled(made)))


def _measured(row: MarginPrice, side: Side) -> MarginPrice:
    return replace(
        row,
        kernel_bytes=side.kernel_bytes,
        init_instructions_net=side.init_instructions_net,
        min_memory_bytes=side.min_memory_bytes,
        note="" if side.boots else NOT_VERIFIED,
    )


def _from_cache(findings: Findings[Any], made: Plan, row: MarginPrice) -> MarginPrice:
    """Return the price, as far as the cache has it."""
    subject = findings.subject
    kernel = build.cached(made, subject.source.digest, subject.store)
    if kernel is None:
        return replace(row, note=NOT_COMPILED)
    one = Built(made, kernel, findings.machine_of(made, kernel))
    if not measured_machines.is_measured(subject.asked(one.machine, subject.table, "", network=made.network)):
        return replace(row, kernel_bytes=kernel.image_bytes, note=NOT_MEASURED)
    return _measured(row, _side(findings, one))


def _side(findings: Findings[Any], one: Built) -> Side:
    title = f"margin {label(one.plan.margins)}"
    table, network = fit_sides.table_of(one), one.plan.network
    found = measured_machines.measured(findings.subject.asked(one.machine, table, title, network=network))
    return fit_sides.side_of(fit_sides.tailored_facts(one), title, one.machine, found, {})


def _compiled(
    findings: Findings[Any],
    fitted: Fitted,
    rows: Mapping[tuple[Margin, ...], MarginPrice],
    open_: Mapping[tuple[Margin, ...], Plan],
) -> dict[tuple[Margin, ...], MarginPrice]:
    """Return the prices that the cache did not have."""
    if not open_:
        return {}
    output.note(_beforehand(fitted.kernel, len(open_)))
    found = {}
    for choice, made in open_.items():
        try:
            kernel = kernel_trials.built(findings, made)
            one = Built(made, kernel, findings.machine_of(made, kernel))
            found[choice] = replace(_measured(rows[choice], _side(findings, one)), note="")
        except VmtailorError as error:  # `none` may well not work where the margin does
            found[choice] = replace(rows[choice], note=f"not measured: {error.message}")
    return found


def _beforehand(kernel: KernelFiles, count: int) -> str:
    """Return an estimate of the time it takes: that of the last compile, and a minute or two of boots each."""
    minutes = count * (max(1.0, kernel.seconds / 60) + 2)
    return f"prices of margins: {plural(count, 'kernel')} to compile and measure, about {minutes:.0f} min"
