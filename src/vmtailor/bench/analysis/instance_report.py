# SPDX-License-Identifier: Apache-2.0
"""What an instance says of itself from inside, against what the harness sees of itself: is it what its row says?"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from vmtailor.base.notation import decoded_json
from vmtailor.base.text import plain
from vmtailor.bench.model.results import Isolated, RuntimeIdentity

SCHEMA = "vmtailor/bench-report/1"
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts")
_SECCOMP = {"0": "none", "1": "strict", "2": "filter"}
#: What cgroups say where there is no limit: `max`, -1, or a number as large as memory cannot be.
_UNLIMITED = 1 << 62


def parse(data: bytes) -> dict[str, Any] | None:
    """The report of `bench report`; None where it is none. An instance's output is untrusted: every text in it is made
    plain before it is kept."""
    found = decoded_json(data)
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return None
    return found


def identity(
    runtime: str, version: str, seen: Mapping[str, Any], here: Mapping[str, Any], expected: str, *, own_kernel: bool,
    chroot: bool,
) -> RuntimeIdentity:  # fmt: skip
    """The record of a runtime. `here`: the same report made by the harness itself; `expected`: the program's digest.

    A row that shares all namespaces and the kernel with the host is native, whatever it is called: a problem."""
    status = _status(str(seen.get("status", "")))
    kernel = plain(str(seen.get("kernel", "")))[:80]
    differs = (kernel, seen.get("version")) != (here.get("kernel"), here.get("version"))
    spaces = tuple((name, _isolated(name, seen, here, own=own_kernel and differs)) for name in NAMESPACES)
    own = [name for name, kind in spaces if kind is Isolated.OWN]
    problems = []
    digest = str(seen.get("program_sha256", ""))
    if digest != expected:
        problems.append("another program ran than the one of the image")
    if own_kernel and not differs:
        problems.append("it is said to have a kernel of its own, and runs on the host's")
    if not chroot and not own and not differs:
        problems.append("it turned out native: no namespace and no kernel of its own")
    if chroot and (own or differs):
        problems.append(f"native is isolated: {', '.join(own) or 'another kernel'}")
    return RuntimeIdentity(
        runtime,
        plain(version)[:120],
        kernel,
        differs,
        spaces,
        _limited(seen.get("memory_limit")),
        _limited(seen.get("cpu_quota")),
        _limited(seen.get("pids_limit")),
        _hex_bits(status.get("CapEff", "")),
        _SECCOMP.get(status.get("Seccomp", ""), "unknown"),
        {"0": False, "1": True}.get(status.get("NoNewPrivs", "")),
        plain(str(seen.get("lsm", "")).strip())[:80],
        plain(digest)[:64],
        plain(str(seen.get("cgroup", "")).strip().replace("\n", " "))[:400],
        "; ".join(problems),
    )


def _isolated(name: str, seen: Mapping[str, Any], here: Mapping[str, Any], *, own: bool) -> Isolated:
    # With a kernel of its own, a namespace's number means nothing: all of them are another kernel's.
    inside = str(seen.get(f"ns_{name}", ""))
    return Isolated.OWN if own or inside != str(here.get(f"ns_{name}", "")) else Isolated.SHARED


def _status(text: str) -> dict[str, str]:
    return {name: value.strip() for line in text.splitlines() for name, colon, value in [line.partition(":")] if colon}


def _hex_bits(text: str) -> int | None:
    return int(text, 16).bit_count() if re.fullmatch(r"[0-9a-f]{1,16}", text) else None


def _limited(value: object) -> bool | None:
    text = str(value or "").strip()
    if not text:
        return None
    first = text.split()[0]
    if first == "max" or not re.fullmatch(r"-?\d{1,20}", first):
        return False
    return 0 <= int(first) < _UNLIMITED
