# SPDX-License-Identifier: Apache-2.0
"""Reports that instances make from inside, checked against the harness's own: is each instance what its row says?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from vmtailor.base.notation import decoded_json
from vmtailor.base.text import plain
from vmtailor.bench.model.results import Isolated, RuntimeIdentity, Witness

SCHEMA = "vmtailor/bench-report/1"
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
_SECCOMP = {"0": "none", "1": "strict", "2": "filter"}
#: Values above this mean no limit: cgroups say `max`, -1, or a number larger than any memory.
_UNLIMITED = 1 << 62


def parse(data: bytes) -> dict[str, Any] | None:
    """Return the report of `bench report`; None for any other text. It is untrusted: callers make each of its texts
    plain before they keep it."""
    found = decoded_json(data)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return None
    return found


def identity(
    runtime: str, version: str, seen: Mapping[str, Any], here: Mapping[str, Any], expected: str, *, own_kernel: bool,
    chroot: bool,
) -> RuntimeIdentity:  # fmt: skip
    """Return the record of a runtime. `here`: the same report made by the harness itself; `expected`: the program's
    digest. A row that shares all namespaces and the kernel with the host is native, whatever its name: that is a
    problem."""
    status = _status(str(seen.get("status", "")))
    kernel = plain(str(seen.get("kernel", "")))[:80]
    differs = (kernel, seen.get("version")) != (here.get("kernel"), here.get("version"))
    spaces = tuple((name, _isolated(name, seen, here, own=own_kernel and differs)) for name in NAMESPACES)
    own = [name for name, kind in spaces if kind is Isolated.OWN]
    problems = []
    digest = str(seen.get("program_sha256", ""))
    if not digest:
        problems.append("it cannot tell which program ran: it has no /proc")
    elif digest != expected:
        problems.append("another program ran than the one of the image")
    if own_kernel and not differs:
        problems.append("it is said to have a kernel of its own, and runs on the host's")
    if not chroot and not own and not differs:
        problems.append("it turned out native: no namespace and no kernel of its own")
    if chroot and (own or differs):
        problems.append(f"native is isolated: {', '.join(own) or 'another kernel'}")
    return RuntimeIdentity(
        runtime=runtime,
        version=plain(version)[:120],
        kernel=kernel,
        own_kernel=differs,
        namespaces=spaces,
        memory_limited=_limited(seen.get("memory_limit")),
        cpu_limited=_limited(seen.get("cpu_quota")),
        pids_limited=_limited(seen.get("pids_limit")),
        capabilities=_hex_bits(status.get("CapEff", "")),
        seccomp=_SECCOMP.get(status.get("Seccomp", ""), "unknown"),
        no_new_privileges={"0": False, "1": True}.get(status.get("NoNewPrivs", "")),
        lsm=plain(str(seen.get("lsm", "")).strip())[:80],
        program_sha256=plain(digest)[:64],
        cgroup=plain(str(seen.get("cgroup", "")).strip().replace("\n", " "))[:400],
        problem="; ".join(problems),
    )


def identified(
    runtime: str, version: str, said: bytes, here: Mapping[str, Any], expected: str, *, own_kernel: bool, chroot: bool
) -> RuntimeIdentity:
    """Return the record of a runtime by an instance's output; with a problem where that is no report."""
    seen = parse(said)
    if seen is None:
        return RuntimeIdentity(runtime, version, problem="it did not report what it is")
    return identity(runtime, version, seen, here, expected, own_kernel=own_kernel, chroot=chroot)


def _isolated(name: str, seen: Mapping[str, Any], here: Mapping[str, Any], *, own: bool) -> Isolated:
    # With another kernel, the numbers of namespaces mean nothing: all of them are its own.
    inside = str(seen.get(f"ns_{name}", ""))
    return Isolated.OWN if own or inside != str(here.get(f"ns_{name}", "")) else Isolated.SHARED


def _status(text: str) -> dict[str, str]:
    return {name: value.strip() for line in text.splitlines() for name, colon, value in [line.partition(":")] if colon}


def _hex_bits(text: str) -> int | None:
    return int(text, 16).bit_count() if re.fullmatch(r"[0-9a-f]{1,16}", text) else None


def _limited(value: object) -> bool | None:
    """Return whether there is such a limit; None where the instance does not show it."""
    return _number(value) is not None if str(value or "").strip() else None


#: Limits by the names that reports give them.
MEMORY, CPU, CPU_PERIOD, PIDS = "memory_limit", "cpu_quota", "cpu_period", "pids_limit"


def with_limits(one: RuntimeIdentity, seen: Mapping[str, Any], above: Mapping[str, str]) -> RuntimeIdentity:
    """Return the record of a runtime with the values of its limits. `seen`: its instance's report; `above`: texts of
    the files of the cgroup that the instance was started in, by the same names."""
    inside, outside = _limits(seen), _limits(above)
    # A chroot sees the caps of the whole scope: a lower limit of the group above is the one that holds.
    lower = [
        name for name, value in outside.items() if value is not None and ((own := inside[name]) is None or value < own)
    ]
    found = inside | {name: outside[name] for name in lower}
    memory, pids = (None if found[name] is None else int(found[name] or 0) for name in ("memory", "pids"))
    return replace(one, memory_bytes=memory, cpus=found["CPU"], pids=pids, limits_above=tuple(lower))


def _limits(texts: Mapping[str, Any]) -> dict[str, float | None]:
    """Return bytes of memory, processors' worth of time, and processes. Version 2 has quota and period in one file."""
    words = [*str(texts.get(CPU) or "").split(), *str(texts.get(CPU_PERIOD) or "").split()]
    quota, period = map(_number, (*words, "", "")[:2])
    cpus = quota / period if quota and period else None
    return {"memory": _number(texts.get(MEMORY)), "CPU": cpus, "pids": _number(texts.get(PIDS))}


def _number(value: object) -> int | None:
    """Return a limit; None where there is none: no text, `max`, -1, or more than memory can be."""
    first = next(iter(str(value or "").split()), "")
    return int(first) if re.fullmatch(r"\d{1,20}", first) and int(first) < _UNLIMITED else None


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
    """Return what one instance reported in a trial, and how it differs from its row; empty when it does not. `network`:
    it was put into a network of its own, whatever its row says."""
    seen = parse(said)
    if seen is None:
        return None, "the instance did not report what it is"
    net = {"ns_net": seen.get("ns_net")} if network and chroot else {}
    one = identity(row.runtime, "", seen, {**here, **net}, expected, own_kernel=own_kernel, chroot=chroot)
    own = tuple(name for name, kind in one.namespaces if kind is Isolated.OWN)
    if net and seen.get("ns_net") != here.get("ns_net"):
        own = (*own, "net")
    found = Witness(
        kernel=one.kernel,
        own=own,
        capabilities=one.capabilities,
        seccomp=one.seccomp,
        lsm=one.lsm,
        cgroup=one.cgroup,
        program_sha256=one.program_sha256,
    )
    return found, one.problem or _otherwise(row, one, own, network=network)


def _otherwise(row: RuntimeIdentity, one: RuntimeIdentity, own: Sequence[str], *, network: bool) -> str:
    """Return how an instance differs from the one that was asked who its runtime is; empty where it does not."""
    if network and "net" not in own:
        return "it is not in the network that was made for it"
    given = {"net"} if network else set()
    asked = {name for name, kind in row.namespaces if kind is Isolated.OWN}
    if one.kernel != row.kernel or {*own} - given != asked - given:
        return "it runs otherwise than the instance that was asked who it is"
    return ""


def parted(said: bytes) -> tuple[bytes, bytes]:
    """Return the report that an instance's output begins with, and the output of the program that followed. Without a
    report, all of it is the program's: it may say why it failed."""
    if not said.startswith(b"{"):
        return b"", said
    report, end, rest = said.partition(b"\n}\n")
    return (report + end, rest) if end else (said, b"")
