# SPDX-License-Identifier: Apache-2.0
"""Figures and rows of benchmarks in words, for terminals and pages alike."""

from __future__ import annotations

from collections import Counter

from vmtailor.base.text import plain, plural
from vmtailor.bench.model.results import HostRun, Isolated, RuntimeIdentity


def amount(value: float, unit: str) -> str:
    """Return a figure with its unit: seconds as s, ms or µs, bytes in KiB, MiB or GiB, other units as they are."""
    if unit == "s":
        for least, scale, name in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms"), (0.0, 1e6, "µs")):
            if abs(value) >= least:
                return f"{digits(value * scale)} {name}"
    if unit == "B":
        for size, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
            if abs(value) >= size:
                return f"{digits(value / size)} {name}"
    return f"{digits(value)} {unit}".rstrip()


def digits(value: float) -> str:
    """Return a figure with two decimal places below 100, one below 1000, and none above."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.2f}"


def instances(count: int) -> str:
    """Return so many instances, in words."""
    return plural(count, "instance")


def title_of(suite: str, test: str, count: int, variant: str) -> str:
    """Return the title of a test."""
    several = f", {count} instances" if count > 1 else ""
    way = f", {variant}" if variant else ""
    return f"{suite}: {test}{several}{way}"


#: The columns of the table of isolation.
ISOLATION = (
    "runtime", "kernel", "namespaces of its own", "limits", "capabilities", "seccomp", "security module",
    "cgroup", "program", "records", "version",
)  # fmt: skip


def isolation_row(one: RuntimeIdentity, records: int = 0) -> tuple[str, ...]:
    """Return the cells of the table of isolation, in the order of `ISOLATION`. `records`: how many instances reported
    the same while they were measured."""
    if one.missing or one.problem:
        why = f"missing: {one.missing}" if one.missing else f"not measured: {one.problem}"
        return one.runtime, why, *([""] * (len(ISOLATION) - 3)), one.version
    own = [name for name, kind in one.namespaces if kind is Isolated.OWN]
    spaces = "all: another kernel" if one.own_kernel else ", ".join(own) or "none"
    kernel = f"{one.kernel} (its own)" if one.own_kernel else one.kernel
    capabilities = "" if one.capabilities is None else str(one.capabilities)
    if one.no_new_privileges:
        capabilities += ", no new ones"
    program = f"as in the image ({one.program_sha256[:12]})" if one.program_sha256 else ""
    return (
        one.runtime, kernel, spaces, limits_words(one), capabilities, one.seccomp, one.lsm or "none",
        _cgroups(one.cgroup), program, str(1 + records), one.version,
    )  # fmt: skip


def records_of(run: HostRun) -> Counter[str]:
    """Return runtime → how many of its instances reported from inside while they were measured."""
    return Counter(trial.runtime for trial in run.trials for _ in trial.witnesses)


def limits_words(one: RuntimeIdentity) -> str:
    """Return a runtime's limits with their values: those that it sees, those on the group above it, and those not shown
    to it."""
    values = {
        "memory": "" if one.memory_bytes is None else amount(float(one.memory_bytes), "B"),
        "CPU": "" if one.cpus is None else f"{one.cpus:g}",
        "pids": "" if one.pids is None else str(one.pids),
    }
    limited = {"memory": one.memory_limited, "CPU": one.cpu_limited, "pids": one.pids_limited}
    seen = [
        f"{name} {values[name]}".strip() for name, there in limited.items() if there and name not in one.limits_above
    ]
    above = [f"{plain(name)} {values.get(name, '')}".strip() for name in one.limits_above]
    hidden = [name for name, there in limited.items() if there is None and name not in one.limits_above]
    parts = [", ".join(seen) or ("" if above or hidden else "none")]
    parts += [f"not seen inside, on the group above: {', '.join(above)}"] if above else []
    parts += [f"not shown inside: {', '.join(hidden)}"] if hidden else []
    return "; ".join(part for part in parts if part)


def _cgroups(text: str) -> str:
    """Return the paths in a process's list of cgroups, each once: version 1 has one a hierarchy."""
    return ", ".join(dict.fromkeys(word.split(":", 2)[2] for word in text.split() if word.count(":") >= 2))
