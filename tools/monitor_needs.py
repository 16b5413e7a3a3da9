# SPDX-License-Identifier: Apache-2.0
"""Write docs/reference/monitor-needs.md: what kernels need for machines of each monitor and of each target of `export`
beyond the usual board's symbols, and the price of it (src/vmtailor/data/monitors, src/vmtailor/data/targets).

    tools/monitor_needs.py [--check]
    tools/monitor_needs.py --costs RUN
    tools/monitor_needs.py --price FORMER REFIT

With --check it only says whether the page is up to date. With --costs it prints how many instructions the code of each
need executed on the baseline of a fit, from its record (run.json): the `executed` of a row. With --price it prints by
how much the second of two fits of one image is dearer: the `price` of a row.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from vmtailor.base.errors import UserInputError, VmtailorError
from vmtailor.base.files import records
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.targets import targets
from vmtailor.model.fit_run import FitRun
from vmtailor.model.kernel_needs import KernelNeed, NeedPrice

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "monitor-needs.md"

HEAD = """<!-- Written by tools/monitor_needs.py from data/monitors and data/targets: change those, then make docs. -->
# Kernel symbols that monitors and targets need

A kernel is fitted to QEMU's smallest board: virtio-mmio, a serial line, neither PCI nor ACPI. On x86-64, QEMU and
libkrun start it unchanged under KVM, and Firecracker does by its documentation. This page lists what a kernel needs
besides for other machines. `fit --keep SYMBOL` keeps a symbol.

| monitor | need | machines | symbols | executed | why |
| --- | --- | --- | --- | ---: | --- |
"""

TARGETS = """
[Targets of `export`](../how-to/export-a-bundle.md) need these. `fit --for TARGET` keeps them.

| target | need | machines | symbols | executed | why |
| --- | --- | --- | --- | ---: | --- |
"""

TAIL = """
*Executed* are the instructions of these symbols' code from kernel entry to ready, in the distribution's kernel 6.12 on
the smallest board, with lighttpd as its container. The code looks there for devices and tables that are absent: in a
machine that has them it costs more. This command prints the figures of any fit:

    .venv/bin/python tools/monitor_needs.py --costs BUNDLE/run.json

## The price in a tailored kernel

A kernel tailored to lighttpd, with its default margin and on the smallest board, gets that much larger:

| for | need | symbols =y | kernel file | kernel entry → init, net |
| --- | --- | ---: | ---: | ---: |
"""

END = """
With `ACPI`, the kernel need not read tables of the kind that machines without it have (`X86_MPPARSE`), and that is
left out: on the smallest board its interrupts then come through the PIC. These are the differences between two fits of
one image:

    vmtailor refit BUNDLE {keeps} -o WITH --repeat 2
    .venv/bin/python tools/monitor_needs.py --price BUNDLE/run.json WITH/run.json

With `vmtailor refit BUNDLE --for TARGET` in the first line, the second prints the price of all that a target needs.
{unpriced}"""


def rows() -> list[tuple[str, KernelNeed]]:
    """All needs of monitors, each with the title of its monitor."""
    return [(one.row.title, need) for one in monitors.every() for need in one.row.need]


def target_rows() -> list[tuple[str, KernelNeed]]:
    """All needs of targets, each with its target, or the variants of it that have it."""
    return [
        (", ".join(f"`{row.name}:{one}`" for one in need.variants) or f"`{row.name}`", need)
        for row in targets.every()
        for need in row.need
    ]


def table(found: list[tuple[str, KernelNeed]]) -> list[str]:
    """The lines of a table of needs."""
    lines = []
    for title, need in found:
        symbols = " ".join(f"`{name}`" if value == "y" else f"`{name}={value}`" for name, value in need.symbols.items())
        executed = "not counted" if need.executed is None else f"{need.executed:,}"
        lines.append(f"| {title} | `{need.id}` | {need.where} | {symbols} | {executed} | {need.reason} |\n")
    return lines


def page() -> str:
    """The whole page as Markdown."""
    parts = [HEAD, *table(rows()), TARGETS, *table(target_rows()), TAIL]
    needs = (*rows(), *target_rows())
    fitted = [(title, need, need.price) for title, need in needs if need.price is not None]
    parts += [f"| {title} | `{need.id}` | {' | '.join(words(price).values())} |\n" for title, need, price in fitted]
    whole = dict(whole_prices())
    parts += [
        f"| `{name}` | all that it needs | {' | '.join(words(price).values())} |\n" for name, price in whole.items()
    ]
    same = {tuple(need.symbols.items()) for _, need, _ in fitted}
    unpriced = [
        f"{title} `{need.id}`"
        for title, need in needs
        if tuple(need.symbols.items()) not in same and not {*title.replace("`", "").split(", ")} <= {*whole}
    ]
    keeps = " ".join(f"--keep {name}" for name in fitted[0][1].symbols)
    return "".join(
        (*parts, END.format(keeps=keeps, unpriced=f"Not measured yet: {'; '.join(unpriced)}.\n" if unpriced else ""))
    )


def whole_prices() -> Iterator[tuple[str, NeedPrice]]:
    """Yield the targets, and variants of them, whose needs are priced together."""
    for row in targets.every():
        if row.price is not None:
            yield row.name, row.price
        yield from ((f"{row.name}:{one.name}", one.price) for one in row.variant if one.price is not None)


def words(price: NeedPrice) -> dict[str, str]:
    """A price as a person reads it, by the name of the figure."""
    return {
        "symbols_y": f"{price.symbols_y:+,}",
        "kernel_bytes": f"{price.kernel_bytes:+,} bytes",
        "init_instructions_net": f"{price.init_instructions_net:+,} instructions",
    }


def price(former: FitRun, refit: FitRun) -> NeedPrice:
    """By how much the second fit is dearer. Raises UserInputError where a figure is missing, or the images differ."""
    if former.image_digest != refit.image_digest:
        raise UserInputError("the two fits are of different images", hint="refit the first bundle")
    found = {}
    for name in words(NeedPrice(0, 0, 0)):
        before, after = getattr(former.tailored, name), getattr(refit.tailored, name)
        if before is None or after is None:
            raise UserInputError(f"a fit has no figure {name}", hint="its warnings say why")
        found[name] = after - before
    return NeedPrice(**found)


def costs(run: FitRun) -> dict[str, int]:
    """Instructions on the baseline of a fit by need, of those for its processor."""
    known = dict(run.baseline.symbol_costs)
    return {
        need.id: sum(known.get(name, 0) for name in need.symbols)
        for _, need in (*rows(), *target_rows())
        if run.plan.architecture in (need.architectures or (run.plan.architecture,))
    }


def main(arguments: list[str]) -> int:
    """Write the page, check it, or print costs. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--costs", type=Path, metavar="RUN")
    parser.add_argument("--price", type=Path, nargs=2, metavar=("FORMER", "REFIT"))
    given = parser.parse_args(arguments)
    if given.costs is not None:
        for name, executed in costs(records.load(FitRun, given.costs)).items():
            print(f"{name}: {executed:,} instructions")
        return 0
    if given.price is not None:
        former, refit = (records.load(FitRun, path) for path in given.price)
        for name, text in words(price(former, refit)).items():
            print(f"{name}: {text}")
        return 0
    wanted = page()
    if given.check:
        if PAGE.is_file() and PAGE.read_text() == wanted:
            return 0
        print(f"{PAGE} is not what the rows of monitors and targets say; run: make docs", file=sys.stderr)
        return 1
    PAGE.write_text(wanted)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except VmtailorError as error:
        raise SystemExit(f"error: {error.message}\nhint: {error.hint}") from error
