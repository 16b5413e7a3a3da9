# SPDX-License-Identifier: Apache-2.0
"""What one lever does to a boot: builds platform and policy of the catalogue with a few symbols changed, boots it to
the first instruction of init on the instruction clock, and prints instructions, gross and net, by function.

    python tools/boot_cost.py                                   # platform and policy as they are
    python tools/boot_cost.py --set SYSFS=y --set UNWINDER_ORC=y --unset UNWINDER_GUESS
    python tools/boot_cost.py --kernel FILE --system-map FILE --word init_on_alloc=0 --memory 128
"""

from __future__ import annotations

import argparse
import tarfile
import tempfile
from pathlib import Path

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.analysis.cost import loops as emulation
from vmtailor.analysis.cost import plugin_counts, side_figures
from vmtailor.base.cache.store import Store
from vmtailor.base.natives import locate
from vmtailor.booting.boot_counter import Counting
from vmtailor.booting.booter import boot as boot_machine
from vmtailor.drivers.distribution import packaged_baseline, selection
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.kernel import elf_pack, kernel_source, make
from vmtailor.drivers.rootfs import rootfs
from vmtailor.model.architecture import presumed, presumed_name
from vmtailor.model.boots.counters import CodeMark, Counters, CountingConfig
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, Run
from vmtailor.model.image import ImageConfig
from vmtailor.model.machine import Disk, Machine
from vmtailor.model.plan import RootFormat

WORDS = "root=/dev/vda ro rootfstype=erofs init=/.vmtailor/init console=ttyS0 quiet panic=-1 reboot=t nokaslr"


def fragment(kind: str, version: str, changed: dict[str, str], unset: list[str]) -> dict[str, str]:
    """The catalogue's symbols for a small machine, with changes."""
    situation = symbol_catalogue.Situation(kind, RootFormat.EROFS, version)
    wanted = {name: value for entry in symbol_catalogue.load().chosen(situation) for name, value in entry.symbols}
    return {name: value for name, value in (wanted | changed).items() if name not in unset}


def build(kind: str, changed: dict[str, str], unset: list[str], folder: Path) -> tuple[Path, Path, str]:
    """Compile; returns the kernel file, its System.map and a line about its size."""
    store = Store()
    baseline = packaged_baseline.provide(selection.of_host(), presumed(), store)
    source = Path(baseline.source_dir)
    wanted = fragment(kind, kernel_source.version_of(source), changed, unset)
    work = store.root / "kernel-build" / "boot-cost"
    toolchain = make.Toolchain.of(presumed())
    configured = make.configure(source, work, wanted.items(), toolchain)
    if configured.lost:  # of entries that are set only where they can be
        print("not possible here:", ", ".join(one.name for one in configured.lost))
        gone = {one.name for one in configured.lost}
        configured = make.configure(source, work, [(n, v) for n, v in wanted.items() if n not in gone], toolchain)
    compiled = make.compile_kernel(configured, ("vmlinux",), toolchain)
    elf_pack.pack(compiled.vmlinux, folder / "vmlinux")
    size = (folder / "vmlinux").stat().st_size
    return folder / "vmlinux", compiled.system_map, f"{configured.total_y} symbols y, {size:,} bytes"


def boot(machine: Machine, system_map: Path, folder: Path) -> Counters:
    """One boot to init; the container has nothing to run, which does not matter here."""
    table = plugin_counts.SymbolTable.parse(system_map.read_text())
    marks = [*plugin_counts.kernel_marks(table), CodeMark("init", locate().marks()["init"])]
    run = Run(argv=("/nothing",), key=FIXED_KEY)
    config = CountingConfig(kernel=table.addresses["start_kernel"], marks=tuple(marks))
    _, gathered = boot_machine(machine, Exercised(run, 600), folder, counting=Counting(locate(), config))
    assert gathered.counters is not None
    return gathered.counters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", default="microvm")
    parser.add_argument("--memory", type=int, default=256, help="MB")
    parser.add_argument("--cpu", default="max")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--unset", action="append", default=[], metavar="NAME")
    parser.add_argument("--word", action="append", default=[])
    parser.add_argument("--kernel", type=Path, help="boot this instead of building")
    parser.add_argument("--system-map", type=Path)
    parser.add_argument("--top", type=int, default=25)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="boot-cost-") as name:
        folder = Path(name)
        kernel, system_map, size = given.kernel, given.system_map, ""
        if kernel is None:
            changed = dict(one.split("=", 1) for one in given.set)
            kernel, system_map, size = build(given.machine, changed, given.unset, folder)
        tarfile.open(folder / "empty.tar", "w").close()
        config = ImageConfig("amd64", cmd=("/nothing",))
        entries = guest_volume.root_entries(locate(), guest_volume.config_bytes(config))
        root = rootfs.build(folder / "empty.tar", folder / "root", RootFormat.EROFS, entries)
        machine = Machine(
            given.machine, given.memory << 20, str(kernel), (*WORDS.split(), *given.word),
            disks=(Disk(str(root)),), cpu_model=given.cpu,
        )  # fmt: skip
        report(boot(machine, system_map, folder), system_map, size, given.top)


def report(counted: Counters, system_map: Path, size: str, top: int) -> None:
    rows = plugin_counts.functions(counted, plugin_counts.SymbolTable.parse(system_map.read_text()))
    loops = emulation.functions(emulation.table(presumed_name()))
    total, waited = 0, 0
    for row in rows:
        if row.phase in side_figures.FROM_RESET[1:]:
            total += row.instructions
            waited += row.instructions if row.function in loops else 0
    print(size)
    print(f"kernel entry to init: {total:,} instructions, {total - waited:,} net of loops that only emulation causes")
    kernel = [row for row in rows if row.phase in side_figures.FROM_RESET[1:]]
    for row in sorted(kernel, key=lambda one: -one.instructions)[:top]:
        print(f"{row.instructions:13,}  {row.function}{'  (emulation only)' if row.function in loops else ''}")


if __name__ == "__main__":
    main()
