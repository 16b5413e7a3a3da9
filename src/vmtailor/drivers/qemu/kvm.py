# SPDX-License-Identifier: Apache-2.0
"""Trial of KVM on this host: a small guest really runs, with a deadline. /dev/kvm can be there, open, and hang."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import tempfile
import time

from vmtailor.base import natives
from vmtailor.base.process import pasteable, spawn
from vmtailor.drivers.guest.serial_line import SerialLine
from vmtailor.drivers.monitors.monitor import KVM_DEVICE, KvmState, KvmTrial, KvmVerdict
from vmtailor.drivers.qemu import qemu_program
from vmtailor.drivers.qemu.handover import Wanted, handed
from vmtailor.model.architecture import KvmProbe, named, of_host

#: Printed by the guest if everything a kernel needs has worked (the architecture's kvm-probe, below native/arch).
SAID_WHEN_FINE = b"VTKVM ok\n"
PROBE = "kvm-probe.bin"


def kvm_works(deadline_s: float = 5.0, *, accelerator: str = "kvm") -> KvmVerdict:
    """Start a small guest under KVM and see whether it gets to its end within `deadline_s` seconds of host time.

    The guest takes a millisecond where KVM works. `accelerator` is for tests: TCG runs the same guest. Raises HostError
    when QEMU or the guest is not installed."""
    if accelerator == "kvm":
        if not KVM_DEVICE.exists():
            return KvmVerdict(KvmState.ABSENT, f"there is no {KVM_DEVICE}")
        try:
            with KVM_DEVICE.open("r+b", buffering=0):
                pass
        except OSError as error:
            return KvmVerdict(KvmState.FORBIDDEN, f"{KVM_DEVICE} cannot be opened: {os.strerror(error.errno or 0)}")
    return _try(accelerator, deadline_s)


def trial(architecture: str) -> KvmTrial | None:
    """Return the same trial for scripts; None for another processor than this host's."""
    family = named(architecture)
    probe, guest = family.emulator.kvm_probe, natives.locate().folder / PROBE
    if probe is None or not family.is_host or not guest.is_file():
        return None
    argv = probe_command("", PROBE, "kvm", probe)[1:]
    return KvmTrial(tuple(argv), guest, SAID_WHEN_FINE.decode().strip())


def probe_command(program: str, guest: str, accelerator: str, probe: KvmProbe) -> list[str]:
    """Return QEMU's argument list: the guest stands in for the BIOS."""
    model = "host" if accelerator == "kvm" else probe.cpu
    argv = [program, *probe.arguments, "-accel", accelerator, "-cpu", model]
    argv += ["-nodefaults", "-no-user-config", "-display", "none", "-nic", "none", "-no-reboot"]
    return [*argv, "-chardev", "stdio,id=serial,signal=off", "-serial", "chardev:serial", "-bios", guest]


def _try(accelerator: str, deadline_s: float) -> KvmVerdict:
    architecture = of_host()
    probe = architecture.emulator.kvm_probe
    if probe is None:
        return KvmVerdict(KvmState.ABSENT, f"no guest that would try it is made for {architecture.title}")
    qemu, guest = qemu_program.installed(architecture.name), str(natives.locate().folder / PROBE)
    wanted = Wanted(named={"firmware": guest}, kvm=accelerator == "kvm")
    started = time.monotonic()
    end = started + deadline_s
    # Shut in as any machine is, so that the answer holds for them.
    with tempfile.TemporaryFile() as errors, SerialLine() as serial, handed(wanted, qemu) as given:
        argv = given.argv(probe_command(qemu.program, given.names.get(guest, guest), accelerator, probe))
        with spawn(
            argv,
            stdin=serial.guest_in,
            stdout=serial.guest_out,
            stderr=errors,
            env=given.environment,
            pass_fds=given.descriptors,
        ) as process:
            serial.started()
            while (left := end - time.monotonic()) > 0 and serial.wait_readable(left) and serial.recv(4096):
                pass
            if select.select([serial], [], [], 0)[0]:  # the line's end: QEMU is on its way out
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1.0)
            code = process.poll()
            seconds = time.monotonic() - started
        errors.seek(0)
        words = errors.read()[-2000:].decode("utf-8", "replace").strip()
    shown = pasteable(probe_command(qemu.program, guest, accelerator, probe))
    said = f"{bytes(serial.tail).decode('utf-8', 'replace')}\n{words}\n{shown}".strip()
    if code is None:
        first = f": {words.splitlines()[0]}" if words else ""
        reason = f"a small guest under KVM hangs; it was ended after {seconds:.0f} s{first}"
        return KvmVerdict(KvmState.HANGS, reason, said, seconds)
    if code != 0 or SAID_WHEN_FINE not in serial.tail:
        return KvmVerdict(KvmState.FAILS, f"a small guest under KVM fails (QEMU's status {code})", said, seconds)
    return KvmVerdict(KvmState.WORKS, "", said, seconds)
