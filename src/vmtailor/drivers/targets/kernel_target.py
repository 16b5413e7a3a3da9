# SPDX-License-Identifier: Apache-2.0
"""The kernel alone as a target: one file in the form that was asked for, and its command line beside it."""

from __future__ import annotations

from vmtailor.drivers.targets import unified_image
from vmtailor.drivers.targets.target import Export, ExportFolder, ExportTarget, Guide

_CMDLINE = "cmdline.txt"
_UNIFIED, _INSIDE = "uki", ", which it has inside already"


class KernelTarget(ExportTarget):
    """Writes the kernel, and `cmdline.txt`."""

    def write(self, export: Export, folder: ExportFolder) -> Guide:
        words = " ".join(export.machine.words)
        name = export.kernel_name
        if export.variant == _UNIFIED:
            name = f"{export.name}.efi"
            version = export.bundle.kernel_version
            unified_image.write(export.kernel, words, export.name, version, folder.made(name))
        else:
            folder.copy(export.kernel, name)
        folder.text(_CMDLINE, words + "\n")
        inside = _INSIDE if export.variant == _UNIFIED else ""
        notes = (
            f"- Start `{name}` with the words of `{_CMDLINE}` as its command line{inside}.",
            "- The root file system is not here: it is a file of the bundle, and the machine's first disk.",
        )
        return Guide(f"ls -l {name}", f"cat {_CMDLINE}", notes)
