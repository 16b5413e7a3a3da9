# SPDX-License-Identifier: Apache-2.0
"""`vmtailor fit`: the main job, from image to proven bundle and report."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from vmtailor.base.errors import AnswerNo, UserInputError
from vmtailor.cli.sizes import parse_memory
from vmtailor.model.machine import MachineKind
from vmtailor.model.plan import RootFormat
from vmtailor.pipeline.fit import run_fit
from vmtailor.pipeline.options import Effort, FitOptions
from vmtailor.stages import report as report_stage


def fit(
    image: Annotated[
        str,
        typer.Argument(
            help="oci:DIR[:TAG], oci-archive:FILE, docker-archive:FILE (- for standard input), docker://NAME, "
            "docker-daemon:NAME, rootfs:DIR, or a path."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the bundle.")] = Path("bundle"),
    exercise: Annotated[
        Path | None, typer.Option("--exercise", "-x", help="How the container is driven and judged (TOML).")
    ] = None,
    machine: Annotated[MachineKind, typer.Option(help="Machine type of the target.")] = MachineKind.MICROVM,
    memory: Annotated[str, typer.Option(help="Memory of both machines while they are measured.")] = "256M",
    cpus: Annotated[int, typer.Option(min=1, max=64, help="CPUs of the target; 2 and more keep SMP.")] = 1,
    cpu_model: Annotated[str, typer.Option(help="CPU model traced and measured on.")] = "max",
    kernel: Annotated[
        str | None, typer.Option(help="Packaged baseline: a series (6.12), or an exact version or release.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Kernel source to build instead of the packaged one: DIR or TARBALL[,SHA256].")
    ] = None,
    root: Annotated[RootFormat, typer.Option(help="Root file system.")] = RootFormat.EROFS,
    keep: Annotated[
        list[str] | None, typer.Option(help="Keep a configuration symbol: NAME or NAME=VALUE. May be repeated.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Leave a configuration symbol out. May be repeated.")] = None,
    terminal: Annotated[bool, typer.Option(help="Keep what `run -t` needs.")] = True,
    boots: Annotated[int, typer.Option(min=1, max=100, help="Boots of each side on the instruction clock.")] = 3,
    budget: Annotated[int, typer.Option(min=1, help="How many kernels repair may build before it gives up.")] = 12,
    effort: Annotated[Effort, typer.Option(help="thorough: also try to remove what is kept.")] = Effort.NORMAL,
    entrypoint: Annotated[
        str | None, typer.Option(help="Entry point instead of the image's (a root directory has none).")
    ] = None,
    authfile: Annotated[Path | None, typer.Option(help="Registry credentials, as skopeo reads them.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Make the machine that fits an image: trace, plan, build, verify, measure, report."""
    options = FitOptions(
        reference=image,
        out=out,
        exercise_file=exercise,
        machine=machine,
        memory_bytes=parse_memory(memory),
        cpus=cpus,
        cpu_model=cpu_model,
        kernel=kernel,
        source=source,
        root_format=root,
        keep=tuple(keep or ()),
        drop=tuple(drop or ()),
        terminal=terminal,
        boots=boots,
        budget=budget,
        effort=effort,
        entrypoint=None if entrypoint is None else _words(entrypoint),
        authfile=authfile,
        command=shlex.join(["vmtailor", *sys.argv[1:]]),
    )
    result = run_fit(options)
    report_stage.show(result, json=json)
    if not result.verified:
        raise AnswerNo(
            "the container does not work in the tailored machine",
            hint=f"{out}/report.html has every trial; --keep NAME keeps a symbol, --budget N allows more trials",
        )


def _words(text: str) -> tuple[str, ...]:
    """A command line as a shell would read it."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UserInputError(
            f"the entry point {text!r} is no command line: {error}", hint="close every quotation mark"
        ) from error
