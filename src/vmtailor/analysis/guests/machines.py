# SPDX-License-Identifier: Apache-2.0
"""The machines of a fit, what they have in common and what differs; and the one that a whole system starts in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from vmtailor.model.machine import Clock, Devices, Disk, Machine, MachineKind, PublishedPort
from vmtailor.model.plan import RootFormat

#: Both kernels are told this. `reboot=t`: power-off is a triple fault, at which QEMU ends. `panic=-1`: so is a panic.
#: `nokaslr`: addresses must be the ones of the symbol table, and the same in each boot.
COMMON_WORDS = ("console=ttyS0", "quiet", "panic=-1", "reboot=t", "nokaslr")


#: A machine for a system with an init of its own, before anything is chosen.
USUAL = Machine(MachineKind.Q35, 2 << 30, devices=Devices.USUAL, network=True, entropy=True, clock=Clock.WALL)


def on_loopback(guest_ports: Iterable[int]) -> tuple[PublishedPort, ...]:
    """Ports of a guest at free ports of the host's loopback address: which ones, QEMU says once it runs."""
    return tuple(PublishedPort("127.0.0.1", 0, port) for port in guest_ports)


def root_words(form: RootFormat) -> tuple[str, ...]:
    """Where the root file system is, and what runs in it as PID 1."""
    return ("root=/dev/vda", "ro", f"rootfstype={form}", "init=/.vmtailor/init")


def words_of(form: RootFormat, planned: Sequence[str] = ()) -> tuple[str, ...]:
    """The whole command line of a machine, without what is added for one start."""
    return (*root_words(form), *COMMON_WORDS, *(word for word in planned if word not in COMMON_WORDS))


def baseline_machine(
    kind: MachineKind,
    vmlinuz: Path,
    initrd: Path,
    root: Path,
    form: RootFormat,
    *,
    memory_bytes: int,
    cpu_model: str,
    cpus: int = 1,
) -> Machine:
    """The distribution's kernel, with its modules in an initial RAM disk made for the purpose."""
    return Machine(
        kind=kind,
        memory_bytes=memory_bytes,
        kernel=str(vmlinuz),
        append=words_of(form),
        initrd=str(initrd),
        disks=(Disk(str(root)),),
        cpu_model=cpu_model,
        cpus=cpus,
        acpi=True,
    )


def tailored_machine(
    kind: MachineKind,
    kernel: Path,
    root: Path,
    form: RootFormat,
    planned: Sequence[str],
    *,
    memory_bytes: int,
    cpu_model: str,
    cpus: int = 1,
) -> Machine:
    """The fitted kernel: no initial RAM disk, no ACPI."""
    return Machine(
        kind=kind,
        memory_bytes=memory_bytes,
        kernel=str(kernel),
        append=words_of(form, planned),
        disks=(Disk(str(root)),),
        cpu_model=cpu_model,
        cpus=cpus,
    )


def countable(machine: Machine) -> Machine:
    """A machine on the instruction clock: one CPU, nothing of the host's randomness, addresses as linked."""
    words = machine.append if "nokaslr" in machine.append else (*machine.append, "nokaslr")
    return replace(machine, clock=Clock.INSTRUCTIONS, cpus=1, entropy=False, append=words)


def counted(machine: Machine) -> Machine:
    """The same machine with one CPU: what the plugin counts. What runs on several CPUs at once has no exact count."""
    return replace(machine, cpus=1)
