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


#: The columns of the table of isolation.
ISOLATION = (
    "runtime", "kernel", "namespaces of its own", "limits it sees", "capabilities", "seccomp", "security module",
    "cgroup", "program", "version",
)  # fmt: skip


def isolation_row(one: RuntimeIdentity) -> tuple[str, ...]:
    """Cells of the table of isolation, as `ISOLATION` names them."""
    if one.missing or one.problem:
        why = f"missing: {one.missing}" if one.missing else f"not measured: {one.problem}"
        return one.runtime, why, *([""] * (len(ISOLATION) - 3)), one.version
    own = [name for name, kind in one.namespaces if kind is Isolated.OWN]
    spaces = "all: another kernel" if one.own_kernel else ", ".join(own) or "none"
    limits = (("memory", one.memory_limited), ("CPU", one.cpu_limited), ("pids", one.pids_limited))
    seen = [name for name, there in limits if there]
    hidden = [name for name, there in limits if there is None]
    told = ", ".join(seen) or ("none" if not hidden else "")
    told += f" (not shown inside: {', '.join(hidden)})" if hidden else ""
    kernel = f"{one.kernel} (its own)" if one.own_kernel else one.kernel
    capabilities = "" if one.capabilities is None else str(one.capabilities)
    if one.no_new_privileges:
        capabilities += ", no new ones"
    program = f"as in the image ({one.program_sha256[:12]})" if one.program_sha256 else ""
    return (
        one.runtime, kernel, spaces, told.strip(), capabilities, one.seccomp, one.lsm or "none", _cgroups(one.cgroup),
        program, one.version,
    )  # fmt: skip


def _cgroups(text: str) -> str:
    """The paths in a process's list of cgroups, each once: version 1 has one a hierarchy."""
    return ", ".join(dict.fromkeys(word.split(":", 2)[2] for word in text.split() if word.count(":") >= 2))
