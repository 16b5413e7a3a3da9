# SPDX-License-Identifier: Apache-2.0
"""One boot counted by the plugin up to init, each instruction put down to a function, its file and its symbol."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vmtailor.analysis.cost import attribution_boot
from vmtailor.analysis.cost.attribution import Conditions, addresses, attribute
from vmtailor.analysis.cost.counters import KERNEL_MARK, SymbolTable, activity_spans, initcall_spans, kernel_marks
from vmtailor.analysis.ksource import facts as ksource_facts
from vmtailor.analysis.ksource.kconfig import Kconfig, parse_config
from vmtailor.base import records
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.natives import Natives
from vmtailor.base.progress import step
from vmtailor.base.store import Store
from vmtailor.drivers.distribution import kernel_packages
from vmtailor.drivers.kernel.kconfig_shell import KconfigShell
from vmtailor.drivers.kernel.symbolizer import symbolize
from vmtailor.drivers.qemu import plugin, plugin_file, qemu_program
from vmtailor.drivers.qemu.plugin import PluginConfig, PluginMode
from vmtailor.model.architecture import every, named, presumed, presumed_name
from vmtailor.model.boot_cost import BootCost
from vmtailor.model.counters import CodeMark, Counters
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.machine import Clock, Machine
from vmtailor.model.series import Outcome, VmBoot
from vmtailor.model.workload import ReadyBy, ReadySignal
from vmtailor.stages.boot.once import Plan, boot_once

RECORD = "cost.json"
#: Where the kernel executes the first program: /init of the initial RAM disk, or init itself.
_INIT_FUNCTION = "run_init_process"
#: The console's word for the same moment, which ends the boot.
_RUN = ReadySignal(ReadyBy.LOG, pattern=r"Run \S+ as init process")


@dataclass(frozen=True)
class Known:
    """What must be known of a kernel: symbols, debug information, source, configuration."""

    release: str
    version: str
    system_map: Path
    vmlinux: Path
    source: Path
    source_digest: str
    config: Path
    architecture: str = field(default_factory=presumed_name)


def release_of(kernel: Path) -> str:
    """What `uname -r` will say, from a packed kernel's header or a vmlinux. "" when it does not tell."""
    with kernel.open("rb") as file:
        head = file.read(65536)
    for header in (row.kernel.header for row in every()):
        if header is not None and head[header.magic_at :].startswith(header.magic.encode()):
            at = int.from_bytes(head[header.pointer_at : header.pointer_at + 2], "little") + header.base
            return head[at : at + 200].split(b"\0")[0].split(b" ")[0].decode("ascii", "replace")
    if head[:4] == b"\x7fELF":
        found = re.search(rb"Linux version (\S{1,120}) ", kernel.read_bytes())
        return found[1].decode("ascii", "replace") if found else ""
    return ""


def of_package(kernel: Path, store: Store, architecture: str | None = None) -> Known:
    """The packages of the very kernel that is booted. Raises UserInputError for a kernel that is not the
    distribution's."""
    row = presumed() if architecture is None else named(architecture)
    release = release_of(kernel)
    offered = [k for k in kernel_packages.available(row) if k.release == release]
    if not offered:
        raise UserInputError(
            f"{kernel} is {release or 'no kernel that says its release'}: no package with its symbols and "
            f"source is known",
            hint="attribution works with the distribution's cloud kernels",
        )
    found: KernelBaseline = kernel_packages.provide(store, offered[0].version, architecture=row.name)
    return Known(
        found.release, found.version, Path(found.system_map), Path(found.debug_vmlinux), Path(found.source_dir),
        found.source_digest, Path(found.config), row.name,
    )  # fmt: skip


class Counting:
    """Boots on the instruction clock with the plugin, from kernel entry to init."""

    def __init__(self, known: Known, natives: Natives, mode: PluginMode = PluginMode.COUNTS) -> None:
        """`mode`: to compare totals, blocks counted whole are enough, and several times as fast.

        Raises UserInputError for a kernel whose symbols do not name where it starts init."""
        table = SymbolTable.parse(known.system_map.read_text("ascii", "replace"), known.architecture)
        if _INIT_FUNCTION not in table.addresses:
            raise UserInputError(f"{known.system_map} does not name {_INIT_FUNCTION}")
        marks = (*kernel_marks(table), CodeMark(attribution_boot.INIT_MARK, table.addresses[_INIT_FUNCTION]))
        spans = (*initcall_spans(table), *activity_spans(table))
        self._config = PluginConfig(mode=mode, marks=marks, spans=spans, architecture=known.architecture)
        self._library = natives.plugin(qemu_program.plugin_api(known.architecture))

    def boot(
        self, machine: Machine, plan: Plan, folder: Path, *, number: int, variant: str,
        on_progress: Callable[[float], None] | None = None,
    ) -> tuple[VmBoot, Counters]:  # fmt: skip
        """Boot once; `instructions` of the boot is from kernel entry to init."""
        folder.mkdir(parents=True, exist_ok=True)
        loaded = plugin.prepare(self._library, self._config, folder)
        boot = boot_once(
            countable(machine), plan, folder, number=number, variant=variant, plugin=loaded, on_progress=on_progress
        )
        counted = plugin_file.read(loaded.out)
        begin, end = counted.at(KERNEL_MARK), counted.at(attribution_boot.INIT_MARK)
        executed = end.since(begin).executed if begin is not None and end is not None else None
        return replace(boot, instructions=executed), counted


class Settled:
    """Boots on the instruction clock with the plugin and no marks: it lets devices finish before the guest goes on,
    without which virtual time would depend on the host's disks. Takes the place of `boot_once` in a series."""

    def __init__(self, natives: Natives) -> None:
        self._natives = natives

    def __call__(
        self, machine: Machine, plan: Plan, folder: Path, *, number: int, variant: str,
        header: Sequence[tuple[str, str]] = (), on_progress: Callable[[float], None] | None = None,
    ) -> VmBoot:  # fmt: skip
        folder.mkdir(parents=True, exist_ok=True)
        library = self._natives.plugin(qemu_program.plugin_api(machine.architecture))
        config = PluginConfig(mode=PluginMode.COVERAGE, architecture=machine.architecture)
        loaded = plugin.prepare(library, config, folder)
        boot = boot_once(
            countable(machine), plan, folder, number=number, variant=variant, plugin=loaded, header=header,
            on_progress=on_progress,
        )  # fmt: skip
        counted = plugin_file.read(loaded.out)
        loaded.out.unlink()
        # QEMU ends a moment after ready: that much too many.
        end = counted.stretches[-1].at_end.executed if counted.stretches else None
        marks = tuple(replace(m, executed=end) if m.name == "ready" else m for m in boot.milestones)
        return replace(boot, milestones=marks)


def countable(machine: Machine) -> Machine:
    """The machine on the instruction clock: one CPU, nothing of the host's randomness, addresses as linked."""
    words = machine.append if "nokaslr" in machine.append else (*machine.append, "nokaslr")
    return replace(machine, clock=Clock.INSTRUCTIONS, cpus=1, entropy=False, append=words)


def attributed(
    machine: Machine, known: Known, out: Path, *, natives: Natives, store: Store, timeout_s: float
) -> BootCost:
    """Boot once on the instruction clock up to init, and say what each part of the kernel cost on the way; what `out`
    has of this kernel already is taken as it is.

    Raises GuestError when the kernel does not get that far."""
    if (out / RECORD).is_file() and (saved := records.load(BootCost, out / RECORD)).release == known.release:
        return saved  # counted by a run that was interrupted, or a first one
    folder = out / "attribution"
    # The line that ends the boot must be printed.
    words = tuple(word for word in machine.append if word != "quiet" and not word.startswith("loglevel="))
    # Unpacked beside the initcalls, the initial RAM disk would be put down to whichever one waits meanwhile.
    machine = replace(machine, append=(*words, "loglevel=7", "initramfs_async=0"))
    with step("count instructions up to init"):
        boot, counted = Counting(known, natives).boot(
            machine, Plan(_RUN, timeout_s), folder, number=1, variant="attribution"
        )
    if boot.outcome is not Outcome.READY:
        raise GuestError(f"the kernel did not come to init: {boot.problem}", hint=f"its console: {folder}/console.log")
    cost = cost_of(counted, known, store)
    records.save(cost, out / RECORD)
    return cost


def cost_of(counted: Counters, known: Known, store: Store) -> BootCost:
    """Each instruction from kernel entry to init put down to a function, its file and its symbol."""
    with step("put instructions down to functions, files and symbols"):
        return _cost(counted, known, store)


def _cost(counted: Counters, known: Known, store: Store) -> BootCost:
    row = named(known.architecture)
    shell = KconfigShell(known.source, architecture=row, store=store, source_id=known.source_digest)
    try:
        kconfig = Kconfig(shell.env, shell)
    finally:
        shell.close()
    facts = ksource_facts.load(known.source, known.version, known.source_digest, store, architecture=row)
    values = parse_config(known.config.read_text())
    frames = symbolize(known.vmlinux, addresses(counted).tolist())
    found = attribute(
        counted, frames, Conditions(facts, ksource_facts.reader(known.source)),
        enabled={name: value for name, value in values.items() if value in ("y", "m")},
        choosable=kconfig.prompted,
        always=kconfig.resolve(tuple(row.kernel.always.items())).enabled,
        phase_of=attribution_boot.phase_of,
    )  # fmt: skip
    return attribution_boot.rows_of(known.release, counted, found)
