# SPDX-License-Identifier: Apache-2.0
"""The TCG plugin: its configuration, and how QEMU is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from vmtailor.base.errors import VmtailorError
from vmtailor.model.architecture import Architecture, Opcode, named, presumed_name
from vmtailor.model.boots.counters import START_KERNEL, CodeMark, CodeSpan

#: Owners that the plugin can tell apart, besides "boot" and "other".
MAX_OWNERS = 14


class PluginMode(StrEnum):
    """`counts`: every instruction exactly. `coverage`: entries of blocks only, cheaper. `settle`: nothing is counted;
    QEMU only finishes a device's work before the guest goes on."""

    COUNTS = "counts"
    COVERAGE = "coverage"
    SETTLE = "settle"


@dataclass(frozen=True)
class Owner:
    """User code at start <= address < end belongs to `name`."""

    name: str
    start: int
    end: int


@dataclass(frozen=True)
class PluginConfig:
    """What the plugin shall do.

    `kernel`: the address of start_kernel; code below the kernel's half before it is firmware and early kernel,
    afterwards user code, unless it is firmware that stays. By default that of the mark of that name.
    `devices`: count memory-mapped device accesses, and let QEMU finish a device's work before the guest goes on;
    without it, boots with disks differ a little. `architecture`: its name, as model/architecture.py knows it.
    """

    kernel: int | None = None
    mode: PluginMode = PluginMode.COUNTS
    devices: bool = True
    marks: tuple[CodeMark, ...] = ()
    spans: tuple[CodeSpan, ...] = ()
    owners: tuple[Owner, ...] = ()
    architecture: str = field(default_factory=presumed_name)

    def text(self) -> str:
        """The configuration file's text."""
        if len(self.owners) > MAX_OWNERS:
            raise VmtailorError(f"the plugin tells {MAX_OWNERS} owners apart, not {len(self.owners)}")
        lines = processor(named(self.architecture))
        lines += [f"mode {self.mode}", f"devices {'on' if self.devices else 'off'}"]
        kernel = self.kernel
        if kernel is None:
            kernel = next((mark.address for mark in self.marks if mark.name == START_KERNEL), None)
        if kernel is not None:
            lines.append(f"kernel {kernel:x}")
        lines += [f"owner {_word(o.name)} {o.start:x} {o.end:x}" for o in self.owners]
        lines += [f"mark {_word(m.name)} {m.address:x} {'every' if m.every else 'once'}" for m in self.marks]
        lines += [f"span {_word(s.name)} {s.address:x}" for s in self.spans]
        return "\n".join(lines) + "\n"


def processor(row: Architecture) -> list[str]:
    """What the plugin is told of a processor: how it tells the kernel from programs, and sees accesses to devices."""
    lines = [f"architecture {row.name}", f"target {row.emulator.target}", f"half {row.addresses.kernel_half:x}"]
    if row.addresses.firmware_last:
        lines.append(f"firmware {row.addresses.firmware_first:x} {row.addresses.firmware_last + 1:x}")
    lines += [f"prefix {_opcode(one)}" for one in row.devices.ports.prefixes]
    lines += [f"port {_opcode(one)}" for one in row.devices.ports.opcodes]
    return lines + [f"at-once {page:x}" for page in row.devices.at_once]


def _opcode(one: Opcode) -> str:
    return f"{one.value:x} {one.mask:x}{' half' if one.kernel_half else ''}"


@dataclass(frozen=True)
class Plugin:
    """A plugin's library, and the files it reads and writes."""

    library: Path
    config: Path
    out: Path
    mode: PluginMode = PluginMode.COUNTS

    def option(self, name: Callable[[str], str] = str) -> str:
        """The value of QEMU's -plugin option. `name`: what QEMU calls a file; its output may be "fd:NUMBER", too."""
        library, config, out = (name(str(path)).replace(",", ",,") for path in (self.library, self.config, self.out))
        return f"{library},config={config},out={out}"


def prepare(library: Path, config: PluginConfig, folder: Path) -> Plugin:
    """Write the configuration into a folder, where the results will be, too."""
    plugin = Plugin(library, folder / "plugin.conf", folder / "plugin.counts", config.mode)
    plugin.config.write_text(config.text())
    plugin.out.unlink(missing_ok=True)
    return plugin


def _word(name: str) -> str:
    if not name or len(name) > 200 or any(c.isspace() or c == "#" or not c.isprintable() for c in name):
        raise VmtailorError(f"{name!r} cannot name a mark, a span or an owner")
    return name
