# SPDX-License-Identifier: Apache-2.0
"""The trial of KVM in an export's script: /dev/kvm may be there and not work."""

from __future__ import annotations

import shlex

from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.targets.target import Export, ExportFolder
from vmtailor.model.architecture import named

#: Seconds that the guest of the trial has; it takes milliseconds where KVM works.
_DEADLINE_S = 5
_OPEN = "[ -r /dev/kvm ] && [ -w /dev/kvm ]"
_TRIAL = """\
# Succeeds where KVM really runs a small guest, which takes milliseconds: /dev/kvm may be there and not work.
kvm_works() {{
{closed}    command -v {program} >/dev/null || return 0
    said=$(exec 2>/dev/null && timeout {deadline} {program} \\
        {words} </dev/null || true)
    [ "$said" = {says} ] && return 0
    echo "KVM does not work on this host: the machine is emulated" >&2
    return 1
}}
"""
_NONE = """\
kvm_works() {{
    {open}
}}
"""


#: Lines for a /dev/kvm that this user may not open: KVM does not work, or it does, since another user starts it.
_CLOSED = f"    {_OPEN} || return 1\n"
_OTHERS = f"    [ -e /dev/kvm ] || return 1\n    {{ {_OPEN}; }} || return 0\n"


def write(export: Export, folder: ExportFolder, program: str, *, others: bool = False) -> str:
    """Write the guest of the trial, and return a function of the shell, `kvm_works`. `program`: of the monitor, as the
    shell finds it; `others`: another user starts it. Where no guest is made for the processor, the function only looks
    whether KVM is there."""
    machine = export.machine
    trial = monitors.named(machine.monitor).kvm_trial(named(machine.architecture).name)
    if trial is None:
        return _NONE.format(open="[ -e /dev/kvm ]" if others else _OPEN)
    folder.copy(trial.guest, trial.guest.name)
    words = " ".join(shlex.quote(word) for word in trial.arguments)
    return _TRIAL.format(
        closed=_OTHERS if others else _CLOSED, deadline=_DEADLINE_S, program=program, words=words,
        says=shlex.quote(trial.says),
    )  # fmt: skip
