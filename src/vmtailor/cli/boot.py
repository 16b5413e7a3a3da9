# SPDX-License-Identifier: Apache-2.0
"""`vmtailor boot`: a machine, booted N times and measured; changes of the catalogue tried on it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from vmtailor.analysis.changes import choosing
from vmtailor.analysis.cost import loops
from vmtailor.analysis.guests import machines
from vmtailor.base import output
from vmtailor.base.cache.store import Store
from vmtailor.base.errors import ExitCode, UserInputError
from vmtailor.base.files import records
from vmtailor.base.progress import step
from vmtailor.base.terminal import Console
from vmtailor.booting import series
from vmtailor.booting.boot import boot as plain_boot
from vmtailor.booting.bundle import Chosen
from vmtailor.booting.counted import Settled
from vmtailor.cli import boot_bundle
from vmtailor.cli.boot_bundle import BundleRequest
from vmtailor.cli.options.sizes import parse_memory
from vmtailor.cli.systems import boot_system
from vmtailor.cli.systems.boot_system import SystemRequest
from vmtailor.cli.systems.requests import refuse_beside, show_requests
from vmtailor.cli.tables.boot_table import document, show
from vmtailor.cli.tables.cost_table import show_cost
from vmtailor.drivers.guest import guest_programs
from vmtailor.drivers.guest.ready import FORMS, parse_signal, words_for
from vmtailor.drivers.host import bundle_folder
from vmtailor.drivers.rootfs import disk as disks
from vmtailor.model.architecture import every_kind, named, names, of_host
from vmtailor.model.boots.boot import Outcome
from vmtailor.model.boots.boot_cost import BootCost
from vmtailor.model.boots.series import BootSeries, JudgedBy
from vmtailor.model.boots.workload import Nothing, OwnInit, ReadyBy, ReadySignal
from vmtailor.model.machine import Accelerator, Clock, Disk, Machine
from vmtailor.pipeline import machine_bench, trying
from vmtailor.pipeline.systems.subjects import DISK
from vmtailor.stages.boot import attribution, profile


@dataclass(frozen=True)
class BootRequest:
    """What the user asked for, parsed."""

    subject: str
    machine: Machine
    workload: OwnInit | Nothing
    times: int
    out: Path
    sample: bool
    debug_initcalls: bool
    changes: tuple[str, ...]
    judged_by: JudgedBy


def boot(
    subject: Annotated[
        Path | None,
        typer.Argument(
            help="A bundle, or a disk image (raw or qcow2; with or without disk: before it), which is never written.",
            show_default=False,
        ),
    ] = None,
    exercise: Annotated[
        Path | None,
        typer.Option(
            "--exercise",
            "-x",
            help="Drive the system on a disk by this exercise (TOML), and shut it down.",
            show_default=False,
        ),
    ] = None,
    kernel: Annotated[Path | None, typer.Option(help="Boot this kernel directly (packed, or a vmlinux).")] = None,
    initrd: Annotated[Path | None, typer.Option(help="Its initial RAM disk.")] = None,
    append: Annotated[str, typer.Option(help="Its command line.")] = "",
    disk: Annotated[list[Path] | None, typer.Option(help="One more disk; may be repeated.")] = None,
    ready: Annotated[str, typer.Option(help=f"When the guest counts as ready: {FORMS}.")] = "login",
    also: Annotated[
        list[str] | None, typer.Option(help="Another signal that must come for the boot to be right.")
    ] = None,
    mark: Annotated[
        list[str] | None, typer.Option(help="NAME=REGEX: a milestone of your own, a line of the console.")
    ] = None,
    times: Annotated[int, typer.Option("--times", "-n", min=1, max=10_000, help="Boots.")] = 5,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=86400, help="Seconds after which a boot counts as never ready.")
    ] = 300.0,
    clock: Annotated[Clock, typer.Option(help="wall: host time. instructions: QEMU's TCG counts, exact.")] = Clock.WALL,
    machine: Annotated[
        str | None,
        typer.Option(
            help=f"QEMU's machine type ({', '.join(every_kind())}). Default: the processor's for whole systems.",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory of the guest, such as 512M; 2G, or what a bundle was fitted with.")
    ] = None,
    cpus: Annotated[int | None, typer.Option(min=1, max=255, help="Virtual CPUs; 1 where nothing is said.")] = None,
    arch: Annotated[
        str | None,
        typer.Option(
            help=f"Processor of a kernel or disk ({', '.join(names())}); a bundle has its own. Default: this host's.",
            show_default=False,
        ),
    ] = None,
    cpu: Annotated[
        str | None, typer.Option(help="QEMU's CPU model. Default: the processor's.", show_default=False)
    ] = None,
    accel: Annotated[
        Accelerator, typer.Option(help="tcg works everywhere; kvm where `vmtailor doctor` says so.")
    ] = Accelerator.TCG,
    sample: Annotated[
        bool, typer.Option("--sample", help="Sample processes from inside the guest (needs --initrd).")
    ] = False,
    debug_initcalls: Annotated[
        bool, typer.Option("--debug-initcalls", help="Have the kernel log every initcall (costs time itself).")
    ] = False,
    try_: Annotated[
        str,
        typer.Option(
            "--try",
            help="Ids of the catalogue's changes, separated by commas, or `all`; joined by `+`, tried as one. On "
            "a bundle also SYMBOL=VALUE and ID/configuration, which compile its kernel again.",
            show_default=False,
        ),
    ] = "",
    attribute: Annotated[
        bool,
        typer.Option(
            "--attribute", help="Count one boot up to init: what each initcall, function and configuration symbol cost."
        ),
    ] = False,
    judge: Annotated[
        JudgedBy,
        typer.Option(
            help="What trials are judged by: the time of ready; instructions from kernel entry to init (exact); "
            "QEMU's processor time."
        ),
    ] = JudgedBy.READY,
    requests: Annotated[
        Path | None,
        typer.Option(
            help="Boot the disk once by its own kernel with every system call of its init and all its descendants "
            "seen; the log, and what each module was loaded for, are kept in this folder.",
            show_default=False,
        ),
    ] = None,
    qemu: Annotated[list[str] | None, typer.Option(help="One more argument for QEMU; may be repeated.")] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for consoles and records.")] = Path("build/boots"),
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Boot a machine N times, from the start of QEMU to a ready signal, and show where the time goes.

    A guest that panics or never gets ready is a result: it is shown with its console, and the exit code is 5."""
    if subject is not None and str(subject).startswith(DISK) and exercise is None:
        subject = Path(str(subject).removeprefix(DISK))
    if subject is not None and exercise is None and bundle_folder.is_bundle(subject):
        boot_bundle.refuse(
            [("--kernel", kernel), ("--initrd", initrd), ("--disk", disk), ("--also", also), ("--mark", mark),
             ("--sample", sample), ("--qemu", qemu), ("--machine", machine), ("--cpus", cpus), ("--arch", arch)]
        )  # fmt: skip
        words = (*append.split(), *(profile.INITCALLS if debug_initcalls else ()))
        own = Chosen(cpu or "", accel, clock, words, parse_memory(memory) if memory else None)
        asked = BundleRequest(subject, own, timeout, times, out, _changes(try_), judge)
        if attribute:
            _print_cost(boot_bundle.attribute(asked), out, json, boot_bundle.architecture_of(subject))
        else:
            _print(boot_bundle.boots(asked), out, json)
        return
    if exercise is not None:
        boot_system.refuse(
            [("--ready", ready != "login"), ("--also", also), ("--mark", mark), ("--sample", sample), ("--try", try_),
             ("--attribute", attribute), ("--debug-initcalls", debug_initcalls), ("--qemu", qemu), ("--disk", disk),
             ("--initrd without --kernel", initrd and not kernel), ("--arch", arch), ("--requests", requests)]
        )  # fmt: skip
        if subject is None:
            raise UserInputError("--exercise needs a system to drive", hint="vmtailor boot disk:FILE -x FILE")
        row = of_host()
        asked_machine = replace(
            machines.usual(row), kind=row.machine_type(machine or row.usual).kind, cpus=cpus or 1,
            memory_bytes=parse_memory(memory or "2G", least=16 << 20, most=1 << 44), kernel=_file(kernel),
            initrd=_file(initrd), append=tuple(append.split()), accelerator=accel, clock=clock,
            cpu_model=cpu or row.emulator.cpu_model,
        )  # fmt: skip
        _check(asked_machine, sample, exercised=True)
        if clock is Clock.INSTRUCTIONS:
            asked_machine = machines.countable(asked_machine)
        _print(boot_system.boots(SystemRequest(str(subject), exercise, asked_machine, times, timeout, out)), out, json)
        return
    signal = parse_signal(ready)
    if requests is not None:
        refuse_beside(
            [("--kernel", kernel), ("--initrd", initrd), ("--disk", disk), ("--append", append), ("--sample", sample),
             ("--qemu", qemu), ("--machine", machine), ("--try", try_), ("--attribute", attribute), ("--arch", arch),
             ("--clock instructions", clock is not Clock.WALL), ("--cpu", cpu), ("--debug-initcalls", debug_initcalls),
             ("--accel kvm", accel is not Accelerator.TCG)]
        )  # fmt: skip
        show_requests(
            subject, _workload(signal, tuple(parse_signal(text) for text in also or ()), mark or [], timeout),
            requests, parse_memory(memory or "2G", least=16 << 20, most=1 << 44), cpus or 1, json=json,
        )  # fmt: skip
        return
    also_signals = tuple(parse_signal(text) for text in also or ())
    line = append.split()
    for wanted in (signal, *also_signals):
        line += [word for word in words_for(wanted) if word not in line]
    row = named(arch) if arch else of_host()
    workload = _workload(signal, also_signals, mark or [], timeout)
    size = parse_memory(memory or "2G", least=16 << 20, most=1 << 44)
    wanted_machine = replace(
        machines.usual(row), kind=row.machine_type(machine or row.usual).kind, memory_bytes=size,
        cpus=cpus or 1, kernel=_file(kernel),
        initrd=_file(initrd), append=tuple(line), disks=_disks(subject, disk or [], kernel),
        ports=machines.on_loopback(workload.ports), cpu_model=cpu or row.emulator.cpu_model, accelerator=accel,
        clock=clock, options=tuple(qemu or ()),
    )  # fmt: skip
    _check(wanted_machine, sample)
    if isinstance(workload, Nothing) and (sample or try_):
        raise UserInputError("--sample and --try need a moment to be ready at", hint=f"--ready {FORMS}")
    if clock is Clock.INSTRUCTIONS:
        # Nothing from outside may differ: no entropy of the host's, addresses as linked.
        wanted_machine = machines.countable(wanted_machine)
    name = str(subject or kernel)
    request = BootRequest(name, wanted_machine, workload, times, out, sample, debug_initcalls, _changes(try_), judge)
    if attribute:
        _attribute(request, json)
        return
    found = _tried(request) if request.changes else _booted(request)
    _print(found, out, json)


def _print(found: BootSeries, out: Path, json: bool) -> None:
    """Show a series; exits with 5 when a boot of the machine as it was failed."""
    if json:
        output.document(document(found, out))
    else:
        show(found, out, Console())
    if any(one.outcome is not Outcome.READY for one in found.of(found.variants[0].name)):
        raise typer.Exit(ExitCode.GUEST)


def _attribute(request: BootRequest, json: bool) -> None:
    if request.machine.kernel is None:
        raise UserInputError("--attribute needs --kernel", hint="give --kernel, --initrd and --append")
    store = Store()
    known = attribution.of_package(Path(request.machine.kernel), store, request.machine.architecture)
    cost = attribution.attributed(
        request.machine,
        known,
        request.out,
        natives=guest_programs.of(request.machine.architecture),
        store=store,
        timeout_s=request.workload.timeout_s,
    )
    _print_cost(cost, request.out, json, request.machine.architecture)


def _print_cost(cost: BootCost, out: Path, json: bool, architecture: str) -> None:
    if json:
        output.json_bytes([records.to_bytes(cost)])
    else:
        show_cost(cost, out, Console(), loops.table(architecture))


def _booted(request: BootRequest) -> BootSeries:
    machine, workload = request.machine, request.workload
    request.out.mkdir(parents=True, exist_ok=True)
    if request.debug_initcalls:
        machine = profile.with_initcalls(machine)
    if request.sample:
        if isinstance(workload, OwnInit):
            workload = replace(workload, collector=True)
        machine = profile.with_collector(machine, guest_programs.of(machine.architecture).collector, request.out)
    with step(f"boot {Path(request.subject).name}") as progress:

        def on_boot(name: str, number: int, seconds: float) -> None:
            progress.update(number - 1, request.times, f"{name} {number}: {seconds:.0f} s")

        exact = machine.clock is Clock.INSTRUCTIONS
        return series.run(
            request.subject,
            series.in_turn([series.variant("base", machine)], request.times),
            workload,
            request.out,
            booter=Settled(guest_programs.of(machine.architecture)) if exact else plain_boot,
            on_boot=on_boot,
        )


def _tried(request: BootRequest) -> BootSeries:
    wanted = choosing.for_machine(request.changes)
    store, known = Store(), None
    if request.judged_by is JudgedBy.INSTRUCTIONS:
        if request.machine.kernel is None:
            raise UserInputError("to judge by instructions needs --kernel")
        known = attribution.of_package(Path(request.machine.kernel), store, request.machine.architecture)
    if words := machine_bench.doubt(request.machine.clock, request.judged_by, len(wanted), request.times):
        output.note(words)
    parts = guest_programs.of(request.machine.architecture)
    with step(f"try {len(wanted)} changes on {Path(request.subject).name}") as progress:

        def on_boot(name: str, number: int, seconds: float) -> None:
            progress.update(number - 1, request.times, f"{name} {number}: {seconds:.0f} s")

        return trying.on_machine(
            request.subject, request.machine, request.workload, wanted, request.out, times=request.times,
            natives=parts, judged_by=request.judged_by, known=known, store=store, on_boot=on_boot,
        )  # fmt: skip


def _changes(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _disks(subject: Path | None, more: list[Path], kernel: Path | None) -> tuple[Disk, ...]:
    found = tuple(disks.disk_of(path) for path in ((subject,) if subject else ()) + tuple(more))
    if kernel is None:
        if not found:
            raise UserInputError("nothing to boot", hint="give a disk image, or --kernel")
        if not disks.has_loader(found[0]):
            raise UserInputError(f"{found[0].path} has no boot loader", hint="give --kernel, --initrd and --append")
    return found


def _check(machine: Machine, sample: bool, exercised: bool = False) -> None:
    if sample and (machine.kernel is None or machine.initrd is None):
        raise UserInputError("--sample needs --kernel and --initrd: the collector travels in the initial RAM disk")
    if sample and not machine.type.second_port:
        raise UserInputError(f"--sample needs a second serial port, which the machine {machine.kind} has not")
    if machine.kernel is None and machine.append and not exercised:
        raise UserInputError("--append needs --kernel", hint="a disk's own loader has a command line of its own")
    if machine.clock is Clock.INSTRUCTIONS and (machine.cpus > 1 or machine.accelerator is Accelerator.KVM):
        raise UserInputError("the instruction clock needs one CPU and TCG")


def _workload(
    ready: ReadySignal, also: tuple[ReadySignal, ...], marks: list[str], timeout_s: float
) -> OwnInit | Nothing:
    if ReadyBy.NOTHING not in {signal.by for signal in (ready, *also)}:
        return OwnInit(ready, timeout_s, also, tuple(_mark(text) for text in marks))
    if ready.by is not ReadyBy.NOTHING or also or marks:
        raise UserInputError("nothing:SECONDS goes without --also and --mark", hint="nobody is asked anything")
    return Nothing(ready.seconds)


def _mark(text: str) -> tuple[str, re.Pattern[str]]:
    name, found, pattern = text.partition("=")
    try:
        if not found or not name or not pattern:
            raise UserInputError(f"--mark {text!r} is not NAME=REGEX")
        return name, re.compile(pattern)
    except re.error as error:
        raise UserInputError(f"--mark {text!r}: {error}") from error


def _file(path: Path | None) -> str | None:
    if path is None:
        return None
    if not path.is_file():
        raise UserInputError(f"{path} does not exist or is no file")
    return str(path.absolute())
