# SPDX-License-Identifier: Apache-2.0
"""The machines of a fit, what they have in common and what differs; and the one that a whole system starts in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from vmtailor.model.architecture import Architecture, presumed
from vmtailor.model.machine import Clock, Devices, Disk, Machine, PublishedPort
from vmtailor.model.plan import RootFormat

#: Options for both sides, so that systemd gives nothing up because of tracing: 252 knows the first and the last;
#: the one for devices came with 253. systemd passes over options that it does not know.
TIMES = (
    "systemd.default_timeout_start_sec=3600",
    "systemd.default_device_timeout_sec=3600",
    "systemd.service_watchdogs=no",
)


#: Words that mean nothing, each of another length: options of a module that nobody has, of which no kernel speaks.
PLACEBO_WORDS = ("placebo.a=1", "placebo.b=0123456789abcdef")


def usual(architecture: Architecture) -> Machine:
    """Return a machine for a system with an init of its own, before anything is chosen."""
    return Machine(
        architecture.usual, 2 << 30, devices=Devices.USUAL, network=True, entropy=True, clock=Clock.WALL,
        cpu_model=architecture.emulator.cpu_model, architecture=architecture.name,
    )  # fmt: skip


USUAL = usual(presumed())


def common_words(architecture: Architecture) -> tuple[str, ...]:
    """Return the words that both kernels are told. `panic=-1`: a panic restarts the machine, at which QEMU ends."""
    return (f"console={architecture.kernel.console}", "quiet", "panic=-1", *architecture.kernel.words)


def on_loopback(guest_ports: Iterable[int]) -> tuple[PublishedPort, ...]:
    """Return ports of a guest at free ports of the host's loopback address: which ones, QEMU says once it runs."""
    return tuple(PublishedPort("127.0.0.1", 0, port) for port in guest_ports)


def root_words(form: RootFormat) -> tuple[str, ...]:
    """Return the words for the root file system and its PID 1."""
    return ("root=/dev/vda", "ro", f"rootfstype={form}", "init=/.vmtailor/init")


def words_of(architecture: Architecture, form: RootFormat, planned: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the whole command line of a machine, without what is added for one start."""
    common = common_words(architecture)
    return (*root_words(form), *common, *(word for word in planned if word not in common))


def baseline_machine(
    architecture: Architecture,
    board: str,
    vmlinuz: Path,
    initrd: Path,
    root: Path,
    form: RootFormat,
    *,
    memory_bytes: int,
    cpu_model: str,
    cpus: int = 1,
) -> Machine:
    """Return the distribution's kernel, with its modules in an initial RAM disk made for the purpose."""
    return Machine(
        board=board,
        memory_bytes=memory_bytes,
        kernel=str(vmlinuz),
        words=words_of(architecture, form),
        initrd=str(initrd),
        disks=(Disk(str(root)),),
        cpu_model=cpu_model,
        cpus=cpus,
        acpi=True,
        architecture=architecture.name,
    )


def tailored_machine(
    architecture: Architecture,
    board: str,
    kernel: Path,
    root: Path,
    form: RootFormat,
    planned: Sequence[str],
    *,
    memory_bytes: int,
    cpu_model: str,
    cpus: int = 1,
) -> Machine:
    """Return the fitted kernel: no initial RAM disk, no ACPI."""
    return Machine(
        board=board,
        memory_bytes=memory_bytes,
        kernel=str(kernel),
        words=words_of(architecture, form, planned),
        disks=(Disk(str(root)),),
        cpu_model=cpu_model,
        cpus=cpus,
        architecture=architecture.name,
    )


def countable(machine: Machine) -> Machine:
    """Return a machine on the instruction clock: one CPU, nothing of the host's randomness, addresses as linked."""
    words = machine.words if "nokaslr" in machine.words else (*machine.words, "nokaslr")
    return replace(machine, clock=Clock.INSTRUCTIONS, cpus=1, entropy=False, words=words)


def controls(machine: Machine) -> tuple[Machine, ...]:
    """Return the machine with a word that means nothing, once for each of them. There are none where the command line
    is not ours, or where the host's clock makes boots differ more than that.

    If instructions are time, boots of equal bytes hardly differ. Any other word moves what comes after it: no change is
    better, or worse, by less than these are."""
    if machine.kernel is None or machine.clock is not Clock.INSTRUCTIONS:
        return ()
    return tuple(replace(machine, words=(*machine.words, word)) for word in PLACEBO_WORDS)


def counted(machine: Machine) -> Machine:
    """Return the machine with one CPU, as the plugin counts it. Code that runs on several CPUs at once has no exact
    count."""
    return replace(machine, cpus=1)


def with_time(machine: Machine) -> Machine:
    """Return the machine told to give up nothing because it takes long: for both sides of a comparison."""
    return replace(machine, words=(*machine.words, *(word for word in TIMES if word not in machine.words)))
