# SPDX-License-Identifier: Apache-2.0
"""`vmtailor fit`: the main job, from image to proven bundle and report."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from vmtailor.base import output
from vmtailor.base.errors import AnswerNo, UserInputError
from vmtailor.base.files.regular_files import open_regular
from vmtailor.base.text import plural
from vmtailor.cli.options import common
from vmtailor.model.systems.units import UnitsMode, UnitStanding
from vmtailor.pipeline.fit import run_fit
from vmtailor.pipeline.options import Effort, FitOptions
from vmtailor.pipeline.systems.disk_files import MOST_BYTES
from vmtailor.stages import report as report_stage


@common.with_options(common.planned)
def fit(
    asked: FitOptions,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the bundle.")] = Path("bundle"),
    boots: Annotated[int, typer.Option(min=1, max=100, help="Most boots of each side on either clock.")] = 3,
    budget: Annotated[int, typer.Option(min=1, help="How many kernels repair may build before it gives up.")] = 12,
    effort: Annotated[
        Effort,
        typer.Option(help="thorough: leave out what was demanded while the exercise passes; one kernel a trial."),
    ] = Effort.NORMAL,
    price_margins: Annotated[
        bool,
        typer.Option(
            "--price-margins",
            help="Compile and measure the kernels of the other margins, too, for the table of what each costs: up "
            "to three compiles. Without it their symbols and system calls are counted; the rest is what the cache has.",
        ),
    ] = False,
    partition: Annotated[
        int | None,
        typer.Option(min=1, max=1000, show_default=False, help="Of a disk, the partition that has the system."),
    ] = None,
    units: Annotated[
        UnitsMode,
        typer.Option(
            help="Of a system: what is done about units that nothing in its exercise wants. keep: they are named; ask: "
            "they are listed, and you are asked; trim: those that the exercise does without are masked."
        ),
    ] = UnitsMode.KEEP,
    mask: Annotated[
        list[str] | None,
        typer.Option(
            metavar="UNIT",
            show_default=False,
            help="Of a system: units that you do without, by name or pattern ('ssh*'), several with commas. They are "
            "masked if the exercise passes, also those that --units leaves alone because they protect the system or "
            "let its owner in. Repeatable.",
        ),
    ] = None,
    tries: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="CHANGE",
            show_default=False,
            help="Of a system: changes of the catalogue beside the kernel (words and units), or "
            "sysctl.NAME=VALUE, several with commas, "
            "'a+b' as one. Each is tried alone on the fitted machine; those that are faster stay if the exercise "
            "passes with all of them. Repeatable.",
        ),
    ] = None,
    try_file: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH=FILE",
            show_default=False,
            help="Of a system: a file of its disk with the content of FILE, or none of it where nothing follows the =: "
            "settings of an engine, rules of udev. Tried and kept as --try does, on a copy of the disk. Repeatable.",
        ),
    ] = None,
    json: common.JsonOption = False,
) -> None:
    """Make the machine that fits an image, or a system on a disk: trace, plan, build, verify, measure, report."""
    # It goes into a record, which is UTF-8; a file's name need not be.
    command = shlex.join(["vmtailor", *sys.argv[1:]]).encode("utf-8", "replace").decode()
    options = replace(
        asked, out=out, boots=boots, budget=budget, effort=effort, price_margins=price_margins, command=command,
        units=units, mask=_unit_names(mask or ()), tries=_listed(tries or ()),
        files=tuple(_file(text) for text in try_file or ()),
    )  # fmt: skip
    if units is UnitsMode.ASK and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserInputError("--units ask needs a terminal to ask at", hint="--units trim tries all of them")
    result = run_fit(options, partition, _may_be_masked)
    report_stage.show(result, json=json)
    if not result.verified:
        what = "container" if result.system is None else "system"
        raise AnswerNo(
            f"the {what} does not work in the tailored machine",
            hint=f"{out}/report.html has every trial; --keep NAME keeps a symbol, --budget N allows more trials",
        )


def _listed(asked: Sequence[str]) -> tuple[str, ...]:
    """What was given once or several times, with commas."""
    return tuple(dict.fromkeys(name for text in asked for name in text.split(",") if name))


def _file(text: str) -> tuple[str, str | None]:
    """A path of the system's with the content that it is to have. Raises UserInputError."""
    path, sign, name = text.partition("=")
    if not sign:
        raise UserInputError(f"--try-file {text}: no file follows", hint="--try-file /etc/docker/daemon.json=new.json")
    if not name:
        return path, None
    with open_regular(Path(name), "the content of --try-file") as file:
        data = file.read(MOST_BYTES + 1)
    try:
        if len(data) <= MOST_BYTES and b"\0" not in data:
            return path, data.decode()
    except UnicodeDecodeError:
        pass
    raise UserInputError(f"--try-file {text}: {name} is no text of at most {MOST_BYTES >> 10} KiB")


def _unit_names(asked: Sequence[str]) -> tuple[str, ...]:
    """Names and patterns of units. Raises UserInputError for what no unit is called."""
    names = _listed(asked)
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9:_.@\\*?\[\]-]{1,255}", name):
            raise UserInputError(f"--mask: no unit is called {name!r}", hint="like ssh.service, or 'ssh*'")
    return names


def _may_be_masked(units: Sequence[UnitStanding]) -> bool:
    """List the units that nobody wanted, and ask whether they are to be tried."""
    for one in units:
        output.note(f"  {one.name}" + (f", started in {one.start_s:.3f} s" if one.start_s is not None else ""))
    what = plural(len(units), "unit", "units")
    return bool(units) and typer.confirm(f"Try to mask {what} that nothing in the exercise wants?", err=True)
