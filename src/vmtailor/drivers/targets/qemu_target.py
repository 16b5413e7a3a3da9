# SPDX-License-Identifier: Apache-2.0
"""QEMU as a target: a script that starts the machine, and a unit of systemd that starts the script."""

from __future__ import annotations

import shlex
from dataclasses import replace

from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.targets import kvm_trial, unit
from vmtailor.drivers.targets.target import ENDED, Export, ExportFolder, ExportTarget, Guide, asks
from vmtailor.model.architecture import named
from vmtailor.model.machine import Accelerator, Clock, Machine

_SCRIPT = """\
#!/bin/sh
# Starts the machine {name} in QEMU, with its console at this terminal. {end}
# ACCEL=tcg or ACCEL=kvm: choose; by default KVM where it works. QEMU=PATH: another program.
set -eu
cd "$(dirname "$0")"
{trial}
accel=${{ACCEL:-tcg}}
case $(uname -m) in
{processors}) if [ -z "${{ACCEL:-}}" ] && kvm_works; then accel=kvm; fi ;;
esac
if [ "$accel" = kvm ]; then
    exec "${{QEMU:-{program}}}" \\
        {kvm} "$@"{stdin}
fi
exec "${{QEMU:-{program}}}" \\
    {tcg} "$@"{stdin}
"""

_END, _END_SYSTEM = "Ctrl-C ends it.", "It ends when the system powers off."


class QemuTarget(ExportTarget):
    """Writes `start`, a unit, kernel and disks."""

    def write(self, export: Export, folder: ExportFolder) -> Guide:
        folder.copy(export.kernel, export.kernel_name)
        machine = replace(export.machine, kernel=export.kernel_name, disks=folder.disks(export))
        program = named(machine.architecture).emulator.program
        trial = kvm_trial.write(export, folder, f'"${{QEMU:-{program}}}"')
        content = _SCRIPT.format(
            name=export.name, program=program, processors=" | ".join(named(machine.architecture).hosts), trial=trial,
            kvm=_words(machine, Accelerator.KVM, 8), tcg=_words(machine, Accelerator.TCG, 4),
            stdin="" if export.is_system else " </dev/null", end=_END_SYSTEM if export.is_system else _END,
        )  # fmt: skip
        folder.text("start", content, executable=True)
        notes = [f"- `{port.host_place}` on this host leads to port {port.guest_port} of the machine."
                 for port in machine.ports]  # fmt: skip
        notes += unit.write(export, folder)
        first = next((port for port in machine.ports if port.protocol == "tcp"), None)
        if export.is_system or first is None:
            return Guide("./start", ENDED, tuple(notes))
        return Guide("./start &", asks(first.host_place), tuple(notes))


def _words(machine: Machine, accelerator: Accelerator, indent: int) -> str:
    """Return QEMU's arguments for a shell, one option a line, with so many spaces before each."""
    kvm = accelerator is Accelerator.KVM
    model = "host" if kvm else named(machine.architecture).emulator.cpu_model
    words = machine.words if kvm else (*machine.words, *named(machine.architecture).emulator.run_words)
    started = replace(machine, accelerator=accelerator, clock=Clock.WALL, cpu_model=model, words=words)
    argv = monitors.named(machine.monitor).command(started)[1:]
    lines: list[str] = []
    for word in argv:
        if word.startswith("-") or not lines:
            lines.append(shlex.quote(word))
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return f" \\\n{' ' * indent}".join(lines)
