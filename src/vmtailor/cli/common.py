# SPDX-License-Identifier: Apache-2.0
"""Options that `fit` and its single stages share."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from vmtailor.base.errors import UserInputError
from vmtailor.model.machine import MachineKind
from vmtailor.model.plan import RootFormat

ExerciseOption = Annotated[
    Path | None, typer.Option("--exercise", "-x", help="How the container is driven and judged (TOML).")
]
MachineOption = Annotated[MachineKind, typer.Option(help="Machine type of the target.")]
CpusOption = Annotated[int, typer.Option(min=1, max=64, help="CPUs of the target; 2 and more keep SMP.")]
CpuModelOption = Annotated[str, typer.Option(help="CPU model traced and measured on.")]
KernelOption = Annotated[
    str | None, typer.Option(help="Packaged baseline: a series (6.12), or an exact version or release.")
]
SourceOption = Annotated[
    str | None, typer.Option(help="Kernel source to build instead of the packaged one: DIR or TARBALL[,SHA256].")
]
BaselineConfigOption = Annotated[
    str | None,
    typer.Option(
        help="Compile the baseline from --source, once, with this configuration: a file (/boot/config-RELEASE), or "
        "'defconfig'. For distributions that package no kernel with debug symbols and source."
    ),
]
RootOption = Annotated[RootFormat, typer.Option(help="Root file system.")]
KeepOption = Annotated[
    list[str] | None, typer.Option(help="Keep a configuration symbol: NAME or NAME=VALUE. May be repeated.")
]
DropOption = Annotated[list[str] | None, typer.Option(help="Leave a configuration symbol out. May be repeated.")]
TerminalOption = Annotated[bool, typer.Option(help="Keep what `run -t` needs.")]
EntrypointOption = Annotated[
    str | None, typer.Option(help="Entry point instead of the image's (a root directory has none).")
]
AuthfileOption = Annotated[Path | None, typer.Option(help="Registry credentials, as skopeo reads them.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def words(text: str | None) -> tuple[str, ...] | None:
    """A command line as a shell would read it; None stays None. Raises UserInputError."""
    if text is None:
        return None
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UserInputError(
            f"the entry point {text!r} is no command line: {error}", hint="close every quotation mark"
        ) from error
