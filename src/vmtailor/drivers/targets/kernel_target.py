# SPDX-License-Identifier: Apache-2.0
"""The kernel alone as a target: one file in the form that was asked for, and its command line beside it."""

from __future__ import annotations

from vmtailor.drivers.targets.target import Export, ExportFolder, ExportTarget, Guide

_CMDLINE = "cmdline.txt"


class KernelTarget(ExportTarget):
    """Writes the kernel, and `cmdline.txt`."""

    def write(self, export: Export, folder: ExportFolder) -> Guide:
        folder.copy(export.kernel, export.kernel_name)
        folder.text(_CMDLINE, " ".join(export.machine.words) + "\n")
        notes = (
            f"- Start `{export.kernel_name}` with the words of `{_CMDLINE}` as its command line.",
            "- The root file system is not here: it is a file of the bundle, and the machine's first disk.",
        )
        return Guide(f"ls -l {export.kernel_name}", f"cat {_CMDLINE}", notes)
