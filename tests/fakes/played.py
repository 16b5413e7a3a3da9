# SPDX-License-Identifier: Apache-2.0
"""A boot that is played by the fake QEMU (tests/fakes/qemu-system)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from vmtailor.drivers.qemu import qemu_program

FAKE = Path(__file__).resolve().parent / "qemu-system"


def play(
    monkeypatch: pytest.MonkeyPatch, folder: Path, console: Sequence[tuple[float, str]], *, end: str = "exit",
    events: Sequence[str] = (), probe: str = "",
) -> None:  # fmt: skip
    """From now on, QEMU is one that plays this. `console`: seconds to wait, then text."""
    program = folder / "qemu-system"
    if not program.is_symlink():
        program.symlink_to(FAKE)
    (folder / "play.json").write_text(
        json.dumps({"console": console, "end": end, "events": list(events), "probe": probe})
    )
    monkeypatch.setenv(qemu_program.BINARY_VARIABLE, str(program))
