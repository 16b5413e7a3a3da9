# SPDX-License-Identifier: Apache-2.0
"""What figures depend on, word for word: the machine's command, make's, and what platform and policy ask for. A figure
that moves without one of these having changed has moved for another reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vmtailor.analysis.changes import symbol_catalogue
from vmtailor.analysis.changes.symbol_catalogue import Situation
from vmtailor.analysis.guests import machine_variants
from vmtailor.drivers.kernel import make
from vmtailor.drivers.qemu import qemu_command
from vmtailor.model.architecture import named
from vmtailor.model.machine import Accelerator, Clock, Disk, DiskMode, Machine, PublishedPort
from vmtailor.model.plan import ImageRoot, RootFormat

KEPT: dict[str, Any] = json.loads((Path(__file__).parent.parent / "data/architecture/same_figures.json").read_text())
KINDS = ("microvm", "q35")
ROOTS = tuple(RootFormat(one) for one in ImageRoot)


def commands() -> dict[str, list[str]]:
    """Machines of every kind, in several forms; test_machine_commands.py has more."""
    found = {}
    for kind in KINDS:
        bare = Machine(kind, 256 << 20, "/k/vmlinux", ("console=ttyS0", "quiet"), disks=(Disk("/d/root"),))
        full = replace(
            bare, initrd="/k/initrd", acpi=True, network=True, cpus=2, clock=Clock.WALL, cpu_model="qemu64",
            disks=(Disk("/d/root"), Disk("/d/out", mode=DiskMode.WRITTEN)),
            ports=(PublishedPort("127.0.0.1", 8080, 80),),
        )  # fmt: skip
        found[f"{kind}, bare"] = qemu_command.command(bare)
        found[f"{kind}, full"] = qemu_command.command(full)
        found[f"{kind}, kvm"] = qemu_command.command(
            replace(full, accelerator=Accelerator.KVM, outbound=True, host_loopback=True)
        )
    return found


def make_words() -> dict[str, list[str]]:
    """What make is told."""
    source, build = Path("/s"), Path("/b")
    return {
        "kernel": make.make_argv(source, build, make.Toolchain("x86_64", ccache=True), ["vmlinux"], 2),
        "configuration": make.make_argv(
            source, build, make.Toolchain("x86_64", ccache=False, debug=True), ["allnoconfig"]
        ),
    }


def symbols() -> dict[str, dict[str, str]]:
    """What platform and policy want of a kernel."""
    found = {}
    for kind in KINDS:
        for version in ("6.1.176", "6.12.117"):
            for root in ROOTS:
                here = Situation(kind, root, version, cpus=2, network=True, terminal=True)
                chosen = symbol_catalogue.load().chosen(here)
                values = {name: value for entry in chosen for name, value in entry.symbols}
                found[f"{kind} {version} {root}"] = dict(sorted(values.items()))
    return found


def words() -> dict[str, list[str]]:
    return {str(root): list(machine_variants.words_of(named("x86_64"), root, ("quiet", "more"))) for root in ROOTS}


@pytest.mark.parametrize("what", ["commands", "make_words", "symbols", "words"])
def test_nothing_that_figures_depend_on_has_changed(what: str) -> None:
    assert globals()[what]() == KEPT[what]
