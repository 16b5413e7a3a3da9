# SPDX-License-Identifier: Apache-2.0
"""A kernel of a hundred bytes (tests/guests/kernel.S)."""

from __future__ import annotations

from pathlib import Path

from vmtailor.base.process import run

SOURCE = Path(__file__).parents[1] / "guests" / "kernel.S"


def small_kernel(folder: Path) -> Path:
    """Compile it into a folder."""
    elf = folder / "kernel"
    run(["cc", "-c", "-o", f"{elf}.o", str(SOURCE)], timeout_s=60)
    run(["ld", "-m", "elf_x86_64", "-Ttext=0x100000", "-e", "start", "-o", str(elf), f"{elf}.o"], timeout_s=60)
    return elf
