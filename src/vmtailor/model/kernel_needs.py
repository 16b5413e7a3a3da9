# SPDX-License-Identifier: Apache-2.0
"""The needs of kernels for machines that the usual board does not give: rows of data/monitors and data/targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class NeedPrice:
    """The growth of a tailored kernel by a need: symbols that are y, bytes of the kernel file, instructions from kernel
    entry to init (net)."""

    symbols_y: int
    kernel_bytes: int
    init_instructions_net: int


@dataclass(frozen=True)
class KernelNeed:
    """Symbols that a kernel needs for some machines, beyond those of the usual board: name → value. `where`: the
    machines that need them, in words; `architectures`: by name, empty for all; `variants`: of a target, by name, empty
    for all. `network`: only machines with a network need them. `executed`: instructions of their code from kernel entry
    to ready, in the distribution's kernel on the usual board; None where none was counted. `price`: of a kernel
    tailored to lighttpd that has them; None where none was fitted."""

    id: str
    where: str
    reason: str
    symbols: Mapping[str, str]
    architectures: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    network: bool = False
    executed: int | None = None
    price: NeedPrice | None = None

    def lacking(self, config: Mapping[str, str]) -> tuple[str, ...]:
        """Return the symbols that a kernel's configuration does not have as they are needed: NAME, or NAME=VALUE."""
        return tuple(
            name if value == "y" else f"{name}={value}"
            for name, value in self.symbols.items()
            if config.get(name, "n") != value
        )
