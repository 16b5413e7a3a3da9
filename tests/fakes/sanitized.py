# SPDX-License-Identifier: Apache-2.0
"""Parts of the guest's programs, compiled for the host with the address and undefined-behaviour sanitizers."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base.natives import SOURCES
from vmtailor.base.process import require_tool, run
from vmtailor.drivers.guest.guest_volume import run_bytes
from vmtailor.model.boots.workload import Run


def compiled(name: str, out: Path) -> Path:
    """The program `name` of native/tests, in the folder `out`."""
    run([require_tool("make"), "-C", str(SOURCES), "STRICT=-Werror", f"OUT={out}", str(out / name)], timeout_s=300)
    return out / name


def records_of(run: Run) -> bytes:
    """What init reads of a run volume: its records, without head and padding."""
    head, _, rest = run_bytes(run).partition(b"\n")
    return rest[: int(head.split()[1])]
