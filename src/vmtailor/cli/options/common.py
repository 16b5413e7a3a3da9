# SPDX-License-Identifier: Apache-2.0
"""Options that `fit` and its single stages share, and what they make of them."""

from __future__ import annotations

import functools
import inspect
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vmtailor.analysis.guests import machine_variants
from vmtailor.base.errors import UserInputError
from vmtailor.cli.options.sizes import parse_image_size, parse_memory
from vmtailor.model import architecture
from vmtailor.model.margin import NONE, Margin
from vmtailor.model.plan import RootFormat
from vmtailor.pipeline.options import IMAGE_MEMORY, FitOptions
from vmtailor.pipeline.systems import subjects

ImageArgument = Annotated[
    str,
    typer.Argument(
        help="oci:DIR[:TAG], oci-archive:FILE, docker-archive:FILE (- for standard input), docker://NAME, "
        "docker-daemon:NAME, rootfs:DIR, or a path; `fit` also takes disk:FILE, a system with an init of its own."
    ),
]
ExerciseOption = Annotated[
    Path | None, typer.Option("--exercise", "-x", help="How the container is driven and judged (TOML).")
]
ArchitectureOption = Annotated[
    str | None,
    typer.Option(
        "--arch",
        help=f"Processor of the target ({', '.join(architecture.names())}). Default: what the image is for.",
        show_default=False,
    ),
]
MachineOption = Annotated[
    str | None,
    typer.Option(
        help=f"Machine type of the target ({', '.join(architecture.every_board())}). Default: the processor's first.",
        show_default=False,
    ),
]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        help="Memory of the machine. Default: 256M; 2G for a system with an init of its own.", show_default=False
    ),
]
CpusOption = Annotated[int, typer.Option(min=1, max=64, help="CPUs of the target; 2 and more keep SMP.")]
CpuModelOption = Annotated[
    str | None, typer.Option(help="CPU model traced and measured on. Default: the processor's.", show_default=False)
]
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
RootOption = Annotated[
    RootFormat | None, typer.Option(help="Root file system. Without it: what the architecture has (erofs, mostly).")
]
KeepOption = Annotated[
    list[str] | None, typer.Option(help="Keep a configuration symbol: NAME or NAME=VALUE. May be repeated.")
]
DropOption = Annotated[list[str] | None, typer.Option(help="Leave a configuration symbol out. May be repeated.")]
MarginOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="WHAT",
        help="What is kept beyond what was demanded: none, reachable (what the image could ask for), server (what "
        "servers usually need), or reachable+server. May be repeated. Default: reachable; where the exercise is "
        "derived or gives no load, reachable+server.",
        show_default=False,
    ),
]
TerminalOption = Annotated[bool, typer.Option(help="Keep what `run -t` needs.")]
EntrypointOption = Annotated[
    str | None, typer.Option(help="Entry point instead of the image's (a root directory has none).")
]
AuthfileOption = Annotated[Path | None, typer.Option(help="Registry credentials, as skopeo reads them.")]
PrivilegedOption = Annotated[
    bool, typer.Option("--privileged", help="Let root in the container do everything: here, and when it is run.")
]
MaxImageSizeOption = Annotated[
    str | None,
    typer.Option(
        help="Content that an image may have, uncompressed, such as 32G; an entry counts for 4 KiB at least. "
        "Default: 16G, or 2G where less than 32G of the cache's disk is free.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def words(text: str | None) -> tuple[str, ...] | None:
    """A command line as a shell would read it; None stays None. Raises UserInputError."""
    if text is None:
        return None
    if "\0" in text:
        raise UserInputError(f"the entry point {text[:200]!r} holds a NUL", hint="leave it out")
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UserInputError(
            f"the entry point {text[:200]!r} is no command line: {error}", hint="close every quotation mark"
        ) from error


def margins(given: Sequence[str] | None) -> tuple[Margin, ...] | None:
    """The margins that are named, each once and in their order; None where nothing was said. Raises UserInputError."""
    if not given:
        return None
    names = [name for text in given for name in re.split(r"[+,]", text)]
    known = (NONE, *(margin.value for margin in Margin))
    for name in names:
        if name not in known:
            raise UserInputError(f"no margin {name[:64]!r} is known", hint=f"known: {', '.join(known)}; join them by +")
    if NONE in names and set(names) != {NONE}:
        raise UserInputError("the margin none does not go with another", hint="--margin none, or those to keep")
    return tuple(margin for margin in Margin if margin.value in names)


def require_machine(arch: str | None, machine: str | None) -> None:
    """Raise UserInputError for an architecture, or a machine of it, that nothing is known of."""
    if arch is not None and machine is not None:
        architecture.named(arch).board_named(machine)
    elif arch is not None:
        architecture.named(arch)
    elif machine is not None and machine not in architecture.every_board():
        raise UserInputError(
            f"no machine '{machine[:64]}' is known", hint=f"known: {', '.join(architecture.every_board())}"
        )


def with_options(template: Callable[..., FitOptions]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The first parameter of a command, its FitOptions, is made by `template`, whose parameters become options of the
    command's own, before those that it has besides."""
    offered = inspect.signature(template, eval_str=True).parameters

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        besides = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in (*offered.values(), *besides)]

        @functools.wraps(command)
        def called(**given: Any) -> Any:
            options = template(**{name: given.pop(name) for name in offered})
            return command(options, **given)

        vars(called)["__signature__"] = inspect.Signature(parameters)
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return called

    return decorate


#: Of verbs that do a bundle's exercise again.
BundleExerciseOption = Annotated[
    Path | None,
    typer.Option(
        "--exercise", "-x", help="The exercise file that the bundle was fitted with; its host commands are run."
    ),
]


def default_memory(reference: str) -> int:
    """Bytes of memory of a machine where the user says nothing."""
    return machine_variants.USUAL.memory_bytes if subjects.disk_path(reference) is not None else IMAGE_MEMORY


def subject(
    image: ImageArgument,
    exercise: ExerciseOption = None,
    arch: ArchitectureOption = None,
    machine: MachineOption = None,
    memory: MemoryOption = None,
    cpus: CpusOption = 1,
    cpu_model: CpuModelOption = None,
    kernel: KernelOption = None,
    source: SourceOption = None,
    baseline_config: BaselineConfigOption = None,
    root: RootOption = None,
    entrypoint: EntrypointOption = None,
    authfile: AuthfileOption = None,
    privileged: PrivilegedOption = False,
    max_image_size: MaxImageSizeOption = None,
) -> FitOptions:
    """What is fitted, and what is traced."""
    require_machine(arch, machine)
    return FitOptions(
        reference=image, out=Path(), exercise_file=exercise, architecture=arch or "", machine=machine or "",
        memory_bytes=parse_memory(memory) if memory is not None else default_memory(image),
        memory_asked=memory is not None, cpus=cpus, cpu_model=cpu_model or "",
        kernel=kernel, source=source, baseline_config=baseline_config, root=root,
        entrypoint=words(entrypoint), authfile=authfile, privileged=privileged,
        max_image_bytes=None if max_image_size is None else parse_image_size(max_image_size),
    )  # fmt: skip


@with_options(subject)
def planned(
    options: FitOptions,
    keep: KeepOption = None,
    drop: DropOption = None,
    margin: MarginOption = None,
    terminal: TerminalOption = True,
) -> FitOptions:
    """The same, with what the plan is told."""
    return replace(options, keep=tuple(keep or ()), drop=tuple(drop or ()), margins=margins(margin), terminal=terminal)
