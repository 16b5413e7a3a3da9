# SPDX-License-Identifier: Apache-2.0
"""Limits of an instance with their values: as it sees them from inside, and as the group above it has them where it
sees none; and the record that one instance of many makes of itself."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vmtailor.bench.analysis import instance_report
from vmtailor.bench.model.results import Isolated, RuntimeIdentity, Witness

#: Limits by the names that reports give them.
MEMORY, CPU, CPU_PERIOD, PIDS = "memory_limit", "cpu_quota", "cpu_period", "pids_limit"
#: What cgroups say where there is no limit: `max`, -1, or a number as large as memory cannot be.
_UNLIMITED = 1 << 62


def with_limits(one: RuntimeIdentity, seen: Mapping[str, Any], above: Mapping[str, str]) -> RuntimeIdentity:
    """The record of a runtime with the values of its limits. `seen`: its instance's report; `above`: texts of the files
    of the group that the instance was begun in, by the same names."""
    found: dict[str, float | None] = {}
    outside = []
    for name, value_of in (("memory", _memory), ("CPU", _cpus), ("pids", _pids)):
        value, set_above = value_of(seen), value_of(above)
        # A chroot sees the caps of the whole scope: what is set above and is less is what holds.
        if set_above is not None and (value is None or set_above < value):
            value = set_above
            outside.append(name)
        found[name] = value
    memory, pids = (None if found[name] is None else int(found[name] or 0) for name in ("memory", "pids"))
    return replace(one, memory_bytes=memory, cpus=found["CPU"], pids=pids, limits_above=tuple(outside))


def _memory(texts: Mapping[str, Any]) -> int | None:
    return _number(texts.get(MEMORY))


def _pids(texts: Mapping[str, Any]) -> int | None:
    return _number(texts.get(PIDS))


def _cpus(texts: Mapping[str, Any]) -> float | None:
    """Processors' worth of time: version 2 has quota and period in one file."""
    words = [*str(texts.get(CPU) or "").split(), *str(texts.get(CPU_PERIOD) or "").split()]
    quota, period = (_number(words[place]) if len(words) > place else None for place in (0, 1))
    return quota / period if quota and period else None


def _number(value: object) -> int | None:
    words = str(value or "").split()
    if not words or not re.fullmatch(r"\d{1,20}", words[0]) or int(words[0]) >= _UNLIMITED:
        return None
    return int(words[0])


def witness(
    row: RuntimeIdentity,
    said: bytes,
    here: Mapping[str, Any],
    expected: str,
    *,
    own_kernel: bool,
    chroot: bool,
    network: bool = False,
) -> tuple[Witness | None, str]:
    """What one instance said of itself in a trial, and why it is not what its row is; empty when it is. `network`: it
    was put into a network of its own, whatever its row is."""
    seen = instance_report.parse(said)
    if seen is None:
        return None, "the instance did not report what it is"
    net = {"ns_net": seen.get("ns_net")} if network and chroot else {}
    one = instance_report.identity(
        row.runtime, "", seen, {**here, **net}, expected, own_kernel=own_kernel, chroot=chroot
    )
    own = tuple(name for name, kind in one.namespaces if kind is Isolated.OWN)
    if net and seen.get("ns_net") != here.get("ns_net"):
        own = (*own, "net")
    found = Witness(one.kernel, own, one.capabilities, one.seccomp, one.lsm, one.cgroup, one.program_sha256)
    return found, one.problem or _otherwise(row, one, own, network=network)


def _otherwise(row: RuntimeIdentity, one: RuntimeIdentity, own: Sequence[str], *, network: bool) -> str:
    """How an instance differs from the one that was asked who its runtime is; empty where it does not."""
    if network and "net" not in own:
        return "it is not in the network that was made for it"
    given = {"net"} if network else set()
    asked = {name for name, kind in row.namespaces if kind is Isolated.OWN}
    if one.kernel != row.kernel or {*own} - given != asked - given:
        return "it runs otherwise than the instance that was asked who it is"
    return ""


def parted(said: bytes) -> tuple[bytes, bytes]:
    """The report that an instance begins with, and what the program said that it became. Who ends before the report
    begins may have said why."""
    if not said.startswith(b"{"):
        return b"", said
    report, end, rest = said.partition(b"\n}\n")
    return (report + end, rest) if end else (said, b"")
