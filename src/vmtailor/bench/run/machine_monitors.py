# SPDX-License-Identifier: Apache-2.0
"""Monitors that start the image in a machine of their own, within a machine whose processor lets KVM work. Outside the
scope they are made ready: which machine each starts, by which command, from which files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vmtailor.analysis.guests import machine_variants
from vmtailor.base import notation
from vmtailor.base.cache.store import Store, digest
from vmtailor.base.errors import UserInputError
from vmtailor.base.progress import step
from vmtailor.base.text import plain
from vmtailor.bench.model.job import BenchMonitor
from vmtailor.bench.run.image_machine import machine_digest
from vmtailor.bench.runtimes.guest_runtime import OURS
from vmtailor.booting import fitted_machine
from vmtailor.booting.run_volume import with_run
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.monitors import monitors
from vmtailor.drivers.monitors.monitor import StartPlace
from vmtailor.drivers.rootfs.rootfs import Extra
from vmtailor.model.architecture import named
from vmtailor.model.image import Image
from vmtailor.model.machine import HOST_CPU, USUAL_MONITOR, Accelerator, Clock, Machine
from vmtailor.pipeline import image_subject
from vmtailor.pipeline.options import FitOptions
from vmtailor.stages.root_volume import build_root

#: The name of QEMU under KVM, the one that published tables use; and that of the distribution's packaged kernel.
KVM, STOCK = "kvm", "stock"
#: Memory of the machine around besides that of a machine in it: for the monitor, and what KVM keeps.
MONITOR_BYTES = 256 << 20
#: Folder of the monitor's files, in memory; in it our init's orders.
PLACE = "/run/vmtailor-monitor"
ORDERS = f"{PLACE}/orders"
#: A command that says the name, and so the version, of the libkrun that its program finds.
_KRUN_VERSION = ("sh", "-c", 'basename "$(readlink -f "$(krun-start --version)")"')


def is_monitor(name: str) -> bool:
    """Return whether a runtime's name is that of a monitor with a machine: MONITOR:stock or MONITOR:FOLDER."""
    return name.partition(":")[0] in (KVM, *monitors.names()) and ":" in name


def check(names: Sequence[str], programs: Mapping[str, Path], *, inside: bool) -> None:
    """Check that the named bundles are there, and that each program is of a named monitor. `inside`: there is a machine
    for them. Raises UserInputError."""
    if names and not inside:
        raise UserInputError(
            f"{plain(names[0])[:100]} starts within a machine, and none is named",
            hint="--inside vm:DISK (make bench-lab builds one); vm:FOLDER is a machine on this host",
        )
    asked = {_monitor_of(name) for name in names}
    for name in names:
        which = _bundle_of(name)
        if which == STOCK and _monitor_of(name) != USUAL_MONITOR:
            raise UserInputError(
                f"{plain(name)[:100]}: the packaged kernel needs an initial RAM disk and ACPI", hint=f"{KVM}:{STOCK}"
            )
        if which != STOCK:
            if not Path(which).is_dir():
                raise UserInputError(f"{plain(name)[:100]}: no such bundle", hint=f"{KVM}:{STOCK}, or {KVM}:FOLDER")
            bundle_folder.load_container(Path(which))
    for name in programs:
        if name not in asked:
            raise UserInputError(
                f"--program {plain(name)[:64]}: no row of --on is started by it", hint=f"--on {plain(name)[:64]}:FOLDER"
            )
        if not programs[name].is_file():
            raise UserInputError(f"--program {plain(name)[:64]}: {plain(str(programs[name]))} is not there")


def _monitor_of(name: str) -> str:
    """Return the name of the monitor, as machines have it."""
    found = name.partition(":")[0]
    return USUAL_MONITOR if found == KVM else found


def _bundle_of(name: str) -> str:
    return name.partition(":")[2]


@dataclass(frozen=True)
class ReadyMonitor:
    """A monitor that is ready to be put into a machine. `entries`: the files on our disk there; `memory_bytes`: of the
    machine that it starts."""

    row: BenchMonitor
    entries: tuple[Extra, ...]
    memory_bytes: int


def ready(
    names: Sequence[str], programs: Mapping[str, Path], image: Image, reference: str, store: Store
) -> tuple[ReadyMonitor, ...]:
    """Return the named monitors, with machines that have the image as their root. `programs`: the user's own, by
    monitor. Raises HostError, and UserInputError for a machine that a monitor cannot start."""
    found = []
    for number, name in enumerate(dict.fromkeys(names)):
        with step(f"make {plain(name)[:60]} ready"):
            started = _stock(reference, store) if _bundle_of(name) == STOCK else _fitted(name, image, store)
        found.append(_placed(name, number, started, programs.get(_monitor_of(name))))
    rows = [one.row.name for one in found]
    if len(set(rows)) < len(rows):
        raise UserInputError("two bundles' folders have one name", hint="rename one: it names the row")
    return tuple(found)


@dataclass(frozen=True)
class StartedMachine:
    """A machine that a monitor will start, with its description in words. `entry`, `lent`: as in BenchMonitor."""

    machine: Machine
    words: str
    entry: int
    lent: bool = False


def _stock(reference: str, store: Store) -> StartedMachine:
    known = image_subject.prepare(FitOptions(reference, Path(), store=store))
    return StartedMachine(known.baseline, f"Linux {known.kernel.release}", _entry(known.natives.marks()))


def _entry(marks: Mapping[str, int]) -> int:
    return marks.get("entry", 0)


def _fitted(name: str, image: Image, store: Store) -> StartedMachine:
    """Return the bundle's machine. Where the bundle is of another image, its kernel starts this one."""
    one = bundle_folder.load_container(Path(_bundle_of(name)), store)
    bundle = one.bundle
    machine = fitted_machine.machine_of(one, fitted_machine.Chosen(accelerator=Accelerator.KVM, clock=Clock.WALL))
    words = f"Linux {bundle.kernel_version} of {bundle.name}"
    parts = guest_programs.of(bundle.architecture)
    marks = one.init_marks
    lent = bundle.image_digest != image.digest
    if lent:
        root, marks = build_root(image, bundle.root_format, parts, store), parts.marks()
        machine = replace(machine, disks=(replace(one.root, path=str(root)),))
        words += " (fitted to another image)"
    entry = _entry(parts.marks() if marks is None else marks)
    return StartedMachine(machine, f"{words}, {machine_digest(bundle)}", entry, lent)


def _placed(name: str, number: int, wanted: StartedMachine, program: Path | None) -> ReadyMonitor:
    """Return the monitor with the places of its files on our disk."""
    inner = _monitor_of(name)
    monitor = monitors.named(inner)
    started = with_run(
        replace(
            machine_variants.counted(wanted.machine), accelerator=Accelerator.KVM, clock=Clock.WALL, cpu_model=HOST_CPU,
            ports=(), network=False, monitor=inner,
        ),
        ORDERS,
    )  # fmt: skip
    monitor.require(started)
    paths = {**started.files, "root": started.disks[0].path}
    own = {f"m{number}-{kind}": Path(path) for kind, path in paths.items()}
    names = {str(path): f"{OURS}/{file}" for file, path in own.items()}
    orders = monitor.orders(started, StartPlace(PLACE, names))
    argv, entries = orders.argv, [Extra(file, data=path) for file, path in own.items()]
    words = f"{wanted.words}, {started.board}, {notation.mebibytes(started.memory_bytes)}"
    if program is not None:
        words += f", by the program {digest(program)[:12]}"
        entries.append(Extra(f"m{number}-program", data=program, mode=0o755))
        argv = (f"{OURS}/m{number}-program", *argv[1:])
    which = _bundle_of(name)
    row = BenchMonitor(
        name=f"{name.partition(':')[0]}:{which if which == STOCK else Path(which).absolute().name}",
        asked=name,
        title=monitor.row.title,
        argv=argv,
        files=tuple((f"{PLACE}/{file}", data.decode()) for file, data in orders.files.items()),
        version=_KRUN_VERSION if inner == "libkrun" and program is None else (argv[0], "--version"),
        machine=words,
        entry=wanted.entry,
        lent=wanted.lent,
    )
    return ReadyMonitor(row, tuple(entries), started.memory_bytes)


def with_monitors(machine: Machine, ready_: Sequence[ReadyMonitor]) -> Machine:
    """Return the machine around monitors: KVM works in it, and it has the memory for each. Without any it stays as it
    is. Raises UserInputError for a processor whose KVM is not emulated."""
    if not ready_:
        return machine
    row = named(machine.architecture)
    if not row.emulator.lab_cpu:
        raise UserInputError(f"QEMU does not emulate KVM for {row.title}", hint="leave the monitors out of --on")
    more = max(one.memory_bytes for one in ready_) + MONITOR_BYTES
    return replace(machine, cpu_model=row.emulator.lab_cpu, memory_bytes=machine.memory_bytes + more)
