# SPDX-License-Identifier: Apache-2.0
"""Figures and rows of benchmarks in words, for terminals and pages alike."""

from __future__ import annotations

from vmtailor.analysis.bench.clock import CLOCK
from vmtailor.model.bench.results import Isolated, RuntimeIdentity


def amount(value: float, unit: str) -> str:
    """A figure with its unit: seconds as s, ms or µs, bytes in their powers, the rest with four digits."""
    if unit == "s":
        for least, scale, name in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "µs")):
            if abs(value) >= least:
                return f"{_digits(value * scale)} {name}"
    if unit == "B":
        for size, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
            if abs(value) >= size:
                return f"{_digits(value / size)} {name}"
    return f"{_digits(value)} {unit}".rstrip()


def _digits(value: float) -> str:
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.2f}"


def title_of(suite: str, test: str, count: int, variant: str) -> str:
    """What a test is called."""
    several = f", {count} instances" if count > 1 else ""
    way = f", {variant}" if variant else ""
    return f"{suite}: {test}{several}{way}{' (ratios are to vm:stock)' if variant == CLOCK else ''}"


def isolation_row(one: RuntimeIdentity) -> tuple[str, ...]:
    """Cells of the table of isolation: runtime, kernel, namespaces, limits, capabilities, seccomp, version."""
    if one.missing:
        return one.runtime, f"missing: {one.missing}", "", "", "", "", ""
    if one.problem:
        return one.runtime, f"not measured: {one.problem}", "", "", "", "", one.version
    own = [name for name, kind in one.namespaces if kind is Isolated.OWN]
    spaces = "all: another kernel" if one.own_kernel else ", ".join(own) or "none"
    limits = (("memory", one.memory_limited), ("CPU", one.cpu_limited), ("pids", one.pids_limited))
    seen = [name for name, there in limits if there]
    hidden = [name for name, there in limits if there is None]
    told = ", ".join(seen) + (f" (not shown inside: {', '.join(hidden)})" if hidden else "")
    kernel = f"{one.kernel} (its own)" if one.own_kernel else one.kernel
    capabilities = "" if one.capabilities is None else str(one.capabilities)
    return one.runtime, kernel, spaces, told.strip() or "none", capabilities, one.seccomp, one.version
