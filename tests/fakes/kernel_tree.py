# SPDX-License-Identifier: Apache-2.0
"""The tiny kernel tree of tests/fakes/kernel-tree, read as the real one is, without a compiler."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vmtailor.analysis.ksource import facts
from vmtailor.analysis.ksource.facts import Facts
from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.stages.kernel_plan import KernelTree

SOURCE = Path(__file__).parent / "kernel-tree"
VERSION = "6.12.7"


def no_shadow(command: str) -> str:
    """A compiler that can do nothing."""
    assert command == "check -fshadow"
    return "n"


def read_kconfig(shell: Callable[[str], str] = no_shadow) -> Kconfig:
    return Kconfig({"srctree": str(SOURCE), "KERNELVERSION": VERSION}, shell)


def read_facts() -> Facts:
    return facts.collect(VERSION, facts.reader(SOURCE), facts.c_files(SOURCE))


def read_tree() -> KernelTree:
    return KernelTree(read_facts(), read_kconfig())
