# SPDX-License-Identifier: Apache-2.0
"""`vmtailor run`: the container in its machine, as a container engine would run it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from vmtailor.base.errors import UserInputError
from vmtailor.cli.sizes import parse_memory
from vmtailor.model.machine import Accelerator
from vmtailor.pipeline.running import RunOptions, parse_port, run_bundle


def run(
    bundle: Annotated[Path, typer.Argument(help="A bundle that `fit` wrote.")],
    command: Annotated[list[str] | None, typer.Argument(help="Command instead of the image's.")] = None,
    publish: Annotated[
        list[str] | None,
        typer.Option(
            "--publish", "-p", help="[ADDRESS:]HOST_PORT:GUEST_PORT[/udp]; loopback unless an address is given."
        ),
    ] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE, or NAME to pass it on.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u", help="User and group, names or numbers.")] = None,
    workdir: Annotated[str | None, typer.Option("--workdir", "-w", help="Working directory.")] = None,
    hostname: Annotated[str | None, typer.Option(help="The guest's host name.")] = None,
    entrypoint: Annotated[str | None, typer.Option(help="Program instead of the image's entry point.")] = None,
    interactive: Annotated[bool, typer.Option("--interactive", "-i", help="Pass standard input on.")] = False,
    tty: Annotated[bool, typer.Option("--tty", "-t", help="Give the container a terminal.")] = False,
    rm: Annotated[bool, typer.Option("--rm", help="Accepted for habit: nothing is ever left behind.")] = False,
    memory: Annotated[str | None, typer.Option(help="Memory of the machine, such as 64M.")] = None,
    accelerator: Annotated[Accelerator | None, typer.Option(help="Default: kvm where it works, tcg elsewhere.")] = None,
    outbound: Annotated[bool, typer.Option(help="Let the guest open connections to the world.")] = True,
    privileged: Annotated[
        bool | None, typer.Option(help="Let root in the container do everything. Default: as it was fitted.")
    ] = None,
) -> None:
    """Start a bundle's container in its machine. Exits with the container's status.

    Ctrl-C and SIGTERM become the image's stop signal; a second Ctrl-C ends the machine."""
    del rm
    if tty and not sys.stdin.isatty():
        raise UserInputError("standard input is no terminal", hint="leave -t out, or run it from a terminal")
    options = RunOptions(
        bundle=bundle,
        command=tuple(command or ()),
        entrypoint=entrypoint,
        ports=tuple(parse_port(text) for text in publish or ()),
        env=tuple(env or ()),
        user=user,
        cwd=workdir,
        hostname=hostname,
        interactive=interactive,
        terminal=tty,
        memory_bytes=None if memory is None else parse_memory(memory),
        accelerator=accelerator,
        outbound=outbound,
        privileged=privileged,
    )
    sys.exit(run_bundle(options))  # typer.Exit would make 130 look like an interrupted program of ours
