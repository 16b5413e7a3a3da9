# SPDX-License-Identifier: Apache-2.0
"""`vmtailor run`: the container in its machine, as a container engine would run it."""

from __future__ import annotations

import fcntl
import functools
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmtailor.base.errors import UserInputError
from vmtailor.base.files import records
from vmtailor.booting import run_orders
from vmtailor.booting.run_orders import RunOrders
from vmtailor.cli import docker_options, quick_machine, quick_start
from vmtailor.cli.verbs import Command
from vmtailor.drivers.host import bundle_folder
from vmtailor.pipeline import kept_run
from vmtailor.pipeline.image_run_options import ImageRunOptions
from vmtailor.pipeline.kept_run import KeptOptions
from vmtailor.pipeline.machine_run import RunOptions, Watching, require_meant
from vmtailor.pipeline.machine_run import run as run_machine
from vmtailor.pipeline.pull_options import PulledBundle, PullOptions
from vmtailor.pipeline.run_subject import subject_of

if TYPE_CHECKING:
    from vmtailor.pipeline.kept_start import LikeStart

#: A descriptor behind those that have a meaning in the supervisor.
_FREE = 10


class RunCommand(Command):
    """The command `run`. Options of `docker run` that it lacks are answered with a sentence of their own."""

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


def run(options: RunOptions, kept: KeptOptions, wanted: ImageRunOptions, pull: PullOptions) -> None:
    """Start the container of a bundle, or of an image, in its machine. Exits with the container's status; 125 when
    vmtailor fails, 126 when the container cannot be executed as asked, 127 when its program is not found.

    An image starts on the kernel that was fitted to it, else on a family kernel, for which nothing is proven.

    Ctrl-C, SIGTERM, SIGHUP and SIGQUIT become the image's stop signal; after the time to stop, or at a second Ctrl-C,
    the machine ends. Other signals are passed on.

    With -d or --name the machine is kept until `vmtailor rm`: its logs, its state, and what it writes. Where its kernel
    lacks ext4, that is in memory until it stops, and a line says so.

    A system with an init of its own starts with its console on this terminal; Ctrl-] ends it."""
    if options.terminal and options.interactive and not kept.detach and not os.isatty(0):
        raise UserInputError("standard input is not a terminal", hint="leave -t out, or run it from a terminal")
    if options.host_loopback and not options.outbound:
        raise UserInputError("--host-loopback needs outbound connections", hint="leave --no-outbound out")
    subject = subject_of(options, wanted, pull=pull)
    options = replace(options, bundle=subject.bundle)
    if kept_run.is_kept(options, kept):
        # A run without a name loads none of this.
        from vmtailor.pipeline import kept_start

        def keep(like: LikeStart) -> None:
            started = quick_start.missed
            if started is not None and started.name is not None and like.of_files:
                supervisor = str(run_orders.program())
                quick_start.keep(started, functools.partial(_named, like), like.of_files, supervisor, like.holds_s)

        sys.exit(kept_start.run_kept(options, kept, placed=subject.of_cache, keep=keep))
    if subject.of_cache and not _tell(subject.pulled):
        quick_start.missed = None  # the same words may mean another image next time
    # typer.Exit would make 130 look like an interrupted program of ours
    watched = options.watched
    sys.exit(_watched(options, options.observed) if watched else run_machine(options, None, _keep, subject.behind))


def _tell(pulled: PulledBundle | None) -> bool:
    """Let the next start with the same options say the digest of a pulled bundle, as long as its reference means it.
    Returns whether there is one."""
    if pulled is not None and quick_start.missed is not None:
        quick_start.missed.said = pulled.said
        quick_start.missed.entry = str(pulled.folder)
        quick_start.missed.files = tuple(map(str, pulled.depends))
    return pulled is not None


def _named(like: LikeStart) -> bytes:
    return quick_machine.template(records.to_bytes(like.record), like.note, like.make_disk, like.orders)


def _keep(orders: RunOrders) -> None:
    """Keep orders for the next start with the same options, where they hold for it."""
    if quick_start.missed is not None and orders.of_files:
        kept = functools.partial(orders.text, known=True, variables=False)
        files = (*orders.of_files, *quick_start.missed.files)
        quick_start.keep(quick_start.missed, kept, files, str(run_orders.program()), orders.holds_s)


def _watched(options: RunOptions, out: Path | None) -> int:
    """Run the machine and watch it; cli/run_end.py prints the refused calls, also when the run failed."""
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise UserInputError(f"{out} cannot be written", hint="name a file in a folder that exists")
    # A run that is not watched loads none of these.
    from vmtailor.pipeline.run_watch import Watch

    require_meant(options, bundle_folder.load(options.bundle))
    made = os.memfd_create("vmtailor-refused")
    told = fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, _FREE)  # the record of the end comes at a low descriptor
    os.close(made)
    return run_machine(options, Watching(Watch(options.bundle).tools(), told, out and out.absolute()))
