# SPDX-License-Identifier: Apache-2.0
"""The kernel that an image's plan asks for, as far as others may share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from vmtailor.base.text import is_number
from vmtailor.model.change import Cause, Figure
from vmtailor.model.plan import Plan

#: Causes that may forbid a symbol: it is left out for every image of the kernel.
_FORBIDS = frozenset({Cause.POLICY, Cause.USER})
#: Symbols whose larger value does for the smaller one.
_GROWS = frozenset({"NR_CPUS"})


@dataclass(frozen=True)
class KernelWish:
    """The kernel that an image asks for.

    `alike`: what two images must have in common to share one: version, architecture, machine, flags and patches.
    `asked`: symbols with their values, the input of the configuration: demands, reach, margins, platform and policy.
    `has`: every symbol that its own kernel has. `forbidden`: symbols that policy or the user wants out. `prices`: for a
    symbol that its own kernel leaves out, the instructions that its trace ran of it on the packaged kernel. `own`:
    instructions of its own kernel from entry to init, net; None where they were not counted."""

    name: str
    alike: tuple[str, ...]
    asked: Mapping[str, str]
    has: frozenset[str]
    forbidden: frozenset[str] = frozenset()
    prices: Mapping[str, int] = field(default_factory=dict)
    own: int | None = None


def of_plan(name: str, plan: Plan, own: int | None = None) -> KernelWish:
    """Return the wish in a plan. `own`: instructions of its kernel from entry to init, net."""
    out = (one for one in plan.changes if one.sets_symbol and one.value == "n")
    return KernelWish(
        name=name,
        alike=(
            plan.kernel_version, plan.architecture, plan.machine, *plan.flags,
            *(f"{patch}={digest}" for patch, digest in plan.patches),
        ),
        asked={symbol: value for symbol, value in plan.fragment if value != "n"},
        has=frozenset(one.id for one in plan.symbols if one.is_kept),
        forbidden=frozenset(one.id for one in out if any(reason.cause in _FORBIDS for reason in one.reasons)),
        prices={one.id: cost for one in plan.gone if (cost := one.saves(Figure.TRACE_INSTRUCTIONS)) > 0},
        own=own,
    )  # fmt: skip


def joined(one: Mapping[str, str], other: Mapping[str, str]) -> dict[str, str]:
    """Return the symbols that two kernels ask for together. Raises KeyError that names one whose values exclude each
    other."""
    both = {**one}
    for symbol, value in other.items():
        known = both.get(symbol)
        if known is None or known == value:
            both[symbol] = value
        elif {known, value} == {"y", "m"}:
            both[symbol] = "y"
        elif symbol in _GROWS and is_number(known) and is_number(value):
            both[symbol] = max(known, value, key=int)
        else:
            raise KeyError(symbol)
    return both
