# SPDX-License-Identifier: Apache-2.0
"""QEMU as a monitor."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from vmtailor.base.errors import HostError
from vmtailor.base.natives import Natives
from vmtailor.drivers.monitors.monitor import KvmTrial, KvmVerdict, Monitor, Orders, StartPlace, Wants
from vmtailor.drivers.monitors.running_machine import RunningMachine
from vmtailor.drivers.monitors.supervised_start import SupervisedStart
from vmtailor.drivers.qemu import host_checks, kvm, plugin, qemu, qemu_command, qemu_program
from vmtailor.drivers.qemu.plugin import Plugin
from vmtailor.drivers.qemu.qemu_command import Ends
from vmtailor.model.architecture import named
from vmtailor.model.boots.counters import CountingConfig
from vmtailor.model.boots.ending import End
from vmtailor.model.checks import Check
from vmtailor.model.guest_mounts import Share
from vmtailor.model.machine import Machine


class QemuMonitor(Monitor):
    """Starts machines in QEMU, and counts their instructions by its plugin."""

    confined = True

    def command(self, machine: Machine) -> list[str]:
        """Return QEMU's argument list."""
        return qemu_command.command(machine)

    def orders(self, machine: Machine, place: StartPlace) -> Orders:
        """Return QEMU's argument list there."""
        ends = Ends(names=place.names, tap=place.tap)
        return Orders(tuple(qemu_command.command(machine, ends)))

    def run(self, machine: Machine, wants: Wants) -> AbstractContextManager[RunningMachine]:
        """Start QEMU, shut in as far as the host allows."""
        counter = wants.counter if isinstance(wants.counter, Plugin) else None
        return qemu.start(
            machine, plugin=counter, qmp=wants.control, probe=wants.probe, attendant=wants.attendant,
            shares=wants.shares,
        )  # fmt: skip

    def supervised(self, machine: Machine, shares: tuple[Share, ...] = ()) -> SupervisedStart:
        """Return the start of QEMU, shut in as far as the host allows."""
        self.require(machine, Wants(control=True, shares=shares))
        return qemu.supervised(machine, shares)

    def not_started(self, end: End) -> HostError:
        """Return the error of a QEMU that did not start, with the host port if one could not be opened."""
        return qemu.port_refused(end) or super().not_started(end)

    def require_cpu(self, architecture: str, board: str, model: str) -> None:
        """Raise UserInputError, with QEMU's own words, for a CPU that it does not emulate in this machine."""
        family = named(architecture)
        qemu_program.require_cpu(family, family.board_named(board), model)

    def version(self, architecture: str) -> str:
        """Return the version of the QEMU for an architecture, without the package's revision."""
        return ".".join(map(str, qemu_program.installed(architecture).version))

    def identity(self, architecture: str, natives: Natives) -> tuple[str | Path, ...]:
        """Return the version in full, the plugin, and the firmware that guests execute."""
        found = qemu_program.installed(architecture)
        firmware = qemu_program.firmware(found.program, named(architecture).emulator.firmware)
        return (natives.plugin(qemu_program.plugin_api(architecture)), found.full_version, *firmware)

    def checks(self) -> tuple[Check, ...]:
        """Return whether its plugin, the guard of its network, its confinement and KVM work."""
        return host_checks.every()

    def kvm(self) -> KvmVerdict:
        """Start a small guest under KVM."""
        return kvm.kvm_works()

    def kvm_trial(self, architecture: str) -> KvmTrial | None:
        """Return the trial of this host's own processor, whose guest was compiled here."""
        return kvm.trial(architecture)

    def require_counting(self, architecture: str) -> None:
        """Raise HostError where the QEMU for an architecture loads no plugin of ours."""
        qemu_program.plugin_api(architecture)

    def counter(self, config: CountingConfig, natives: Natives, folder: Path) -> Plugin:
        """Return the plugin with its files. Raises HostError where this QEMU loads none."""
        api = qemu_program.plugin_api(config.architecture)
        library = natives.plugin(api) if config.follow is None else natives.call_plugin(api)
        return plugin.prepare(library, config, folder)
