# SPDX-License-Identifier: Apache-2.0
"""A series: variants booted in turn, each boot kept."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from vmtailor import __version__
from vmtailor.base import records
from vmtailor.base.process import pasteable
from vmtailor.drivers.qemu.qemu_command import command
from vmtailor.model.machine import Machine
from vmtailor.model.series import BootSeries, Variant, VmBoot
from vmtailor.stages.boot.once import Plan, boot_once

RECORD = "boots.json"


class Booter(Protocol):
    """Boots a machine once, as `boot_once` does."""

    def __call__(
        self, machine: Machine, plan: Plan, folder: Path, *, number: int, variant: str,
        header: Sequence[tuple[str, str]] = (), on_progress: Callable[[float], None] | None = None,
    ) -> VmBoot: ...  # fmt: skip


def variant(name: str, machine: Machine, changes: Sequence[str] = ()) -> Variant:
    """A machine with the command that starts it, for people (without what only we listen to)."""
    return Variant(name, machine, pasteable(command(machine)), tuple(changes))


def in_turn(variants: Sequence[Variant], times: int) -> list[tuple[Variant, int]]:
    """A B A B: what is booted, and the number of the boot among its variant's."""
    return [(one, number) for number in range(1, times + 1) for one in variants]


def run(
    subject: str, schedule: Sequence[tuple[Variant, int]], plan: Plan, out: Path, *, before: Sequence[VmBoot] = (),
    boot: Booter = boot_once, on_boot: Callable[[str, int, float], None] | None = None,
) -> BootSeries:  # fmt: skip
    """Boot as scheduled. Boots that are in `before` are kept and not made again. The record in `out` is written after
    each boot, so that nothing is lost."""
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
        header = [("version", f"vmtailor {__version__}"), ("title", f"{subject} {one.name} {number}")]
        if one.machine.kernel is not None:
            header.append(("system.kernel.options", " ".join(one.machine.append)))
        boots.append(
            boot(one.machine, plan, folder, number=number, variant=one.name, header=header, on_progress=progress)
        )
        records.save(record(subject, tuple(variants.values()), plan, boots), out / RECORD)
    return record(subject, tuple(variants.values()), plan, boots)


class Earlier:
    """What an earlier run, perhaps an interrupted one, left in a folder, as it was before this one writes there."""

    def __init__(self, out: Path) -> None:
        file = out / RECORD
        self._found = records.load(BootSeries, file) if file.is_file() else None
        self._written = file.stat().st_mtime if self._found is not None else 0.0

    def of(self, plan: Plan, schedule: Sequence[tuple[Variant, int]]) -> tuple[VmBoot, ...]:
        """Its boots that are as scheduled: same machine, with the same kernel and disks, same signal."""
        if self._found is None or self._found.ready != plan.ready:
            return ()
        machines = {one.name: one.machine for one, _ in schedule}
        same = {
            one.name
            for one in self._found.variants
            if machines.get(one.name) == one.machine and not _renewed(one.machine, self._written)
        }
        return tuple(boot for boot in self._found.boots if boot.variant in same)


def _renewed(machine: Machine, since: float) -> bool:
    """Whether a machine's kernel or a disk was written after a moment: it is another machine under the same names. (An
    initial RAM disk of ours is written again by every run.)"""
    files = (machine.kernel, *(disk.path for disk in machine.disks))
    return any(Path(file).is_file() and Path(file).stat().st_mtime > since for file in files if file)


def record(subject: str, variants: Sequence[Variant], plan: Plan, boots: Sequence[VmBoot]) -> BootSeries:
    """The record of what was booted so far."""
    conditions = (
        ("clock", str(variants[0].machine.clock)),
        ("accelerator", str(variants[0].machine.accelerator)),
        ("host", f"{platform.machine()}, Linux {platform.release()}"),
        ("order", "in turn" if len(variants) > 1 else "one after the other"),
    )
    return BootSeries(__version__, subject, plan.ready, plan.timeout_s, tuple(variants), tuple(boots), conditions)


def safe(name: str) -> str:
    """A variant's name as a folder's."""
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[:60]
