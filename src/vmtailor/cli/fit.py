# SPDX-License-Identifier: Apache-2.0
"""`vmtailor fit`: the main job, from image to proven bundle and report."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from vmtailor.base.errors import AnswerNo
from vmtailor.cli import common
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
    exercise: common.ExerciseOption = None,
    machine: common.MachineOption = MachineKind.MICROVM,
    memory: Annotated[str, typer.Option(help="Memory of both machines while they are measured.")] = "256M",
    cpus: common.CpusOption = 1,
    cpu_model: common.CpuModelOption = "max",
    kernel: common.KernelOption = None,
    source: common.SourceOption = None,
    baseline_config: common.BaselineConfigOption = None,
    root: common.RootOption = RootFormat.EROFS,
    keep: common.KeepOption = None,
    drop: common.DropOption = None,
    terminal: common.TerminalOption = True,
    boots: Annotated[int, typer.Option(min=1, max=100, help="Boots of each side on the instruction clock.")] = 3,
    budget: Annotated[int, typer.Option(min=1, help="How many kernels repair may build before it gives up.")] = 12,
    effort: Annotated[Effort, typer.Option(help="thorough: also try to remove what is kept.")] = Effort.NORMAL,
    entrypoint: common.EntrypointOption = None,
    authfile: common.AuthfileOption = None,
    json: common.JsonOption = False,
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
        baseline_config=baseline_config,
        root_format=root,
        keep=tuple(keep or ()),
        drop=tuple(drop or ()),
        terminal=terminal,
        boots=boots,
        budget=budget,
        effort=effort,
        entrypoint=common.words(entrypoint),
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
