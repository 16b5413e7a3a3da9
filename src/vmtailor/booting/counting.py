# SPDX-License-Identifier: Apache-2.0
"""What the plugin counts in a boot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.base import natives
from vmtailor.base.natives import Natives
from vmtailor.drivers.qemu import plugin, plugin_file, qemu_program
from vmtailor.drivers.qemu.plugin import Owner, Plugin, PluginConfig, PluginMode
from vmtailor.model.boots.counters import Counters
from vmtailor.model.machine import Clock, Machine

#: How an error calls the plugin's file.
_NAME = "the plugin's counts"


@dataclass(frozen=True)
class Counting:
    """`library`: the plugin, for this QEMU. `table`: names the functions that are counted."""

    library: Path
    config: PluginConfig
    table: SymbolTable | None = None


def counting(parts: Natives, config: PluginConfig, table: SymbolTable | None = None) -> Counting:
    """Counting with the plugin that fits the installed QEMU."""
    return Counting(parts.plugin(qemu_program.plugin_api(config.architecture)), config, table)


def settling(machine: Machine) -> Counting | None:
    """Counting nothing, where the plugin is needed nevertheless: on the instruction clock a guest that idles jumps to
    its next timer, and would come to the end of its patience while a busy host reads its disk. None on the wall clock,
    for several CPUs, which the plugin cannot hold, and with a QEMU that loads none."""
    if machine.clock is not Clock.INSTRUCTIONS or machine.cpus > 1:
        return None
    if qemu_program.installed(machine.architecture).plugin_api is None:
        return None
    return counting(natives.locate(), PluginConfig(mode=PluginMode.SETTLE, architecture=machine.architecture))


def prepare(wanted: Counting | None, folder: Path, owners: Iterable[Owner] = ()) -> Plugin | None:
    """The plugin as it is loaded, its files in a folder; None where nothing is counted. `owners`: user code that is
    kept apart, besides what the configuration names."""
    if wanted is None:
        return None
    config = replace(wanted.config, owners=(*wanted.config.owners, *owners))
    return plugin.prepare(wanted.library, config, folder)


def counted(loaded: Plugin | None) -> tuple[bytes, Counters | None]:
    """The plugin's file, and what it says; nothing where there is none."""
    if loaded is None or loaded.mode is PluginMode.SETTLE or not loaded.out.exists():
        return b"", None
    data = loaded.out.read_bytes()
    return data, plugin_file.parse(data, _NAME) if data else None
