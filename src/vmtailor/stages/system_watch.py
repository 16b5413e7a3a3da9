# SPDX-License-Identifier: Apache-2.0
"""Stage trace for a system with an init of its own: boot it on its own kernel, and see every system call of PID 1 and
all its descendants, and the kernel's own actions."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.guests import machine_variants
from vmtailor.analysis.systems.module_index import ModuleIndex
from vmtailor.analysis.systems.seen import Seen
from vmtailor.base import figures
from vmtailor.base.errors import GuestError, UserInputError
from vmtailor.base.files import records
from vmtailor.base.natives import Natives
from vmtailor.base.progress import step
from vmtailor.booting.booter import boot as plain_boot
from vmtailor.drivers.rootfs import initrd_additions
from vmtailor.drivers.rootfs.initramfs import archive
from vmtailor.model.boots.boot import Boot
from vmtailor.model.boots.ending import Gathered
from vmtailor.model.boots.workload import Attended, OwnInit
from vmtailor.model.bundle import REQUESTS
from vmtailor.model.machine import Disk, DiskMode, Machine
from vmtailor.model.watched.system_trace import LogFigures, SystemTrace

RECORD = "system-trace.json"
#: Room for the log; its file is sparse.
LOG_BYTES = 4 << 30
#: Duration of a boot with every call seen, relative to one without; and the allowance on top of that.
SLOWER, PATIENCE = 4.0, 4.0
#: Host seconds that the log may take to be on its disk once the system is ready.
SETTLE_S = 60.0
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

Booter = Callable[[Machine, OwnInit | Attended, Path], tuple[Boot, Gathered]]


@dataclass(frozen=True)
class SystemTraceInputs:
    """A system to trace. `machine`: the system's own kernel with its command line, the root on its first disk.
    `modules`: that kernel's index of modules. `way_in`: the modules that lead to the root (name, ELF file), in the
    order of loading. `workload`: until a ready signal, or through a whole exercise. `plain_s`: host seconds without the
    tracer; if unknown, one boot measures them. `booter`: boots it."""

    subject: str
    machine: Machine
    workload: OwnInit | Attended
    modules: ModuleIndex
    way_in: tuple[tuple[str, bytes], ...]
    natives: Natives
    plain_s: float | None = None
    booter: Booter = plain_boot


def watched_machine(
    machine: Machine,
    way_in: Sequence[tuple[str, bytes]],
    natives: Natives,
    scratch: Path,
    options: Sequence[str] = initrd_additions.OPTIONS,
) -> Machine:
    """Return the watched machine, with our way into its root; its last disk takes the log.

    Raises UserInputError for a machine that a loader starts."""
    if machine.kernel is None or not machine.disks:
        raise UserInputError("a system is traced with its own kernel, started directly")
    log, initrd = scratch / REQUESTS, scratch / "initrd-watching"
    initrd.write_bytes(archive(way_in, (natives.folder / "small-init").read_bytes()))
    initrd_additions.add(initrd, f"/dev/vd{_LETTERS[len(machine.disks)]}", options)
    log.unlink(missing_ok=True)
    with log.open("wb") as file:
        file.truncate(LOG_BYTES)
    disks = (*machine.disks, Disk(str(log), mode=DiskMode.WRITTEN))
    return machine_variants.with_time(replace(machine, initrd=str(initrd), disks=disks))


def trace(inputs: SystemTraceInputs, folder: Path, scratch: Path) -> SystemTrace:
    """Boot, watch, and write the record with the log into `folder`; a record that is already there is reused.

    A boot that does not get ready is kept with everything seen until then, and marked: the caller decides. Raises
    GuestError when no call was seen, UserInputError when the folder has another system's trace."""
    if (folder / RECORD).is_file() and (folder / REQUESTS).is_file():
        found = records.load(SystemTrace, folder / RECORD)
        if found.subject != inputs.subject:
            raise UserInputError(
                f"{folder} has the trace of {found.subject}, not of {inputs.subject}", hint="another folder"
            )
        return found
    folder.mkdir(parents=True, exist_ok=True)
    scratch.mkdir(parents=True, exist_ok=True)
    plain_s = inputs.plain_s if inputs.plain_s is not None else _plain(inputs, scratch)
    machine = watched_machine(inputs.machine, inputs.way_in, inputs.natives, scratch)
    log = scratch / REQUESTS
    expected = SLOWER * plain_s
    with step(f"trace: every system call of the system, some {figures.seconds(expected)}") as progress:
        work = replace(inputs.workload, timeout_s=max(inputs.workload.timeout_s, PATIENCE * expected))
        if isinstance(work, OwnInit):  # an exercise ends by a shutdown
            work = replace(work, settled=lambda asked: last_time(log) > asked, settle_s=SETTLE_S)
        boot, gathered = inputs.booter(machine, work, scratch)
        progress.update(1, 1)
    seen = Seen()
    with step("trace: reading what was seen"):
        seen.take(chunks_of(log))
    if seen.reading.calls == 0:
        raise GuestError(
            f"{inputs.subject} did not reach its init under the tracer",
            details="\n".join((*boot.failures, gathered.console[-4000:].decode("utf-8", "replace"))),
        )
    size = _keep(log, folder / REQUESTS)
    record = _record(inputs, machine, boot, plain_s, seen, size)
    records.save(record, folder / RECORD)
    return record


def _plain(inputs: SystemTraceInputs, scratch: Path) -> float:
    """Return the time that the system takes without a tracer, by the same way in."""
    with step("trace: the system as it is") as shown:
        machine = watched_machine(inputs.machine, inputs.way_in, inputs.natives, scratch, ())
        boot, gathered = inputs.booter(machine, inputs.workload, scratch)
        if boot.failures:
            shown.fail()
    if boot.failures:
        raise GuestError(
            f"{inputs.subject} does not get ready on its own kernel",
            hint="fix the system or its exercise first: a machine can only be fitted to a system that works",
            details="\n".join((*boot.failures, gathered.console[-4000:].decode("utf-8", "replace"))),
        )
    return boot.seconds


def _record(
    inputs: SystemTraceInputs, machine: Machine, boot: Boot, plain_s: float, seen: Seen, size: int
) -> SystemTrace:
    reading, noted = seen.reading, seen.noted
    return SystemTrace(
        subject=inputs.subject,
        machine=machine,
        boot=boot,
        plain_seconds=plain_s,
        requests_file=REQUESTS,
        figures=LogFigures(
            lines=reading.lines,
            calls=reading.calls,
            processes=len(reading.processes),
            skipped=reading.skipped,
            never_returned=reading.never_returned,
            bytes=size,
            guest_seconds=reading.last_s - reading.first_s,
            whole=reading.whole and not seen.cut,
        ),
        events=noted.has_events,
        devices=noted.devices,
        modules=noted.modules,
        loads=noted.loads(inputs.modules),
        kernel_programs=noted.kernel_programs(),
        failed_calls=seen.failed_calls,
        files=seen.files,
    )


def chunks_of(log: Path) -> Iterator[bytes]:
    """Yield a log's content in pieces, up to the empty rest of its disk."""
    with log.open("rb") as file:
        while part := file.read(1 << 20):
            yield part
            if part[-1:] == b"\0":
                return


def last_time(log: Path) -> float:
    """Return the time of the watchers' last mark on the disk, in seconds since 1970; 0 when there is none."""
    with log.open("rb") as file:
        try:
            end = os.lseek(file.fileno(), 0, os.SEEK_HOLE)
        except OSError:
            return time.time()  # a file system that cannot tell: the caller waits no longer
        file.seek(max(0, end - (1 << 20)))
        tail = file.read(min(end, 1 << 20)).partition(b"\0")[0]
    at = tail.rfind(b"+++ vmtailor time ")
    words = tail[at:].split(b" ", 5)
    try:
        return float(words[3]) if at >= 0 and len(words) > 4 else 0.0
    except ValueError:
        return 0.0


def _keep(log: Path, to: Path) -> int:
    """Move what is in the log to its place, without its empty rest; returns its bytes."""
    size = 0
    with to.open("wb") as out:
        for part in chunks_of(log):
            head, nul, _ = part.partition(b"\0")
            out.write(head)
            size += len(head)
            if nul:
                break
    log.unlink()
    return size
