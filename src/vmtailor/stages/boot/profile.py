# SPDX-License-Identifier: Apache-2.0
"""Boots that show more of themselves: initcalls logged, units stamped, processes sampled. All of these cost time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vmtailor.analysis.timeline.boot_timeline import analyze
from vmtailor.base.errors import UserInputError
from vmtailor.drivers.rootfs import initrd_additions
from vmtailor.model.boots.timeline import Timeline
from vmtailor.model.machine import Machine

#: Every initcall with its duration, none of them lost.
INITCALLS = ("initcall_debug", "ignore_loglevel", "log_buf_len=16M")
#: systemd's messages on the kernel's clock.
UNITS = ("systemd.log_target=kmsg", "printk.devkmsg=on")


def with_words(machine: Machine, words: Sequence[str]) -> Machine:
    """Return the machine with more words on its kernel command line; words that are already there are not repeated."""
    return replace(machine, words=(*machine.words, *(word for word in words if word not in machine.words)))


def with_initcalls(machine: Machine) -> Machine:
    """Return the machine with every initcall logged. Raises UserInputError where the command line is not ours."""
    if machine.kernel is None:
        raise UserInputError(
            "initcalls can be logged only with --kernel", hint="the disk's loader has its own command line"
        )
    return with_words(machine, INITCALLS)


def with_collector(machine: Machine, collector: Path, folder: Path) -> Machine:
    """Return the machine with the collector started before its initial RAM disk's /init. It writes to a second serial
    port, for a boot that listens to it. `folder` keeps the initial RAM disk."""
    if machine.initrd is None:
        raise UserInputError("processes can be sampled only with --initrd")
    folder.mkdir(parents=True, exist_ok=True)
    initrd = initrd_additions.with_collector(Path(machine.initrd), collector, folder / "initrd-with-collector")
    words = tuple(word for word in machine.words if not word.startswith("rdinit="))
    return replace(machine, initrd=str(initrd.absolute()), words=(*words, f"rdinit=/{initrd_additions.COLLECTOR}"))


def timeline_of(folder: Path, symbols: Path | None = None) -> Timeline:
    """Return the timeline of a boot from its folder: its console, and the chart of its processes if there is one.
    `symbols`: the kernel's System.map, for a kernel that logs its initcalls by address."""
    chart = folder / "bootchart"
    beside = [*([chart] if chart.is_dir() else []), *([symbols] if symbols is not None else [])]
    return analyze([folder / "console.log", *beside])
