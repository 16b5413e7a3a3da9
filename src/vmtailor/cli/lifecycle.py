# SPDX-License-Identifier: Apache-2.0
"""`vmtailor start`, `stop`, `restart`, `kill`, `wait`, `rm`, `rename`: the lives of named machines."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Annotated

from vmtailor.base import output
from vmtailor.base.errors import UserInputError
from vmtailor.cli.each import Failures
from vmtailor.drivers.host.machine_folders import MachineFolders
from vmtailor.model.option import Option, Suggests
from vmtailor.model.option_rows import DETACH_KEYS, MACHINES, SIG_PROXY
from vmtailor.pipeline import machine_control

_TIME = Option(
    name="--timeout", short="-t", type=int, least=-1, former=("--time",), metavar="SECONDS",
    help="End a machine that has not stopped after this many seconds; -1 waits for ever.",
)  # fmt: skip
_SIGNAL = Option(
    name="--signal",
    short="-s",
    metavar="SIGNAL",
    suggests=Suggests.SIGNALS,
    help="Send this signal, such as HUP or SIGUSR1.",
)


def start(
    names: Annotated[tuple[str, ...], MACHINES],
    attach: Annotated[
        bool, Option(name="--attach", short="-a", type=bool, help="Stay in the foreground, with its output here.")
    ] = False,
    interactive: Annotated[
        bool, Option(name="--interactive", short="-i", type=bool, help="Pass standard input on, with --attach.")
    ] = False,
    detach_keys: Annotated[str | None, DETACH_KEYS] = None,
    sig_proxy: Annotated[bool, SIG_PROXY] = True,
) -> None:
    """Start named machines again, as they were started first.

    A machine that already runs is left alone. --attach takes one machine, and exits with its program's status."""
    from vmtailor.pipeline import kept_start  # what ends machines loads nothing that starts them

    folders, failures = MachineFolders(), Failures()
    if attach or interactive:
        if len(names) != 1:
            raise UserInputError("--attach takes one machine", hint="vmtailor attach NAME joins one that runs")
        found = folders.find(names[0])
        sys.exit(kept_start.start_here(found, interactive=interactive, keys=detach_keys, proxy=sig_proxy))
    for outcome in kept_start.start_all(names, folders):
        if outcome.error is not None:
            failures.add(outcome.error)
        else:
            output.say(outcome.word)
    failures.leave()


def stop(
    names: Annotated[tuple[str, ...], MACHINES],
    timeout: Annotated[int | None, _TIME] = None,
    by_signal: Annotated[str | None, replace(_SIGNAL, help="Send this signal instead of the image's.")] = None,
) -> None:
    """Stop named machines: each container gets its stop signal, and its machine ends after its time to stop.

    All are told at once. A machine that was stopped is not started again by its restart policy."""
    failures = Failures()
    for outcome in machine_control.stop(names, timeout, by_signal):
        if outcome.error is not None:
            failures.add(outcome.error)
        else:
            output.say(outcome.word)
    failures.leave()


def restart(
    names: Annotated[tuple[str, ...], MACHINES],
    timeout: Annotated[int | None, _TIME] = None,
    by_signal: Annotated[str | None, replace(_SIGNAL, help="Send this signal instead of the image's.")] = None,
) -> None:
    """Stop named machines, and start them again."""
    from vmtailor.pipeline import kept_start

    failures, stopped = Failures(), []
    for outcome in machine_control.stop(names, timeout, by_signal):
        if outcome.error is not None:
            failures.add(outcome.error)
        else:
            stopped.append(outcome.word)
    for outcome in kept_start.start_all(stopped, MachineFolders()):
        if outcome.error is not None:
            failures.add(outcome.error)
        else:
            output.say(outcome.word)
    failures.leave()


def kill(
    names: Annotated[tuple[str, ...], MACHINES],
    by_signal: Annotated[str, _SIGNAL] = "KILL",
) -> None:
    """Send a signal to the containers of named machines.

    A container that ends by it ends its machine. Its restart policy does not start it again after KILL."""
    number = machine_control.signal_number(by_signal)
    folders, failures = MachineFolders(), Failures()
    for name in names:
        with failures.noted():
            machine_control.kill(folders.find(name), number)
            output.say(name)
    failures.leave()


def wait(names: Annotated[tuple[str, ...], MACHINES]) -> None:
    """Wait until named machines have ended, and print the exit status of each container."""
    folders, failures = MachineFolders(), Failures()
    for name in names:
        with failures.noted():
            output.say(str(machine_control.wait(folders.find(name))))
    failures.leave()


def rm(
    names: Annotated[tuple[str, ...], MACHINES],
    force: Annotated[
        bool, Option(name="--force", short="-f", type=bool, help="Kill a machine that runs, and remove it.")
    ] = False,
    volumes: Annotated[
        bool,
        Option(
            name="--volumes", short="-v", type=bool, help="Remove its anonymous volumes too; they always go with it."
        ),
    ] = False,
) -> None:
    """Remove named machines with all that they have kept: written files, logs, state.

    Volumes that have a name of their own stay."""
    del volumes
    folders, failures = MachineFolders(), Failures()
    for name in names:
        with failures.noted():
            machine_control.remove(folders.find(name), force=force)
            output.say(name)
    failures.leave()


def rename(
    name: Annotated[str, Option(name="NAME", suggests=Suggests.MACHINES, help="Rename this machine.")],
    new_name: Annotated[str, Option(name="NEW_NAME", help="Give it this name.")],
) -> None:
    """Give a named machine another name."""
    folders = MachineFolders()
    folders.rename(folders.find(name), new_name)
