# SPDX-License-Identifier: Apache-2.0
"""The cost of one boot, counted by the plugin up to init, by function, file and symbol."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path

from vmtailor.analysis.cost import attribution, counterparts
from vmtailor.analysis.cost.attribution import Conditions, addresses, attribute, places
from vmtailor.analysis.cost.plugin_counts import SymbolTable
from vmtailor.analysis.guests.machine_variants import countable
from vmtailor.analysis.ksource import facts as ksource_facts
from vmtailor.analysis.ksource.kconfig import Kconfig
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files import dot_config, records, regular_files
from vmtailor.base.natives import Natives
from vmtailor.base.progress import step
from vmtailor.booting import series_run
from vmtailor.booting.instruction_boots import CountedToInit
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.distribution.distribution import Distribution
from vmtailor.drivers.kernel.kconfig_shell import KconfigShell
from vmtailor.drivers.kernel.symbolizer import symbolize
from vmtailor.model.architecture import every, named, presumed, presumed_name
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.boot_cost import BootCost
from vmtailor.model.boots.counters import Counters, SourceFrames
from vmtailor.model.boots.workload import OwnInit, ReadyBy, ReadySignal
from vmtailor.model.kernel import KernelBaseline
from vmtailor.model.machine import Machine

RECORD = "cost.json"
#: The console's word for the same moment, which ends the boot.
_RUN = ReadySignal(ReadyBy.LOG, pattern=r"Run \S+ as init process")


@dataclass(frozen=True)
class Known:
    """A kernel whose cost can be attributed: symbols, debug information, source, configuration. `moved`: the symbols of
    `vmlinux` if its functions lie elsewhere; only whole functions are counted then."""

    release: str
    version: str
    system_map: Path
    vmlinux: Path
    source: Path
    source_digest: str
    config: Path
    architecture: str = field(default_factory=presumed_name)
    moved: Path | None = None


def release_of(kernel: Path) -> str:
    """Return the kernel's release (`uname -r`), read from a packed kernel's header or a vmlinux; "" when neither has
    it."""
    return banner_of(kernel).partition(" ")[0]


def banner_of(kernel: Path) -> str:
    """Return a kernel's own banner: its release, and who compiled it when. Without more it is the release alone; ""
    when there is none."""
    with kernel.open("rb") as file:
        head = file.read(65536)
    for header in (row.kernel.header for row in every()):
        if header is not None and head[header.magic_at :].startswith(header.magic.encode()):
            if not header.pointer_at:
                return _release_in(kernel)
            at = int.from_bytes(head[header.pointer_at : header.pointer_at + 2], "little") + header.base
            return head[at : at + 200].split(b"\0")[0].decode("ascii", "replace")
    if head[:4] == b"\x7fELF":
        return _release_in(kernel)
    return ""


def _release_in(kernel: Path) -> str:
    """Return the release in a kernel's own banner."""
    found = re.search(rb"Linux version (\S{1,120}) ", kernel.read_bytes())
    return found[1].decode("ascii", "replace") if found else ""


def of_package(
    kernel: Path, store: Store, architecture: str | None = None, distribution: Distribution | None = None
) -> Known:
    """Return the packages of exactly the booted kernel. Raises UserInputError for a kernel that is not the
    distribution's (this host's by default)."""
    row = presumed() if architecture is None else named(architecture)
    asked = distribution or selection.of_host()
    release = release_of(kernel)
    offered = [k for k in asked.kernels(row) if k.release == release]
    if not offered:
        raise UserInputError(
            f"{kernel} is {release or 'no kernel that says its release'}: no package with its symbols and "
            f"source is known",
            hint="attribution works with the distribution's cloud kernels",
        )
    found: KernelBaseline = packaged_baseline.provide(asked, row, store, release)
    return Known(
        release=found.release,
        version=found.version,
        system_map=Path(found.system_map),
        vmlinux=Path(found.debug_vmlinux),
        source=Path(found.source_dir),
        source_digest=found.source_digest,
        config=Path(found.config),
        architecture=row.name,
    )


def attributed(
    machine: Machine, known: Known, out: Path, *, natives: Natives, store: Store, timeout_s: float
) -> BootCost:
    """Boot once on the instruction clock up to init, and return the cost of each part of the kernel. A result in `out`
    for this kernel and machine is reused.

    Raises GuestError when the kernel does not get that far."""
    machine = countable(machine)
    identity = digest(repr(machine), *(Path(file) for file in (machine.kernel, machine.initrd) if file))
    if (out / RECORD).is_file() and (saved := records.load(BootCost, out / RECORD)).machine == identity:
        return saved  # counted by a run that was interrupted, or a first one
    regular_files.make_folder(out)
    folder = out / "attribution"
    # The line that ends the boot must be printed.
    words = tuple(word for word in machine.words if word != "quiet" and not word.startswith("loglevel="))
    # Unpacked beside the initcalls, the initial RAM disk would be put down to whichever one waits meanwhile.
    machine = replace(machine, words=(*words, "loglevel=7", "initramfs_async=0"))
    with step("count instructions up to init"):
        boot, gathered = CountedToInit(known.system_map, natives, architecture=known.architecture)(
            machine, OwnInit(_RUN, timeout_s), out
        )
    series_run.keep(gathered, folder, machine, "attribution")
    if boot.outcome is not Outcome.READY or gathered.counters is None:
        raise GuestError(f"the kernel did not reach init: {boot.problem}", hint=f"its console: {folder}/console.log")
    cost = replace(cost_of(gathered.counters, known, store), machine=identity)
    records.save(cost, out / RECORD)
    return cost


def cost_of(counted: Counters, known: Known, store: Store) -> BootCost:
    """Return the cost from kernel entry to init: each instruction with its function, file and symbol."""
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
    values = dot_config.parse(known.config.read_text())
    where = places(
        _frames(addresses(counted).tolist(), known), Conditions(facts, ksource_facts.reader(known.source)),
        enabled={name: value for name, value in values.items() if value in ("y", "m")},
        choosable=kconfig.prompted,
        always=kconfig.resolve(tuple(row.kernel.always.items())).enabled,
        name_of=SymbolTable.parse(known.system_map.read_text("ascii", "replace"), known.architecture).in_image,
    )  # fmt: skip
    cost = attribution.rows_of(known.release, counted, attribute(counted, where, attribution.phase_of))
    return replace(cost, whole_functions=known.moved is not None)


def _frames(asked: list[int], known: Known) -> dict[int, SourceFrames]:
    """Return the frames at each address of the kernel that was booted."""
    if known.moved is None:
        return symbolize(known.vmlinux, asked)
    mine, theirs = (path.read_text("ascii", "replace") for path in (known.system_map, known.moved))
    counterpart, _ = counterparts.counterparts(counterparts.functions(mine), counterparts.functions(theirs))
    at = counterparts.begins(SymbolTable.parse(mine, known.architecture), counterpart, asked)
    return counterparts.whole_functions(at, symbolize(known.vmlinux, at.values()))
