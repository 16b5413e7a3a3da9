# SPDX-License-Identifier: Apache-2.0
"""The verb `vmtailor boot`: its options, and which way of booting they ask for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from vmtailor.cli.boots.asked import OUT, READY, TIMEOUT_S, TIMES, Asked
from vmtailor.cli.boots.boot_bundle import boot_bundle
from vmtailor.cli.boots.boot_machine import boot_machine
from vmtailor.cli.boots.boot_requests import boot_requests
from vmtailor.cli.boots.boot_system import boot_system
from vmtailor.drivers.guest.ready import FORMS
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.architecture import every_board, names
from vmtailor.model.boots.series import JudgedBy
from vmtailor.model.machine import Accelerator, Clock
from vmtailor.pipeline.systems.subjects import DISK


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
    ready: Annotated[str, typer.Option(help=f"When the guest counts as ready: {FORMS}.")] = READY,
    also: Annotated[
        list[str] | None, typer.Option(help="Another signal that must come for the boot to be right.")
    ] = None,
    mark: Annotated[
        list[str] | None, typer.Option(help="NAME=REGEX: a milestone of your own, a line of the console.")
    ] = None,
    times: Annotated[int, typer.Option("--times", "-n", min=1, max=10_000, help="Boots.")] = TIMES,
    timeout: Annotated[
        float, typer.Option(min=0.1, max=86400, help="Seconds after which a boot counts as never ready.")
    ] = TIMEOUT_S,
    clock: Annotated[Clock, typer.Option(help="wall: host time. instructions: QEMU's TCG counts, exact.")] = Clock.WALL,
    machine: Annotated[
        str | None,
        typer.Option(
            help=f"QEMU's machine type ({', '.join(every_board())}). Default: the processor's for whole systems.",
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
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for consoles and records.")] = OUT,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Boot a machine N times, from the start of QEMU to a ready signal, and show where the time goes.

    A guest that panics or never gets ready is a result: it is shown with its console, and the exit code is 5."""
    asked = Asked(
        subject=subject, exercise=exercise, kernel=kernel, initrd=initrd, append=append, disks=tuple(disk or ()),
        ready=ready, also=tuple(also or ()), marks=tuple(mark or ()), times=times, timeout_s=timeout, clock=clock,
        machine=machine, memory=memory, cpus=cpus, arch=arch, cpu=cpu, accelerator=accel, sample=sample,
        debug_initcalls=debug_initcalls, changes=_changes(try_), attribute=attribute, judged_by=judge,
        requests=requests, qemu=tuple(qemu or ()), out=out, json=json,
    )  # fmt: skip
    _in_its_way(asked)


def _in_its_way(asked: Asked) -> None:
    """A system that an exercise drives, a bundle, a system that is watched, or a machine as it is."""
    if asked.exercise is not None:
        boot_system(asked, asked.exercise)
        return
    if asked.subject is not None and str(asked.subject).startswith(DISK):
        asked = replace(asked, subject=Path(str(asked.subject).removeprefix(DISK)))
    if asked.subject is not None and bundle_folder.is_bundle(asked.subject):
        boot_bundle(asked, asked.subject)
    elif asked.requests is not None:
        boot_requests(asked, asked.requests)
    else:
        boot_machine(asked)


def _changes(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
