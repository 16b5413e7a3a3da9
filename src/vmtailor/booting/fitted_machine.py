# SPDX-License-Identifier: Apache-2.0
"""The machine that a bundle describes."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vmtailor.drivers.host.bundle_folder import BundleFolder
from vmtailor.model.architecture import named
from vmtailor.model.machine import USUAL_MONITOR, Accelerator, Clock, Machine

STAMPS = ("printk.time=1",)


@dataclass(frozen=True)
class Chosen:
    """The user's choices for a bundle's machine. `append`: further words of its command line. `memory_bytes`: None
    keeps the memory of the fit. An empty CPU model is the host's own under KVM, and the architecture's default
    elsewhere."""

    cpu_model: str = ""
    accelerator: Accelerator = Accelerator.TCG
    clock: Clock = Clock.WALL
    append: tuple[str, ...] = ()
    memory_bytes: int | None = None
    monitor: str = USUAL_MONITOR


def machine_of(loaded: BundleFolder, chosen: Chosen) -> Machine:
    """Return a bundle's machine as it was fitted, with the user's choices. Raises UserInputError, naming the file, when
    kernel or root differ from the record."""
    bundle = loaded.bundle
    usual = "host" if chosen.accelerator is Accelerator.KVM else named(bundle.architecture).emulator.cpu_model
    return Machine(
        architecture=bundle.architecture, board=bundle.machine,
        memory_bytes=chosen.memory_bytes or bundle.memory_bytes, cpus=bundle.cpus,
        kernel=str(loaded.kernel), words=(*bundle.words, *chosen.append), disks=(loaded.root,),
        network=bundle.network, cpu_model=chosen.cpu_model or usual, accelerator=chosen.accelerator,
        clock=chosen.clock, monitor=chosen.monitor,
    )  # fmt: skip


def stamped(chosen: Chosen) -> Chosen:
    """Return the choice with time stamps in the kernel's log, on the wall clock. Where instructions are counted, no
    word is added, since it would cost some."""
    if chosen.clock is not Clock.WALL or any(word.startswith("printk.time=") for word in chosen.append):
        return chosen
    return replace(chosen, append=(*STAMPS, *chosen.append))
