# SPDX-License-Identifier: Apache-2.0
"""Boots that show more of themselves: initcalls logged, units stamped, processes sampled. They cost time themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.timeline.analyze import analyze
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.rootfs import disk
from vmtailor.model.timeline import Timeline
from vmtailor.model.vm import Vm

#: Every initcall with its duration, none of them lost.
INITCALLS = ("initcall_debug", "ignore_loglevel", "log_buf_len=16M")
#: systemd's messages on the kernel's clock.
UNITS = ("systemd.log_target=kmsg", "printk.devkmsg=on")


def with_words(vm: Vm, words: Sequence[str]) -> Vm:
    """The machine with more words on its kernel command line; what is there already stays once."""
    return replace(vm, append=(*vm.append, *(word for word in words if word not in vm.append)))


def with_initcalls(vm: Vm) -> Vm:
    """The machine with every initcall logged. Raises UserInputError where the command line is not ours."""
    if vm.kernel is None:
        raise UserInputError(
            "initcalls can be logged only with --kernel", hint="the disk's loader has its own command line"
        )
    return with_words(vm, INITCALLS)


def with_collector(vm: Vm, collector: Path, folder: Path) -> Vm:
    """The machine with the collector started before its initial RAM disk's /init; `folder` keeps the initial RAM
    disk."""
    if vm.initrd is None:
        raise UserInputError("processes can be sampled only with --initrd")
    folder.mkdir(parents=True, exist_ok=True)
    initrd = disk.with_collector(Path(vm.initrd), collector, folder / "initrd-with-collector")
    words = tuple(word for word in vm.append if not word.startswith("rdinit="))
    return replace(
        vm, initrd=str(initrd.absolute()), append=(*words, f"rdinit=/{disk.COLLECTOR}"), probe=True, collector=True
    )


def timeline_of(folder: Path) -> Timeline:
    """What a boot's own folder tells: its console, and the chart of its processes where there is one."""
    chart = folder / "bootchart"
    return analyze([folder / "console.log", *([chart] if chart.is_dir() else [])])
