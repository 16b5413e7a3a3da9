# SPDX-License-Identifier: Apache-2.0
"""Prices of margins: choices that give one kernel have one price, whoever of them was measured, and when."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.fakes.fit_run_data import fit_run

from vmtailor.model.margin import CHOICES, Margin, MarginPrice
from vmtailor.pipeline import margin_cost
from vmtailor.stages.report import margin_prices


def line(**more: int) -> str:
    """Return the line of a margin that costs so much more than none."""
    none = MarginPrice((), 60, 480, 210, 4_700_000, 26_900_000, 16 << 20)
    costs = {name: getattr(none, name) + size for name, size in more.items()}
    chosen = replace(none, margins=(Margin.REACHABLE,), chosen=True, **costs)
    return margin_prices.price_line(fit_run(prices=(none, chosen)))


def test_the_price_of_a_margin_names_only_what_it_costs() -> None:
    assert line() == "reachable: 60 symbols with a prompt, 210 system calls; beside the margin none: no more"
    assert line(symbols_prompted=2, kernel_bytes=100_000).endswith("none: +2 symbols, +100\u202fkB of kernel file")
    assert line(min_memory_bytes=1 << 20, calls=1).endswith("none: +1 calls, +1\u202fMiB of memory")
    unknown = margin_prices.price_line(fit_run())
    assert unknown.endswith(
        "none: +2 symbols, +14 calls; the margin none was not measured: its kernel is not in the cache"
    )


SERVER, BOTH = (Margin.SERVER,), (Margin.REACHABLE, Margin.SERVER)
#: `server` has all that the image could ask for.
FRAGMENTS = {(): "A", (Margin.REACHABLE,): "AB", SERVER: "ABC", BOTH: "ABC"}


def plan_of(choice: tuple[Margin, ...]) -> Any:
    return SimpleNamespace(margins=choice, fragment=tuple((name, "y") for name in FRAGMENTS[choice]))


@pytest.mark.parametrize("chosen", CHOICES)
def test_the_same_kernel_has_the_same_price(chosen: tuple[Margin, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it was compiled and measured only because all prices were asked for."""

    def counted(findings: Any, choice: tuple[Margin, ...], made: Any) -> MarginPrice:
        return MarginPrice(choice, len(made.fragment), 0, 0)

    def price(row: MarginPrice) -> MarginPrice:
        return replace(row, kernel_bytes=1000 * row.symbols_prompted, note="")

    def compiled(findings: Any, fitted: Any, rows: Any, open_: Any) -> dict[tuple[Margin, ...], MarginPrice]:
        assert len({plan.fragment for plan in open_.values()}) == len(open_) == 2  # each kernel once
        return {choice: price(rows[choice]) for choice in open_}

    monkeypatch.setattr(margin_cost, "_planned", lambda findings, fitted, choice: plan_of(choice))
    monkeypatch.setattr(margin_cost, "_counted", counted)
    monkeypatch.setattr(margin_cost, "_measured", lambda row, side: price(row))
    monkeypatch.setattr(
        margin_cost, "_from_cache", lambda findings, made, row: replace(row, note=margin_cost.NOT_COMPILED)
    )
    monkeypatch.setattr(margin_cost, "_compiled", compiled)
    findings = cast(Any, SimpleNamespace())
    fitted = cast(Any, SimpleNamespace(plan=plan_of(chosen), verification=SimpleNamespace(passed=True)))
    found = margin_cost.prices(findings, fitted, cast(Any, None), chosen, all_of_them=True)
    assert [(one.margins, one.kernel_bytes, one.note) for one in found] == [
        (choice, 1000 * len(FRAGMENTS[choice]), "") for choice in CHOICES
    ]
    assert [one.margins for one in found if one.chosen] == [chosen]
