# SPDX-License-Identifier: Apache-2.0
"""TCG plugin: its configuration, its files, and the option that loads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from vmtailor.base.errors import VmtailorError
from vmtailor.model.architecture import Architecture, Opcode, named
from vmtailor.model.boots.counters import (
    ENTRY,
    START_KERNEL,
    CodeMark,
    CodeSpan,
    Counters,
    CountingConfig,
    CountingMode,
)
from vmtailor.model.call_code import FollowedCode

#: Owners that the plugin can tell apart, besides "boot" and "other".
MAX_OWNERS = 14


def text_of(config: CountingConfig) -> str:
    """Return the text of the plugin's configuration file."""
    if len(config.owners) > MAX_OWNERS:
        raise VmtailorError(f"the plugin tells {MAX_OWNERS} owners apart, not {len(config.owners)}")
    lines = processor(named(config.architecture))
    lines += [f"mode {config.mode}", f"devices {'on' if config.devices else 'off'}"]
    kernel = config.kernel
    if kernel is None:
        kernel = next((mark.address for mark in config.marks if mark.name == START_KERNEL), None)
    if kernel is not None:
        lines.append(f"kernel {kernel:x}")
    lines += [f"owner {_word(o.name)} {o.start:x} {o.end:x}" for o in config.owners]
    lines += _guests(config)
    lines += [f"mark {_word(m.name)} {_place(m)}" for m in config.marks]
    lines += [f"span {_word(s.name)} {_address(s)}" for s in config.spans]
    return "\n".join(lines) + "\n"


def _guests(config: CountingConfig) -> list[str]:
    """Return the options that count a guest of the machine's own hypervisor apart."""
    if not config.guests:
        return []
    architecture = named(config.architecture)
    if not architecture.emulator.guest_entry:
        raise VmtailorError(f"guests of a hypervisor within a machine of {architecture.title} cannot be counted apart")
    lines = [f"guest-entry {architecture.emulator.guest_entry}"]
    return lines if config.guest_kernel is None else [*lines, f"guest-kernel {config.guest_kernel:x}"]


def _place(mark: CodeMark) -> str:
    often = "every" if mark.every else "once"
    address, _, where = _address(mark).partition(" ")
    return f"{address} {often} {where}".rstrip()


def _address(point: CodeMark | CodeSpan) -> str:
    if point.address == ENTRY:
        return "entry"
    return f"{point.address:x}{' guest' if point.in_guest else ''}"


def processor(architecture: Architecture) -> list[str]:
    """Return the plugin's options for a processor: how it tells the kernel from programs, and sees accesses to
    devices."""
    lines = [
        f"architecture {architecture.name}",
        f"target {architecture.emulator.target}",
        f"half {architecture.addresses.kernel_half:x}",
    ]
    if architecture.addresses.firmware_last:
        lines.append(f"firmware {architecture.addresses.firmware_first:x} {architecture.addresses.firmware_last + 1:x}")
    lines += [f"prefix {_opcode(one)}" for one in architecture.devices.ports.prefixes]
    lines += [f"port {_opcode(one)}" for one in architecture.devices.ports.opcodes]
    return lines + [f"at-once {page:x}" for page in architecture.devices.at_once]


def _opcode(one: Opcode) -> str:
    return f"{one.value:x} {one.mask:x}{' half' if one.kernel_half else ''}"


@dataclass(frozen=True)
class Plugin:
    """A plugin's library, and the files it reads and writes. `functions`: of the one that follows calls."""

    library: Path
    config: Path
    out: Path
    mode: CountingMode = CountingMode.COUNTS
    functions: Path | None = None

    def counted(self) -> tuple[bytes, Counters | None]:
        """Return the file that the plugin left, and what it says; nothing where it counts or wrote nothing."""
        if self.mode is CountingMode.SETTLE or not self.out.exists():
            return b"", None
        from vmtailor.drivers.monitors import counts_file  # a run counts nothing: it loads no numpy

        data = self.out.read_bytes()
        if self.functions is not None:
            return data, None
        return data, counts_file.parse(data, "the plugin's counts") if data else None

    def option(self, name: Callable[[str], str] = str) -> str:
        """Return the value of QEMU's -plugin option. `name`: what QEMU calls a file; its output may be "fd:NUMBER",
        too."""
        paths = (self.library, self.config, self.out, *((self.functions,) if self.functions is not None else ()))
        library, config, out, *functions = (name(str(path)).replace(",", ",,") for path in paths)
        return f"{library},config={config},out={out}{''.join(f',functions={one}' for one in functions)}"


def prepare(library: Path, config: CountingConfig, folder: Path) -> Plugin:
    """Write the configuration into a folder, where the results will be, too."""
    functions = folder / "plugin.functions" if config.follow is not None else None
    plugin = Plugin(
        library=library,
        config=folder / "plugin.conf",
        out=folder / "plugin.counts",
        mode=config.mode,
        functions=functions,
    )
    if functions is not None and config.follow is not None:
        functions.write_text(functions_text(named(config.architecture), config.follow))
    plugin.config.write_text(text_of(config))
    plugin.out.unlink(missing_ok=True)
    return plugin


def functions_text(architecture: Architecture, code: FollowedCode) -> str:
    """Return the text of the file of functions, for the plugin that follows calls, of a processor whose calls can be
    followed."""
    following = architecture.following
    if following is None:
        raise VmtailorError(f"the calls of a kernel for {architecture.title} cannot be followed")
    lines = [f"stack {following.stack_bytes:x}", f"nodes {code.most_nodes:x}", f"image-map {code.image_map:x}"]
    lines += [f"opcode {o.kind} {o.value:x} {o.mask:x} {o.next:x} {o.next_mask:x}" for o in following.opcodes]
    lines += [f"function {one.address:x} {one.flags:x} {one.object}" for one in code.functions]
    return "\n".join(lines) + "\n"


def _word(name: str) -> str:
    if not name or len(name) > 200 or any(c.isspace() or c == "#" or not c.isprintable() for c in name):
        raise VmtailorError(f"{name!r} cannot name a mark, a span or an owner")
    return name
