# SPDX-License-Identifier: Apache-2.0
"""The lines of a bundle whose kernel's source was patched."""

from __future__ import annotations

from vmtailor.base.terminal import TerminalConsole, Text
from vmtailor.drivers.kernel import kernel_patches
from vmtailor.model.bundle import Bundle


def show_patches(bundle: Bundle) -> None:
    """Print, in red on standard error, each patch of a bundle's kernel with what it gives up; nothing without one."""
    for name, _ in bundle.patches:
        gives_up = kernel_patches.every()[name].gives_up
        line = Text.assemble(("unsafe  ", "bold red"), (f"the kernel has the patch {name}: {gives_up}", "red"))
        TerminalConsole(stderr=True).print(line, soft_wrap=True)
