# SPDX-License-Identifier: Apache-2.0
"""Write docs/reference/monitor-needs.md: what kernels need for machines of each monitor beyond the usual board's
symbols, and the price of it (src/vmtailor/data/monitors).

    tools/monitor_needs.py [--check]
    tools/monitor_needs.py --measure BUNDLE MONITOR NEED

With --check it only says whether the page is up to date. With --measure it compiles the bundle's kernel with the
symbols of a need, boots both kernels once on the instruction clock, and prints the price as the row of data has it.
"""

from __future__ import annotations

import argparse
import lzma
import sys
from dataclasses import replace
from pathlib import Path

from vmtailor.base.cache.store import Store
from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.base.files import temporary
from vmtailor.base.natives import locate
from vmtailor.booting.fitted_machine import Chosen, machine_of
from vmtailor.booting.instruction_boots import CountedToInit
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import MonitorNeed, NeedPrice
from vmtailor.model.boots.workload import FIXED_KEY, Exercised, Run
from vmtailor.model.machine import Clock
from vmtailor.pipeline.bundle_kernel import Rebuilder

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "monitor-needs.md"
#: Host seconds that one boot may take.
_BOOT_S = 900

HEAD = """<!-- Written by tools/monitor_needs.py from src/vmtailor/data/monitors: change that, then run `make docs`. -->
# Kernel symbols that monitors need

A kernel is fitted to QEMU's smallest board: virtio-mmio, a serial line, neither PCI nor ACPI. Firecracker, libkrun and
QEMU under KVM start it unchanged on x86-64. This page lists what a kernel needs besides for other machines, and the
price of it: how much larger the kernel of one fitted image becomes. `fit --keep SYMBOL` keeps a symbol.

| monitor | need | machines | symbols | why |
| --- | --- | --- | --- | --- |
"""

PRICES = """
## Prices

| need | kernel | kernel file | with xz | loaded | instructions to init |
| --- | --- | --- | --- | --- | --- |
"""

TAIL = """
*Loaded* is the memory of the kernel's segments. Instructions are gross, from kernel entry to init in the usual machine,
where drivers look for devices that are not there. A machine with these devices costs more. This command measures a row
again, with any bundle of a container:

    .venv/bin/python tools/monitor_needs.py --measure BUNDLE MONITOR NEED
"""


def rows() -> list[tuple[str, MonitorNeed]]:
    """All needs, each with the title of its monitor."""
    return [(one.row.title, need) for one in monitors.every() for need in one.row.need]


def page() -> str:
    """The whole page as Markdown."""
    parts = [HEAD]
    for title, need in rows():
        symbols = " ".join(f"`{name}`" if value == "y" else f"`{name}={value}`" for name, value in need.symbols.items())
        parts.append(f"| {title} | `{need.id}` | {need.where} | {symbols} | {need.reason} |\n")
    parts.append(PRICES)
    for _, need in rows():
        if (price := need.price) is not None:
            sizes = (price.kernel_bytes, price.compressed_bytes, price.memory_bytes)
            cells = [*(f"+{one:,} bytes" for one in sizes), f"+{price.init_instructions:,}"]
            parts.append(f"| `{need.id}` | {price.of} | {' | '.join(cells)} |\n")
    return "".join((*parts, TAIL))


def measured(folder: Path, need: MonitorNeed) -> NeedPrice:
    """The price of a need for the kernel of a bundle. Raises VmtailorError."""
    store = Store()
    loaded = bundle_folder.load_container(folder, store)
    with temporary.held_folder() as scratch:
        own = scratch / "System.map"
        own.write_bytes(loaded.symbols)
        kernel = Rebuilder(loaded, store)(need.symbols)
        before = _facts(loaded, loaded.kernel, own, scratch)
        after = _facts(loaded, kernel, kernel.parent / "System.map", scratch)
    sizes = [late - early for early, late in zip(before, after, strict=True)]
    name = loaded.bundle.image_reference.rsplit("/", 1)[-1]
    return NeedPrice(
        of=f"{name}, {loaded.bundle.kernel_version}", kernel_bytes=sizes[0], compressed_bytes=sizes[1],
        memory_bytes=sizes[2], init_instructions=sizes[3],
    )  # fmt: skip


def _facts(loaded: BundleFolder, kernel: Path, system_map: Path, scratch: Path) -> tuple[int, int, int, int]:
    """The bytes of a kernel's file, as it is and with xz, those that are loaded, and the instructions to init."""
    data = kernel.read_bytes()
    machine = machine_of(loaded, Chosen(cpu_model=loaded.trace.cpu_model, clock=Clock.INSTRUCTIONS))
    machine = replace(machine, kernel=str(kernel), network=False)
    count = CountedToInit(system_map, locate(), architecture=loaded.bundle.architecture)
    # Init finds no such program, which is after all that is counted.
    boot, _ = count(machine, Exercised(Run(argv=("/nothing",), key=FIXED_KEY), _BOOT_S), scratch)
    if boot.instructions is None:
        raise UserInputError(f"{kernel} did not come to init: {boot.problem}")
    return len(data), len(lzma.compress(data, preset=6)), loaded_bytes(data), boot.instructions


def loaded_bytes(data: bytes) -> int:
    """The bytes of memory of an ELF file's segments that are loaded."""
    at, size, count = (int.from_bytes(data[a:b], "little") for a, b in ((32, 40), (54, 56), (56, 58)))
    heads = [data[at + size * number : at + size * (number + 1)] for number in range(count)]
    return sum(int.from_bytes(head[40:48], "little") for head in heads if int.from_bytes(head[:4], "little") == 1)


def main() -> int:
    """Write the page, check it, or measure. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--measure", nargs=3, metavar=("BUNDLE", "MONITOR", "NEED"))
    given = parser.parse_args()
    if given.measure:
        folder, monitor, name = given.measure
        need = next((one for one in monitors.named(monitor).row.need if one.id == name), None)
        if need is None:
            raise UserInputError(f"{monitor} has no need '{name}'", hint="the page lists them")
        price = measured(Path(folder), need)
        print("[need.price]")
        print(f'of = "{price.of}"')
        for field in ("kernel_bytes", "compressed_bytes", "memory_bytes", "init_instructions"):
            print(f"{field} = {getattr(price, field):_}")
        return 0
    wanted = page()
    if given.check:
        if PAGE.is_file() and PAGE.read_text() == wanted:
            return 0
        print(f"{PAGE} is not what the rows of monitors say; run: make docs", file=sys.stderr)
        return 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except VmtailorError as error:
        raise SystemExit(f"error: {error.message}\nhint: {error.hint}") from error
