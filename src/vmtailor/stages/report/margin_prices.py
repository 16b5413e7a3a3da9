# SPDX-License-Identifier: Apache-2.0
"""Margins in the report: the price of each choice, and the requests that the kernel lacks with the chosen one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from vmtailor.base import figures
from vmtailor.base.text import plural
from vmtailor.model.fit_run import FitRun
from vmtailor.model.kernel import FoundKernel
from vmtailor.model.margin import MarginPrice, label
from vmtailor.model.reach import Lack, Nearness

#: Calls and files of a lack that are named in one line.
SHOWN_KEYS, SHOWN_FILES = 6, 2


@dataclass(frozen=True)
class PriceRow:
    """One choice of margins as a row; `figures` in the order of HEADS."""

    name: str
    figures: tuple[str, ...]
    note: str
    chosen: bool


HEADS = ("symbols", "=y in all", "system calls", "kernel file", "to init, net", "least memory")


def price_rows(run: FitRun) -> tuple[PriceRow, ...]:
    """Return the prices, the smallest choice first."""
    rows = []
    for price in run.prices:
        cells = (
            figures.grouped(price.symbols_prompted or None),
            figures.grouped(price.symbols_y or None),
            figures.grouped(price.calls or None),
            figures.file_bytes(price.kernel_bytes),
            figures.millions(price.init_instructions_net),
            figures.memory_bytes(price.min_memory_bytes),
        )
        rows.append(PriceRow(label(price.margins), cells, price.note, price.chosen))
    return tuple(rows)


def price_line(run: FitRun) -> str:
    """Return the price of the chosen margin in a line; empty where no prices were taken."""
    chosen = next((price for price in run.prices if price.chosen), None)
    if chosen is None:
        return ""
    none = next((price for price in run.prices if not price.margins), chosen)
    name = label(chosen.margins)
    calls = f"{plural(chosen.symbols_prompted, 'symbol')} with a prompt, {plural(chosen.calls, 'system call')}"
    if not chosen.margins:
        return f"{name}: {calls}; nothing is kept that was not demanded"
    parts = (
        _more(chosen.symbols_prompted, none.symbols_prompted, figures.grouped, "symbols"),
        _more(chosen.calls, none.calls, figures.grouped, "calls"),
        _more(chosen.kernel_bytes, none.kernel_bytes, figures.file_bytes, "of kernel file"),
        _more(chosen.init_instructions_net, none.init_instructions_net, figures.millions, "instructions to init"),
        _more(chosen.min_memory_bytes, none.min_memory_bytes, figures.memory_bytes, "of memory"),
    )
    unknown = f"; the margin none was {none.note}" if None in parts and none.note else ""
    more = ", ".join(part for part in parts if part) or "no more"
    return f"{name}: {calls}; beside the margin none: {more}{unknown}"


def _more(chosen: int | None, none: int | None, form: Callable[[float | None], str], what: str) -> str | None:
    """Return what a margin costs more; empty where it costs as much, None where that is not known."""
    if chosen is None or none is None:
        return None
    return f"{figures.signed(chosen - none, form)} {what}" if chosen != none else ""


def lack_line(lack: Lack) -> str:
    """Return a line of a request that the image could make and that would fail: calls, who asks, the symbol, its
    price."""
    names = [file.rpartition("/")[2] or file for file in lack.files[:SHOWN_FILES]]
    others = len(lack.files) + lack.more_files - len(names)
    who = ", ".join(names) + (f" and {plural(others, 'other file')}" if others else "")
    left = len(lack.keys) + lack.more_keys - len(lack.keys[:SHOWN_KEYS])
    keys = ", ".join(lack.keys[:SHOWN_KEYS]) + (f" and {left} more" if left else "")
    cost = "" if lack.to_init is None else f", {figures.short(lack.to_init)} instructions to init"
    return f"{who} could ask for {keys}: would fail without {' '.join(lack.symbols)} ({lack.nearness.value}{cost})"


def near(lacks: Sequence[Lack]) -> tuple[Lack, ...]:
    """Return the lacks that opened files ask for, or files that such a one leads to."""
    return tuple(lack for lack in lacks if lack.nearness is not Nearness.IN_IMAGE)


def kernel_line(found: FoundKernel) -> str:
    """Return the origin of the kernel; empty when it was compiled for this image alone."""
    if found.cached and found.made_for:
        return f"found in the cache, made for {found.made_for}; it serves {plural(found.serves, 'image')}"
    return "found in the cache" if found.cached else ""


def document(run: FitRun) -> dict[str, Any]:
    """Return the prices as the document of `fit --json` has them."""
    return {
        "chosen": label(run.plan.margins),
        "prices": [_price(price) for price in run.prices],
    }


def _price(price: MarginPrice) -> dict[str, Any]:
    return {
        "margin": label(price.margins),
        "chosen": price.chosen,
        "symbols_prompted": price.symbols_prompted,
        "symbols_y": price.symbols_y,
        "calls": price.calls,
        "kernel_bytes": price.kernel_bytes,
        "init_instructions_net": price.init_instructions_net,
        "min_memory_bytes": price.min_memory_bytes,
        "note": price.note,
    }


def lacks_document(run: FitRun) -> list[dict[str, Any]]:
    """Return the requests that the kernel lacks, the nearest first."""
    return [
        {
            "symbol": lack.symbol,
            "symbols": list(lack.symbols),
            "nearness": lack.nearness.value,
            "asks": list(lack.keys),
            "more_asks": lack.more_keys,
            "files": list(lack.files),
            "more_files": lack.more_files,
            "says": lack.text,
            "init_instructions_net": lack.to_init,
        }
        for lack in run.lacks
    ]
