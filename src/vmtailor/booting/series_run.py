# SPDX-License-Identifier: Apache-2.0
"""Series of boots: variants booted in turn, each boot kept."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from vmtailor import __version__
from vmtailor.analysis.timeline import bootmarks, collector_stream
from vmtailor.base.cache.store import digest
from vmtailor.base.files import records
from vmtailor.base.files.regular_files import write_atomic
from vmtailor.base.process import pasteable
from vmtailor.booting.booter import Booter, boot
from vmtailor.drivers.monitors import monitors
from vmtailor.model import machine_watch
from vmtailor.model.boots.boot import Boot, FunctionCost, Outcome, Phase
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.series import RECORD, BootSeries, SeriesBoot, Variant
from vmtailor.model.boots.workload import Workload
from vmtailor.model.machine import Machine

#: Characters of a folder's name, at most.
_LONGEST = 60
#: The file of a counted boot with the instructions of each function, beside its console.
FUNCTIONS = "functions.tsv"
#: Called with variant, number of the boot, and host seconds since its start.
OnBoot = Callable[[str, int, float], None]


def variant(name: str, machine: Machine, changes: Sequence[str] = ()) -> Variant:
    """Return a variant with the command that starts its machine, for people: channels that only we listen to are left
    out."""
    return Variant(name, machine, pasteable(monitors.of(machine).command(machine)), tuple(changes))


def in_turn(variants: Sequence[Variant], times: int) -> list[tuple[Variant, int]]:
    """Return the schedule A B A B: each variant with the number of its boot."""
    return [(one, number) for number in range(1, times + 1) for one in variants]


def run(
    subject: str,
    schedule: Sequence[tuple[Variant, int]],
    workload: Workload,
    out: Path,
    *,
    before: Sequence[SeriesBoot] = (),
    booter: Booter = boot,
    on_boot: OnBoot | None = None,
) -> BootSeries:
    """Boot as scheduled. Boots that are in `before` are not repeated. The record in `out` is written after each boot,
    so that nothing is lost."""
    out.mkdir(parents=True, exist_ok=True)
    boots = list(before)
    variants = {one.name: one for one, _ in schedule}
    for one, number in schedule:
        if any(b.variant == one.name and b.number == number for b in boots):
            continue

        def progress(seconds: float, name: str = one.name, number: int = number) -> None:
            if on_boot is not None:
                on_boot(name, number, seconds)

        folder = out / f"{safe(one.name)}-{number}"
        found, gathered = booter(one.machine, workload, out, on_progress=progress)
        keep(gathered, folder, one.machine, f"{subject} {one.name} {number}")
        if found.functions:
            write_atomic(folder / FUNCTIONS, function_rows(found.functions).encode())
        boots.append(SeriesBoot(one.name, number, folder.name, brief(found)))
        records.save(record(subject, tuple(variants.values()), workload, boots), out / RECORD)
    return record(subject, tuple(variants.values()), workload, boots)


def keep(gathered: Gathered, folder: Path, machine: Machine, title: str) -> None:
    """Write a boot's output into a folder: the console (`console.log`), the console with host times if its lines have
    them (`console.times.log`), `bootchart/` if the collector ran, and `watch.json` if samples were taken."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "console.log").write_bytes(gathered.console)
    if gathered.watch is not None:
        records.save(gathered.watch, folder / machine_watch.RECORD)
    if gathered.lines:
        (folder / "console.times.log").write_text(bootmarks.grabserial(gathered.lines), "utf-8", "replace")
    if gathered.chart:
        header = [("version", f"vmtailor {__version__}"), ("title", title)]
        if machine.kernel is not None:
            header.append(("system.kernel.options", " ".join(machine.words)))
        for name, data in collector_stream.members(gathered.chart, header).items():
            (folder / "bootchart").mkdir(exist_ok=True)
            (folder / "bootchart" / name).write_bytes(data)


def function_rows(functions: Sequence[FunctionCost]) -> str:
    """Return a line for each phase and function with its instructions, separated by tabs, the dearest first."""
    rows = sorted(functions, key=lambda one: (list(Phase).index(one.phase), -one.instructions, one.function))
    lines = [f"{one.phase}\t{one.function}\t{one.instructions}" for one in rows if one.instructions]
    return "\n".join(["phase\tfunction\tinstructions", *lines, ""])


def brief(found: Boot) -> Boot:
    """Return a boot without its long parts, which are files beside the record: the console, and the cost of each
    function."""
    container = replace(found.container, stdout="", stderr="") if found.container is not None else None
    return replace(found, functions=(), console="", container=container)


class Earlier:
    """The boots that an earlier, perhaps interrupted, run left in a folder before this one writes there."""

    def __init__(self, out: Path) -> None:
        file = out / RECORD
        self._out = out.absolute()
        self._found = records.load(BootSeries, file) if file.is_file() else None
        self._written = file.stat().st_mtime if self._found is not None else 0.0

    def of(self, workload: Workload, schedule: Sequence[tuple[Variant, int]]) -> tuple[SeriesBoot, ...]:
        """Return the earlier boots that fit the schedule: same machine, same files, same signal. A boot that did not
        get ready counts only if it had the same time limit."""
        if self._found is None or self._found.ready != workload.signal:
            return ()
        machines = {one.name: one.machine for one, _ in schedule}
        same = {
            one.name
            for one in self._found.variants
            if machines.get(one.name) == one.machine and not self._renewed(one.machine)
        }
        waited = self._found.timeout_s == workload.timeout_s
        return tuple(
            one for one in self._found.boots if one.variant in same and (waited or one.boot.outcome is Outcome.READY)
        )

    def _renewed(self, machine: Machine) -> bool:
        """Return whether one of a machine's files was written since: then it is another machine under the same names.
        Our own initial RAM disks do not count; every run writes them again."""
        files = [Path(file).absolute() for file in (machine.kernel, *(disk.path for disk in machine.disks)) if file]
        if machine.initrd and self._out not in Path(machine.initrd).absolute().parents:
            files.append(Path(machine.initrd).absolute())
        return any(file.is_file() and file.stat().st_mtime > self._written for file in files)


def record(subject: str, variants: Sequence[Variant], workload: Workload, boots: Sequence[SeriesBoot]) -> BootSeries:
    """Return the record of the boots so far."""
    first = variants[0].machine
    conditions = (
        ("clock", str(first.clock)),
        ("accelerator", str(first.accelerator)),
        ("host", f"{platform.machine()}, Linux {platform.release()}"),
        ("order", "in turn" if len(variants) > 1 else "one after the other"),
    )
    return BootSeries(
        version=__version__,
        subject=subject,
        ready=workload.signal,
        timeout_s=workload.timeout_s,
        variants=tuple(variants),
        boots=tuple(boots),
        conditions=conditions,
    )


def safe(name: str) -> str:
    """Return a variant's name as the name of a folder: a long one ends with a digest, so that no two are the same."""
    plain = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)
    return plain if len(plain) <= _LONGEST else f"{plain[: _LONGEST - 9]}-{digest(name)[:8]}"
