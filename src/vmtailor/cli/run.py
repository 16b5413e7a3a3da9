# SPDX-License-Identifier: Apache-2.0
"""`vmtailor run`: the container in its machine, as a container engine would run it."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.cli.options import docker_options
from vmtailor.cli.options.sizes import parse_memory
from vmtailor.cli.verbs import Command
from vmtailor.drivers.host import bundle_folder
from vmtailor.model.machine import Accelerator
from vmtailor.pipeline.machine_run import RunOptions, require_meant
from vmtailor.pipeline.machine_run import run as run_machine
from vmtailor.pipeline.run_ports import parse_all


class RunCommand(Command):
    """`run`, whose users know the options of `docker run`: one that is not here gets a sentence of its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # the library keeps its error classes to itself
            name = getattr(error, "option_name", "") if type(error).__name__ == "NoSuchOption" else ""
            known = docker_options.known(name)
            if known is None:
                raise
            says = known.says[0].lower() + known.says[1:].rstrip(".")
            raise UserInputError(f"run has no {name}: {says}", hint=known.hint) from error


def run(
    bundle: Annotated[Path, typer.Argument(help="A bundle that `fit` wrote.")],
    command: Annotated[list[str] | None, typer.Argument(help="Command instead of the image's.")] = None,
    publish: Annotated[
        list[str] | None,
        typer.Option(
            "--publish",
            "-p",
            help="Open a host port that leads into the machine: 8080:80, 80 (a free host port, which is printed), "
            "8000-8002:80-82, 53:53/udp, 0.0.0.0:8080:80. On 127.0.0.1 unless an address is given.",
        ),
    ] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE, or NAME to pass it on.")] = None,
    env_file: Annotated[list[Path] | None, typer.Option(help="A file of such lines; --env wins over it.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="User and group, names or numbers.")] = None,
    workdir: Annotated[str | None, typer.Option("--workdir", "-w", help="Working directory.")] = None,
    hostname: Annotated[str | None, typer.Option("--hostname", "-h", help="The guest's host name.")] = None,
    entrypoint: Annotated[
        str | None, typer.Option(help='Program instead of the image\'s entry point; "" for none.')
    ] = None,
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="Pass standard input on.")] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Give the container a terminal.")] = False,
    stop_signal: Annotated[str | None, typer.Option(help="Signal that stops the container.")] = None,
    stop_timeout: Annotated[
        int | None, typer.Option(min=-1, help="Seconds it has to stop, before the machine is ended: 10; -1: any time.")
    ] = None,
    rm: Annotated[bool, typer.Option("--rm", help="Accepted for habit: nothing is ever left behind.")] = False,
    init: Annotated[bool, typer.Option("--init", help="Accepted for habit: there always is one.")] = False,
    memory: Annotated[
        str | None, typer.Option("--memory", "-m", help="Memory of the machine, such as 64M or 1g.")
    ] = None,
    cpus: Annotated[str | None, typer.Option(help="CPUs, at most those that the bundle was fitted to.")] = None,
    accelerator: Annotated[Accelerator | None, typer.Option(help="Default: kvm where it works, tcg elsewhere.")] = None,
    outbound: Annotated[
        bool, typer.Option(help="Let the guest open connections to the world, but not to this host's loopback.")
    ] = True,
    host_loopback: Annotated[
        bool, typer.Option("--host-loopback", help="Let it reach servers on 127.0.0.1 of this host, too, as 10.0.2.2.")
    ] = False,
    privileged: Annotated[
        bool | None, typer.Option(help="Let root in the container do everything. Default: as it was fitted.")
    ] = None,
    keep_state: Annotated[
        bool,
        typer.Option(
            "--keep-state",
            help="Of a system with an init of its own: keep what it writes, in the bundle's folder, for the next start "
            "that asks for it.",
        ),
    ] = False,
    explain_failures: Annotated[
        bool,
        typer.Option(
            "--explain-failures",
            help="Watch the container, and say at the end what its kernel refused that the baseline would have given. "
            "Every system call then takes far longer (docs/how-to/see-what-was-refused.md): take no figures from such "
            "a run.",
        ),
    ] = False,
    observed: Annotated[
        Path | None,
        typer.Option(
            help="Watch it, and write what was refused to this file, for `refit --observed`.", show_default=False
        ),
    ] = None,
) -> None:
    """Start a bundle's container in its machine. Exits with the container's status; 125 when vmtailor fails, 126 when
    the container cannot be executed as asked, 127 when its program is not found.

    Ctrl-C, SIGTERM, SIGHUP and SIGQUIT become the image's stop signal; after the time to stop, or at a second Ctrl-C,
    the machine ends. Other signals are passed on.

    Of a system with an init of its own, the machine is started with its console at this terminal; Ctrl-] ends it."""
    del rm, init
    if tty and interactive and not os.isatty(0):
        raise UserInputError("standard input is no terminal", hint="leave -t out, or run it from a terminal")
    if host_loopback and not outbound:
        raise UserInputError("--host-loopback needs outbound connections", hint="leave --no-outbound out")
    options = RunOptions(
        bundle=bundle,
        command=tuple(command or ()),
        entrypoint=entrypoint,
        ports=parse_all(publish or ()),
        env=tuple(env or ()),
        env_files=tuple(env_file or ()),
        user=user,
        cwd=workdir,
        hostname=hostname,
        interactive=interactive,
        terminal=tty,
        memory_bytes=None if memory is None else parse_memory(memory),
        accelerator=accelerator,
        outbound=outbound,
        host_loopback=host_loopback,
        cpus=None if cpus is None else _cpus(cpus),
        stop_signal=stop_signal,
        stop_timeout_s=math.inf if stop_timeout == -1 else stop_timeout,
        privileged=privileged,
        keep_state=keep_state,
        watched=explain_failures or observed is not None,
    )
    # typer.Exit would make 130 look like an interrupted program of ours
    sys.exit(_watched(options, observed) if options.watched else run_machine(options))


def _watched(options: RunOptions, out: Path | None) -> int:
    """The same run, watched; also where it failed, what was refused until then is said."""
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise UserInputError(f"{out} cannot be written", hint="name a file in a folder that exists")
    # A run that is not watched loads none of these.
    from vmtailor.cli.tables import refused_table
    from vmtailor.pipeline.run_watch import Watch

    require_meant(options, bundle_folder.load(options.bundle))
    watch = Watch(options.bundle)
    try:
        return run_machine(options, watch)
    finally:
        if watch.began:
            if out is not None:
                records.save(watch.observed(), out)
            refused_table.show(watch.findings(), options.bundle, out)


def _cpus(text: str) -> int:
    """How many, as container engines write it. Raises UserInputError."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not (1 <= number <= 64 and number.is_integer()):
        raise UserInputError(f"a machine cannot have '{text}' CPUs", hint="name a whole number, such as --cpus 2")
    return int(number)
