# SPDX-License-Identifier: Apache-2.0
"""The rig: one machine, one run of the container in it, everything taken down. Trace, verify and measure all use it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.base import temporary
from vmtailor.base.errors import HostError
from vmtailor.base.natives import ADDRESSES, Natives
from vmtailor.drivers.guest import guest_volume
from vmtailor.drivers.guest.guest import GuestSession
from vmtailor.drivers.guest.guest_volume import Run
from vmtailor.drivers.qemu import plugin, qemu, qemu_program
from vmtailor.drivers.qemu.plugin import Owner, PluginConfig
from vmtailor.model.gathered import Gathered
from vmtailor.model.machine import Disk, DiskMode, Machine

#: Options of the tracer: every call's deciding arguments, result, time of day and time inside.
#: -D keeps the entry point the direct child of init; -y names descriptors without opening sockets in the guest.
TRACER_OPTIONS = ("-D", "-f", "-q", "-ttt", "-T", "-y", "-s", "64")
#: Room for the tracer's log.
TRACE_BYTES = 1 << 30
#: A disk with less room than this counts as full.
FULL_BYTES = 1 << 16
#: The address that QEMU's user network gives its guest.
NETWORK = "10.0.2.15/24,10.0.2.2,10.0.2.3"
#: A fixed key: two boots that shall agree to the instruction must be told the same bytes.
FIXED_KEY = bytes(range(16))


@dataclass(frozen=True)
class Setup:
    """What to boot and how to drive it. `machine.disks[0]` is the root; the rig adds its own volumes.

    `tools`: the tracer's volume, which makes it a requests boot; its file's ending names the format. `plugin`: what to
    count (user code of init and client is kept apart by the rig). `deadline_s`: of host time for the whole boot.
    `at_load`: called when the guest holds after its own load, so that host clients can do theirs (`run.hold`)."""

    machine: Machine
    run: Run
    natives: Natives
    deadline_s: float
    tools: Path | None = None
    plugin: PluginConfig | None = None
    at_load: Callable[[GuestSession], None] | None = None


def owners() -> tuple[Owner, ...]:
    """User code that is ours: init (with the baseline's first stage) and the exercise's client."""
    return tuple(Owner(name, *ADDRESSES[name]) for name in ("init", "stage1", "client"))


def drive(setup: Setup, scratch: Path) -> Gathered:
    """Boot, run, and wait for the end. A guest that crashes or hangs is an outcome, not an exception; QEMU that cannot
    even start is one. Nothing is left running, whatever happens. `scratch`: where temporary files may lie."""
    with temporary.held_folder(scratch) as folder:
        machine = _with_volumes(setup, folder)
        prepared = None
        if setup.plugin is not None:
            config = replace(setup.plugin, owners=(*setup.plugin.owners, *owners()))
            library = setup.natives.plugin(qemu_program.plugin_api(setup.machine.architecture))
            prepared = plugin.prepare(library, config, folder)
        with qemu.start(machine, plugin=prepared) as running:
            session = GuestSession(running.serial, key=setup.run.key)
            held = setup.at_load is None
            while session.pump(min(1.0, running.left(setup.deadline_s))) and running.left(setup.deadline_s) > 0:
                if not held and any(mark.name == "load_end" for mark in session.marks):
                    held = True
                    assert setup.at_load is not None
                    setup.at_load(session)
                    session.go()
            end = running.wait(max(0.1, running.left(setup.deadline_s)))
            with contextlib.suppress(OSError):
                session.pump(0)
            report = session.report()
        _require_space(folder)
        requests = _log(folder / "trace") if setup.tools is not None else b""
        counts = prepared.out.read_bytes() if prepared is not None and prepared.out.exists() else b""
    return Gathered(report, end, running.started_s, requests, counts)


def _require_space(folder: Path) -> None:
    """What a boot wrote while the disk filled up is not worth reading. Raises HostError."""
    status = os.statvfs(folder)
    blocks = status.f_bfree if os.geteuid() == 0 else status.f_bavail
    if blocks * status.f_frsize < FULL_BYTES:
        raise HostError(
            f"no space is left in {folder.parent} for what a machine writes",
            hint="free some, or set XDG_CACHE_HOME elsewhere",
        )


def _with_volumes(setup: Setup, folder: Path) -> Machine:
    run = setup.run
    words = ["VT_RUN=1"]
    volume = folder / "run"
    guest_volume.write_run_volume(volume, replace(run, tracer=TRACER_OPTIONS if setup.tools is not None else ()))
    disks = [*setup.machine.disks, Disk(str(volume), mode=DiskMode.WRITTEN)]
    if setup.tools is not None:
        out = folder / "trace"
        with out.open("wb") as file:
            file.truncate(TRACE_BYTES)  # sparse
        disks += [Disk(str(setup.tools)), Disk(str(out), mode=DiskMode.WRITTEN)]
        words += [f"VT_TOOLS={setup.tools.suffix.removeprefix('.')}", "VT_OUT=1"]
    return replace(setup.machine, disks=tuple(disks), append=(*setup.machine.append, *words))


def _log(path: Path) -> bytes:
    """The tracer's log: the disk up to its first NUL, read without its empty rest."""
    parts = []
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            head, nul, _ = part.partition(b"\0")
            parts.append(head)
            if nul:
                break
    return b"".join(parts)
